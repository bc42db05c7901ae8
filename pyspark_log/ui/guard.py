"""Who may see the page: requests for other hosts, from other sites and from viewers without the token are refused.

A name that somebody else controls may lead to loopback, so without a token the page answers only as the hosts that it
is served as. Every answer, whoever makes it, has the headers that keep a browser from running what rows contain.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pyspark_log.ui.settings import Settings

COOKIE = "pyspark_log_ui"
"""Followed by the port: browsers send a cookie to all ports of a host."""
_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Hands on the requests of those who may see the page."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in {**_SECURITY, "cache-control": "no-store"}.items():
                    headers.setdefault(name, text)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(Request(scope))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        settings = self._settings
        if _is_from_another_site(request):
            return PlainTextResponse("another site asked for this; open the page at its own address", 403)
        if not settings.token:
            host = (request.url.hostname or "").strip("[]")
            if host not in {"localhost", "127.0.0.1", "::1", settings.host, *settings.hosts}:
                said = f"this page is not served as {host!r}; open it at {settings.host}, or add --host-name {host}"
                return PlainTextResponse(said, 421)
            return None
        expected, cookie = quote(settings.token, safe=""), f"{COOKIE}_{settings.port}"
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), settings.token.encode()):
            rest = request.url.remove_query_params("token").query
            # A path that begins with two slashes would be another host.
            path = quote(f"/{request.url.path.lstrip('/')}", safe="/%")
            answer = RedirectResponse(settings.root + path + (f"?{rest}" if rest else ""), 303)
            is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
            answer.set_cookie(cookie, expected, httponly=True, samesite="lax", secure=is_secure)
            return answer
        if hmac.compare_digest(request.cookies.get(cookie, "").encode(), expected.encode()):
            return None
        return PlainTextResponse("open this page at the address with ?token=... that pyspark-log ui has printed", 401)


def _is_from_another_site(request: Request) -> bool:
    """Return whether a browser says that another site made it send this, unless somebody has followed a link."""
    site = request.headers.get("sec-fetch-site", "none")
    is_link = request.method in {"GET", "HEAD"} and request.headers.get("sec-fetch-mode") == "navigate"
    return site not in {"none", "same-origin"} and not (is_link and request.headers.get("sec-fetch-dest") == "document")


def is_own_form(request: Request, form: Mapping[str, str], secret: str, hosts: tuple[str, ...]) -> bool:
    """Return whether a form is one of this page: it has the secret, and was sent from here."""
    origin = request.headers.get("origin")
    host = "" if origin is None else origin.partition("://")[2]
    is_here = origin is None or host == request.headers.get("host") or host.partition(":")[0] in hosts
    return is_here and hmac.compare_digest(form.get("secret", "").encode(), secret.encode())
