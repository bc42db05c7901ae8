"""The server of the page: routes, what is sent of a page that moves, and changes.

A page is drawn once for all viewers (`screens`), in a thread of its kind, so that a slow one holds up no other. An open
page asks again twice a second while it is visible, and gets its new content if it has changed. Who may see and change
what is in `guard`.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec

from pyspark_log.browse import filters
from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.opening import open_log, own_log
from pyspark_log.ui import content, pages, reset
from pyspark_log.ui.guard import Guard, is_own_form
from pyspark_log.ui.screens import Screen, Screens
from pyspark_log_storage.errors import InvalidInput, LogError

try:
    from starlette.applications import Starlette
    from starlette.convertors import IntegerConvertor, register_url_convertor
    from starlette.exceptions import HTTPException
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Route
except ImportError as missing:
    raise InvalidInput(
        f"the page needs Starlette and uvicorn, and one cannot be imported ({missing}); pip install starlette uvicorn"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from pyspark_log.browse.view import ClusterView
    from pyspark_log.ui.content import Content
    from pyspark_log.ui.settings import Settings
    from pyspark_log_coordinator.log.log import Log

    Endpoint = Callable[[Request], Awaitable[Response]]

T = TypeVar("T")
LOOK_SECONDS = 0.5
"""How often the cluster is looked at while somebody has a page open; less often if a look takes long."""
LOOK_SHARE = 0.08
"""The part of the time that looks may take."""
PATIENCE_SECONDS = 2.0
"""A request waits so long for a look that is under way. Then it shows what was seen before, and says how old it is."""
OVERVIEW_SECONDS = 0.2
"""A page that is about the present waits so long for the past, of which it shows what is known."""
SHOWN_SECONDS = 5.0
"""A topic or group is somebody's open page for so long after a request for it."""
SEARCHES_MAX = 8
"""So many viewers may wait for searches among rows, which take turns."""
FORM_BYTES_MAX = 2**20
KNOWN = "x-pyspark-log-known"
"""The header in which an open page says what it shows."""
_DOWNLOADS = {"jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class _Number(IntegerConvertor):
    """A whole number in an address. What has more digits than an int64 names nothing that exists."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", _Number())


class Live:
    """The view that all viewers share: one look at a time, while there are viewers."""

    def __init__(self, settings: Settings) -> None:
        # The view's budget is that of all: requests are counted for the process, whoever makes them.
        self.watch = Watch(own_log(settings.path, settings.options), settings.path)
        self._thread = ThreadPoolExecutor(1, "pyspark-log-ui")
        self._due = -float("inf")
        self._looking: asyncio.Future[None] | None = None
        self._wanted: dict[str, float] = {}

    async def view(self, *wanted: str) -> ClusterView:
        """Return the newest view. `wanted` are topics and groups that the caller shows."""
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        self._wanted |= dict.fromkeys(wanted, now)
        if (self._looking is None or self._looking.done()) and now >= self._due:
            self._wanted = {name: at for name, at in self._wanted.items() if at > now - SHOWN_SECONDS}
            self._looking = loop.run_in_executor(self._thread, self._look, list(self._wanted))
        await _waited(self._looking, PATIENCE_SECONDS)
        return self.watch.view

    def _look(self, wanted: list[str]) -> None:
        begun = time.thread_time()
        self.watch.look(wanted)
        self._due = time.monotonic() + max(LOOK_SECONDS, (time.thread_time() - begun) / LOOK_SHARE)


class Ui:
    """The pages of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.live = Live(settings)
        self.secret = secrets.token_urlsafe(24)
        """What the forms of the pages have, and no other site knows."""
        self._screens = Screens()
        self._plans = reset.Plans()
        names = {"views": 1, "rows": 2, "filters": 1, "past": 1}
        self._threads = {name: ThreadPoolExecutor(many, f"pyspark-log-ui-{name}") for name, many in names.items()}
        self._searches = 0
        self._past = Past(own_log(settings.path, settings.options), self.live.watch.budget)
        self._reading: asyncio.Future[ClusterView] | None = None

    def app(self) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/", self._page("overview", content.overview, OVERVIEW_SECONDS)),
            Route("/nodes", self._page("nodes", content.nodes)),
            Route("/topics", self._page("topics", content.topics)),
            Route("/topics/{topic}", self._page("topic", content.topic)),
            Route("/groups", self._page("groups", content.groups)),
            Route("/queries", self._page("queries", content.queries, PATIENCE_SECONDS)),
            # A group's name may have a slash in it, a topic's may not.
            Route("/groups/{group:path}/reset", self._reset, methods=["GET", "POST"]),
            Route("/groups/{group:path}", self._page("group", content.group, OVERVIEW_SECONDS)),
            Route("/history", self._page("history", content.history, PATIENCE_SECONDS)),
            Route("/entries/cluster/{number:number}", self._entry("cluster")),
            Route("/entries/topic/{name}/{number:number}", self._entry("topic")),
            Route("/entries/group/{name:path}/{number:number}", self._entry("group")),
            Route("/static/{version}/{name}", _static),
        ]
        if self.settings.shows_rows:
            routes += [
                Route("/topics/{topic}/rows", self._rows),
                Route("/topics/{topic}/rows/{partition:number}/{offset:number}", self._row),
                Route("/topics/{topic}/download.{form}", self._download),
            ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_page})
        app.router.redirect_slashes = False
        return Guard(GZipMiddleware(app, minimum_size=1000, compresslevel=5), self.settings)

    def _page(self, name: str, content_of: Content, patience: float | None = None) -> Endpoint:
        """Return the endpoint of a page that shows the view, and with `patience` (seconds) the past too."""

        async def endpoint(request: Request) -> Response:
            parameters = {**request.query_params, **request.path_params}
            view = await self.live.view(*(parameters[each] for each in ("topic", "group") if parameters.get(each)))
            if patience is not None:
                await self._read_past(view, parameters, patience)
            view = self._past.shown(view)
            mark = view.at_ms, view.status, id(view.past)
            return await self._moving(request, name, view, "views", mark, lambda: content_of(view, parameters))

        return endpoint

    async def _read_past(self, view: ClusterView, parameters: Mapping[str, str], patience: float) -> None:
        """Let the past be read on. Wait a while for it."""
        if self._reading is None or self._reading.done():
            asked = parameters.get("topic", ""), parameters.get("group", "")
            read = functools.partial(self._past.read, view, *asked, waits=patience > OVERVIEW_SECONDS)
            self._reading = asyncio.get_running_loop().run_in_executor(self._threads["past"], read)
        await _waited(self._reading, patience)

    async def _moving(
        self,
        request: Request,
        name: str,
        view: ClusterView,
        thread: str,
        mark: Hashable,
        context_of: Callable[[], dict[str, Any]],
    ) -> Response:
        """Return the document of a page, or for an open page its new content if it shows another screen."""
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        screen = await self._screens.get(
            address, mark, lambda: self._in_thread(thread, lambda: self._drawn(name, view, context_of))
        )
        known = request.headers.get(KNOWN)
        if known is None:
            return HTMLResponse(pages.document_of(name, screen, view, root=self.settings.root), screen.status)
        html = None if known == screen.name else screen.html
        answer = {"screen": screen.name, "html": html, "status": pages.status_of(view, screen)}
        return Response(msgspec.json.encode(answer), media_type="application/json")

    def _drawn(self, name: str, view: ClusterView, context_of: Callable[[], Mapping[str, Any]]) -> Screen:
        """Draw a page."""
        begun = time.thread_time()
        context = context_of()
        html = pages.render(name, settings=self.settings, secret=self.secret, view=view, **context)
        return Screen(
            pages.below(self.settings.root, html),
            context["title"],
            context.get("status", 200),
            as_of=view.oldest_ms,
            seconds=time.thread_time() - begun,
            is_final=not context.get("problem"),
        )

    async def _still(self, name: str, context: Mapping[str, Any]) -> Response:
        """Return the document of a page that does not move."""
        view = await self.live.view()
        screen = self._drawn(name, view, lambda: context)
        document = pages.document_of(name, screen, view, root=self.settings.root, moves=False)
        return HTMLResponse(document, screen.status)

    async def _error(self, status: int, words: str) -> Response:
        return await self._still("error", {"title": words, "problem": words, "status": status})

    async def _once(self, name: str, thread: str, act: Callable[[], dict[str, Any]]) -> Response:
        """Return the document of a page that does not move and is read by `act`, or why there is none."""
        try:
            context = await self._in_thread(thread, act)
        except LogError as error:
            return await self._error(*content.failure(error))
        return await self._still("error" if context.get("problem") else name, context)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        """Return a page that says why there is no other."""
        assert isinstance(error, HTTPException)
        words = "There is no such page." if error.status_code == HTTPStatus.NOT_FOUND else f"{error.detail}."
        answer = await self._error(error.status_code, words)
        answer.headers.update(error.headers or {})
        return answer

    async def _rows(self, request: Request) -> Response:
        """Return a page of rows. It moves while it shows the newest, which are read again if there may be new ones."""
        parameters = {**request.query_params, **request.path_params}
        view = await self.live.view(parameters["topic"])
        topic = view.topics.get(parameters["topic"])
        mark = (topic.version, topic.problem) if topic is not None else None, view.problem
        is_search = filters.is_filtered(parameters)
        if is_search and self._searches >= SEARCHES_MAX:
            return await self._error(503, "Too many others search among rows now; try again.")
        self._searches += is_search
        try:
            return await self._moving(
                request,
                "rows",
                view,
                "filters" if is_search else "rows",
                mark,
                lambda: content.rows(self._open, parameters, self.settings.mask),
            )
        finally:
            self._searches -= is_search

    async def _download(self, request: Request) -> Response:
        """Return the rows of a page as a file."""
        parameters = {**request.query_params, **request.path_params}
        if parameters["form"] not in _DOWNLOADS:
            return await self._error(404, "Rows are downloaded as .jsonl or .parquet.")
        try:
            file = await self._in_thread(
                "filters", lambda: content.download(self._open(), parameters, self.settings.mask)
            )
        except LogError as error:
            return await self._error(*content.failure(error))
        name = quote(f"{parameters['topic']}.{parameters['form']}")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(file, media_type=_DOWNLOADS[parameters["form"]], headers=headers)

    async def _row(self, request: Request) -> Response:
        """Return a page with one row."""
        return await self._once(
            "row", "rows", lambda: content.row(self._open(), request.path_params, self.settings.mask)
        )

    def _entry(self, scope: str) -> Endpoint:
        """Return the endpoint of the pages of entries."""

        async def endpoint(request: Request) -> Response:
            return await self._once("entry", "past", lambda: content.entry(self._past, scope, **request.path_params))

        return endpoint

    async def _reset(self, request: Request) -> Response:
        """Show what a reset of a group's offsets would change, carry out what was shown, or show what was done."""
        group = request.path_params["group"]
        page = f"{self.settings.root}/groups/{quote(group, safe='')}"
        context = {"title": f"Reset {group}", "name": group, "nonce": ""}
        if request.method != "POST":
            done = self._plans.find(request.query_params.get("done", ""), group, is_done=True)
            return RedirectResponse(page, 303) if done is None else await self._still("reset", context | {"plan": done})
        form = await _form(request)
        if not self.settings.allow_changes:
            return await self._error(403, "This page changes nothing; start it with --allow-changes.")
        if not is_own_form(request, form, self.secret, self.settings.hosts):
            return await self._error(403, "This form is not from this page, or older than it; open the page again.")
        if "plan" not in form:

            def plan() -> dict[str, Any]:
                planned = reset.planned(self._open(), group, form)
                return context | {"plan": planned, "nonce": self._plans.add(planned)}

            return await self._once("reset", "rows", plan)
        try:
            taken = self._plans.take(form["plan"], group)
            done = await self._in_thread("rows", lambda: reset.carry_out(self._open(), taken))
        except LogError as error:
            return await self._error(*content.failure(error))
        return RedirectResponse(f"{page}/reset?done={self._plans.add(done)}", 303)

    async def _in_thread(self, thread: str, act: Callable[[], T]) -> T:
        """Return what a function returns in a thread of a kind: a slow read does not stop the looks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], act)

    def _open(self) -> Log:
        """Return the log of this thread."""
        return open_log(self.settings.path, self.settings.options)


async def _waited(doing: asyncio.Future[Any] | None, seconds: float) -> None:
    """Wait a while for what is being done, if anything."""
    if doing is not None and not doing.done():
        await asyncio.wait({doing}, timeout=seconds)


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


async def _static(request: Request) -> Response:
    """Return a file that is served as it is. Its address has a version, so a browser may keep it."""
    name = request.path_params["name"]
    try:
        found = pages.static(name)
    except KeyError:
        raise HTTPException(404) from None
    kind = next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), "text/plain; charset=utf-8")
    is_newest = request.path_params["version"] == pages.version()
    age = "max-age=31536000, immutable" if is_newest else "no-store"
    return Response(found, media_type=kind, headers={"cache-control": age})
