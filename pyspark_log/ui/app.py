"""The server of the page: routes, events for what moves, and who may see and change what.

It listens on loopback unless told otherwise, and then only viewers with its token see anything. Nothing is changed
without `allow_changes`, and a request that changes something needs the secret that the pages' forms have, so that no
other site can make a browser send it. A request for another host than the one that it listens on is refused: a name
that somebody else controls may lead to loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

import msgspec

from pyspark_log.opening import open_log, own_log
from pyspark_log.ui import content, pages
from pyspark_log.ui.past import Past
from pyspark_log.ui.view import Watch
from pyspark_log_storage.errors import InvalidInput

try:
    from starlette.applications import Starlette
    from starlette.convertors import IntegerConvertor, register_url_convertor
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as missing:
    raise InvalidInput(
        f"the page needs Starlette and uvicorn, and one cannot be imported ({missing}); pip install starlette uvicorn"
    ) from None

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyspark_log.ui.content import Content
    from pyspark_log.ui.view import ClusterView
    from pyspark_log_storage.stores.storage_options import StorageOptions

LOOK_SECONDS = 0.5
"""How often the cluster is looked at while somebody has a page open, and how often each page is sent if it has changed.

A page may be sent just before a look, so on disks it shows what was at most twice as long ago.
"""
FORM_BYTES_MAX = 2**20
COOKIE = "pyspark_log_ui"
_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_DOWNLOADS = {"jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the page is served."""

    path: str
    options: StorageOptions | None = None
    host: str = "127.0.0.1"
    """The address that it listens on."""
    token: str = ""
    """What viewers must have; empty for none, which is for loopback only."""
    allow_changes: bool = False
    mask: tuple[str, ...] = ()
    """Columns whose contents are not shown, and headers as `header:NAME`."""


