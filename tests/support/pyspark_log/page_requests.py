"""Requests to the page of `pyspark-log ui`, as the server that runs it hands them on."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp


class Answer(NamedTuple):
    """An answer, with the last of each header."""

    status: int
    headers: dict[str, str]
    body: str


def scope_of(address: str, method: str = "GET", host: str = "127.0.0.1:8080", **headers: str) -> dict[str, Any]:
    """Return what is known of a request before its body."""
    path, _, query = address.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": unquote(path, errors="replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in {"host": host, **headers}.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
    }


def ask(
    app: ASGIApp, address: str, *, form: bytes | Iterable[bytes] | None = None, leaves: bool = False, **given: str
) -> Answer:
    """Return the answer to a request; with a form, or with the parts of one, it is a POST.

    Its sender goes away after the body, or with `leaves` in the middle of it.
    """
    parts = [form] if isinstance(form, bytes) else list(form or [b""])
    more = [leaves or part is not parts[-1] for part in parts]
    messages = iter({"type": "http.request", "body": p, "more_body": m} for p, m in zip(parts, more, strict=True))
    found: list[tuple[int, dict[str, str]]] = []
    body = bytearray()

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append((message["status"], {name.decode(): text.decode() for name, text in message["headers"]}))
        body.extend(message.get("body", b""))

    scope = scope_of(address, **({} if form is None else {"method": "POST"}) | given)
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    return Answer(*found[0], body.decode("latin-1"))