class _Number(IntegerConvertor):
    """A whole number in an address. What has more digits than an int64 names nothing that exists."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", _Number())


class Live:
    """The view that all viewers share: one look at a time, while there are viewers."""

    def __init__(self, settings: Settings) -> None:
        # The view's budget is that of all: requests are counted for the process, whoever makes them.
        self._watch = Watch(own_log(settings.path, settings.options), settings.path)
        self._thread = ThreadPoolExecutor(1, "pyspark-log-ui")
        self._looked = -float("inf")
        self._looking: asyncio.Future[ClusterView] | None = None
        self._wanted: dict[object, Collection[str]] = {}

    async def view(self, *wanted: str) -> ClusterView:
        """Return a view that is at most `LOOK_SECONDS` old. `wanted` are topics and groups that the caller shows."""
        loop = asyncio.get_running_loop()
        if self._looking is None and loop.time() - self._looked >= LOOK_SECONDS:
            names = {*wanted, *(name for each in self._wanted.values() for name in each)}
            self._looking = loop.run_in_executor(self._thread, self._watch.look, names)
            self._looking.add_done_callback(self._seen)
        if self._looking is not None:
            return await asyncio.shield(self._looking)
        return self._watch.view

    def _seen(self, _: object) -> None:
        self._looking = None
        self._looked = asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def shown(self, *wanted: str) -> Iterator[None]:
        """Say that a page shows these topics and groups."""
        key = object()
        self._wanted[key] = wanted
        try:
            yield
        finally:
            del self._wanted[key]


class Ui:
    """The pages of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.live = Live(settings)
        self.secret = secrets.token_urlsafe(24)
        """What the forms of the pages have, and no other site knows."""
        self._rows_threads = ThreadPoolExecutor(2, "pyspark-log-ui-rows")
        self._past_thread = ThreadPoolExecutor(1, "pyspark-log-ui-past")
        self._history = Past(own_log(settings.path, settings.options))

    def app(self) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/", self._page("cluster", content.cluster)),
            Route("/topics", self._page("topics", content.topics)),
            Route("/topics/{topic}", self._page("topic", content.topic)),
            Route("/topics/{topic}/rows", self._rows),
            Route("/topics/{topic}/rows/{partition:number}/{offset:number}", self._row),
            Route("/topics/{topic}/download.{form}", self._download),
            Route("/groups", self._page("groups", content.groups)),
            Route("/queries", self._past("queries", content.queries)),
            # A group's name may have a slash in it, a topic's may not.
            Route("/groups/{group:path}/reset", self._reset, methods=["POST"]),
            Route("/groups/{group:path}", self._page("group", content.group)),
            Route("/timeline", self._past("timeline", content.timeline)),
            Route("/entries/cluster/{number:number}", self._past("entry", content.entry, scope="cluster")),
            Route("/entries/topic/{name}/{number:number}", self._past("entry", content.entry, scope="topic")),
            Route("/entries/group/{name:path}/{number:number}", self._past("entry", content.entry, scope="group")),
            Route("/static/{name}", _static),
        ]
        return _Guard(Starlette(routes=routes), self.settings)

    def _page(self, name: str, content_of: Content) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page that shows no more than the view."""

        async def context(request: Request) -> dict[str, Any]:
            view = await self.live.view(*request.path_params.values())
            return {"view": view, **content_of(view, {**request.query_params, **request.path_params})}

        async def endpoint(request: Request) -> Response:
            return await self._answer(request, name, context)

        return endpoint

    async def _answer(
        self,
        request: Request,
        name: str,
        context_of: Callable[[Request], Awaitable[dict[str, Any]]],
        *,
        moves: bool = True,
    ) -> Response:
        """Return the document of a page, or for an `EventSource` its content as it changes, if the page moves."""

        async def context() -> dict[str, Any]:
            return {"settings": self.settings, "secret": self.secret, **await context_of(request)}

        async def render() -> str:
            return pages.render(name, **await context())

        if moves and request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
            events = _events(request, self.live, render)
            return StreamingResponse(events, media_type="text/event-stream", headers=_SECURITY)
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return HTMLResponse(pages.whole(name, live=address if moves else "", **await context()), headers=_SECURITY)

    async def _rows(self, request: Request) -> Response:
        """Return a page of rows. It moves while it shows the newest."""
        parameters = {**request.query_params, **request.path_params}
        seen: tuple[int, dict[str, Any]] = (-1, {})

        async def context(_: Request) -> dict[str, Any]:
            nonlocal seen
            view = await self.live.view(parameters["topic"])
            topic = view.topics.get(parameters["topic"])
            version = topic.version if topic is not None else 0
            if seen[0] != version:  # the rows are read again only if there may be new ones
                found = await self._in_rows_thread(content.rows, parameters)
                seen = -1 if found["problem"] else version, found  # what could not be read is tried again
            return {"view": view, **seen[1]}

        return await self._answer(request, "rows", context)

    async def _download(self, request: Request) -> Response:
        """Return the rows of a page as a file."""
        parameters = {**request.query_params, **request.path_params}
        if parameters["form"] not in _DOWNLOADS:
            return PlainTextResponse("rows are downloaded as .jsonl or .parquet", 404)
        found = await self._in_rows_thread(content.download, parameters)
        if "file" not in found:
            return PlainTextResponse(found["problem"], 400)
        name = quote(f"{parameters['topic']}.{parameters['form']}")
        headers = {**_SECURITY, "content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(found["file"], media_type=_DOWNLOADS[parameters["form"]], headers=headers)

    async def _row(self, request: Request) -> Response:
        """Return a page with one row."""

        async def context(_: Request) -> dict[str, Any]:
            found = await self._in_rows_thread(content.row, request.path_params)
            return {"view": await self.live.view(), **found}

        return await self._answer(request, "row", context, moves=False)

    def _past(
        self, page: str, content_of: Callable[..., dict[str, Any]], **given: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page that shows the past."""

        async def context(request: Request) -> dict[str, Any]:
            wanted = (request.query_params.get(each) for each in ("topic", "group"))
            view = await self.live.view(*filter(None, wanted))
            parameters = {**request.query_params, **request.path_params, **given}
            return {
                "view": view,
                **await asyncio.get_running_loop().run_in_executor(
                    self._past_thread, content_of, self._history, view, parameters
                ),
            }

        async def endpoint(request: Request) -> Response:
            return await self._answer(request, page, context, moves=page != "entry")

        return endpoint

    async def _reset(self, request: Request) -> Response:
        """Show what a reset of a group's offsets would change, or carry out what was shown."""
        form = await _form(request)
        refusal = self._refused_change(request, form)
        if refusal is not None:
            return refusal
        parameters = {**form, **request.path_params}
        found = await self._in_rows_thread(content.reset, parameters)
        context = {"settings": self.settings, "secret": self.secret, "view": await self.live.view(), **found}
        return HTMLResponse(pages.whole("reset", **context), headers=_SECURITY)

    def _refused_change(self, request: Request, form: Mapping[str, str]) -> Response | None:
        """Return why a request may not change anything, None if it may."""
        if not self.settings.allow_changes:
            return PlainTextResponse("this page changes nothing; start it with --allow-changes", 403)
        origin = request.headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == request.headers.get("host")
        if not is_own or not hmac.compare_digest(form.get("secret", "").encode(), self.secret.encode()):
            return PlainTextResponse("this form is not from this page, or older than it; open the page again", 403)
        return None

    async def _in_rows_thread(self, of: Callable[..., dict[str, Any]], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a function finds with a log that its thread keeps: a slow read does not stop the looks."""

        def found() -> dict[str, Any]:
            return of(lambda: open_log(self.settings.path, self.settings.options), parameters, self.settings.mask)

        return await asyncio.get_running_loop().run_in_executor(self._rows_threads, found)


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form, none of one that is too large or that its sender has given up."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES_MAX:
                return {}
    except ClientDisconnect:
        return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


async def _events(request: Request, live: Live, render: Callable[[], Awaitable[str]]) -> AsyncIterator[str]:
    """Yield the content as an event whenever it has changed."""
    before = ""
    with live.shown(*request.path_params.values()):
        while not await request.is_disconnected():
            now = await render()
            if now != before:
                data = "\n".join(f"data: {line}" for line in now.splitlines())
                yield f"event: content\n{data}\n\n"
                before = now
            else:
                yield ": nothing new\n\n"
            await asyncio.sleep(LOOK_SECONDS)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    try:
        content = pages.static(name)
    except KeyError:
        return PlainTextResponse("there is no such file", 404)
    kind = next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), "text/plain; charset=utf-8")
    return Response(content, media_type=kind, headers={**_SECURITY, "cache-control": "max-age=3600"})


class _Guard:
    """Refuses requests for other hosts and from viewers without the token."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        answer = self._refusal(Request(scope))
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        token = self._settings.token
        if not token:
            host = (request.url.hostname or "").strip("[]")
            if host not in {"localhost", "127.0.0.1", "::1", self._settings.host}:
                return PlainTextResponse(f"this page is not served as {host!r}; open it at {self._settings.host}", 421)
            return None
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), token.encode()):
            answer = RedirectResponse(str(request.url.remove_query_params("token").replace(scheme="", netloc="")))
            answer.set_cookie(
                COOKIE, quote(token, safe=""), httponly=True, samesite="strict", secure=request.url.scheme == "https"
            )
            return answer
        if hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), quote(token, safe="").encode()):
            return None
        return PlainTextResponse("open this page at the address with ?token=... that pyspark-log ui has printed", 401)
