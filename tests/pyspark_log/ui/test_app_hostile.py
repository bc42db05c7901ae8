"""Requests that no browser sends: the page refuses them or shows its defaults, and never fails."""

from __future__ import annotations

import asyncio
import itertools
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import pytest

from pyspark_log.ui import app as app_module
from pyspark_log.ui import rows
from pyspark_log.ui.app import Settings, Ui
from pyspark_log_storage.errors import LogError
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog

NUMBERS = ["-1", "1" + "0" * 30, "9" * 5000, "9223372036854775808", "abc", "²", "1e9", "nan", "0-0.0--5", "x" * 3000]
TIMES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-31", "0"]
PARAMETERS = {
    "/topics": ["q", "sort"],
    "/topics/t": ["page"],
    "/topics/t/rows": ["partition", "offset", "time", "order", "header", "field", "at"],
    "/timeline": ["from", "to", "topic", "group", "lanes"],
    "/groups": ["q"],
}
NAMES = ["%2F", "%00", "..", "%2e%2e", "a%2Fb", "..%2F..%2Fetc%2Fpasswd", "%FF", "%ED%A0%80", "%0d%0aX:1", "x" * 5000]
PLACES = ["/topics/{}", "/topics/{}/rows", "/topics/{}/rows/0/0", "/groups/{}", "/static/{}", "/entries/topic/{}/1"]


@pytest.fixture
def app(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 2)
    log.append("t", {0: [b"a", b"b"], 1: [b"c"]})
    return Ui(Settings(path=str(tmp_path), allow_changes=True)).app()


def answers(app, requests, accept="*/*", body=()):
    """Return status and type of the answer to each request, (method, address); its sender leaves after the body."""

    async def sent(method, address):
        path, _, query = address.partition("?")
        parts = iter([*body, {"type": "http.disconnect"}])
        found = []
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1"), (b"accept", accept.encode())],
            "scheme": "http",
            "server": ("127.0.0.1", 8080),
        }

        async def receive():
            return next(parts, {"type": "http.disconnect"})

        async def send(message):
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"").decode()
                found.append((message["status"], kind.partition(";")[0]))

        await asyncio.wait_for(app(scope, receive, send), 10)
        return found[0]

    async def every():
        return {each: await sent(*each) for each in requests}

    return asyncio.run(every())


def statuses(*args, **given):
    """Return the status of each request."""
    return {each: status for each, (status, _) in answers(*args, **given).items()}


def test_no_parameter_makes_a_page_fail(app):
    addresses = [
        f"{page}?{name}={value}"
        for page, names in PARAMETERS.items()
        for name, value in itertools.product(names, NUMBERS + TIMES)
    ]
    addresses += ["/timeline?from=5&to=1", "/timeline?from=0001-01-01&to=9999-12-31", "/timeline?lanes=x&from=0&to=0"]
    found = statuses(app, [("GET", each) for each in addresses])
    assert {each: status for each, status in found.items() if status != 200} == {}


def test_no_number_in_an_address_makes_a_page_fail(app):
    places = ["/topics/t/rows/0/{}", "/topics/t/rows/{}/0", "/entries/cluster/{}", "/entries/topic/t/{}"]
    found = statuses(app, [("GET", place.format(number)) for place in places for number in NUMBERS[:4]])
    assert set(found.values()) <= {200, 404}, found


def test_no_name_in_an_address_makes_a_page_fail_or_leads_out_of_the_static_files(app):
    found = statuses(app, [("GET", place.format(name)) for place in PLACES for name in NAMES])
    assert set(found.values()) <= {200, 307, 404}, found  # an address that ends with / leads to the one without
    assert {status for (_, each), status in found.items() if each.startswith("/static/")} <= {307, 404}


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_other_methods_are_refused_and_head_ends(app, accept):
    pages = ["/", "/topics/t", "/topics/t/rows", "/timeline"]
    for method, status in {"HEAD": 200, "PUT": 405, "DELETE": 405, "TRACE": 405, "FOO": 405}.items():
        found = statuses(app, [(method, page) for page in pages], accept)
        assert set(found.values()) == {status}, found


def test_a_head_request_for_events_has_the_answer_of_a_page(app):
    for method, kind in {"GET": "text/event-stream", "HEAD": "text/html"}.items():
        assert answers(app, [(method, "/")], "text/event-stream") == {(method, "/"): (200, kind)}


def test_a_form_whose_sender_leaves_in_the_middle_is_refused(app):
    begun = [{"type": "http.request", "body": b"sec", "more_body": True}]
    assert statuses(app, [("POST", "/groups/g/reset")], body=begun) == {("POST", "/groups/g/reset"): 403}


def opened(app, token=None, cookie=b""):
    """Return the status of the first page for a viewer, and the cookie that the page sets."""
    found = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            given = dict(message["headers"]).get(b"set-cookie", b"")
            found.append((message["status"], given.partition(b"; HttpOnly")[0]))

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/topics",
        "query_string": b"" if token is None else urlencode({"token": token}).encode(),
        "headers": [(b"host", b"log.example"), (b"cookie", cookie)],
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
    }
    asyncio.run(app(scope, receive, send))
    return found[0]


@pytest.mark.parametrize("token", ["secret", "a+b", "a&b=c#d", "пароль", 'a;b "c"'])
def test_a_token_may_have_any_characters(tmp_path, token):
    PlainLog(tmp_path)
    app = Ui(Settings(path=str(tmp_path), token=token, host="0.0.0.0")).app()
    assert opened(app)[0] == opened(app, token + "x")[0] == opened(app, cookie=b"pyspark_log_ui=x")[0] == 401
    status, cookie = opened(app, token)
    assert status == 307
    assert opened(app, cookie=cookie)[0] == 200


@pytest.mark.parametrize("token", ["a+b", "a&b=c#d", "пароль"])
def test_the_address_that_is_printed_has_the_token(tmp_path, monkeypatch, token):
    PlainLog(tmp_path)
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: None)
    said = CommandLine(tmp_path).out("ui", "--token", token)
    address = next(word for word in said.split() if word.startswith("http"))
    assert parse_qs(urlsplit(address).query, strict_parsing=True) == {"token": [token]}


def test_rows_that_could_not_be_read_are_shown_as_soon_as_they_can(app, monkeypatch):
    problems = iter([LogError("the disk is away"), LogError("the disk is away"), None])
    events = []
    enough = asyncio.Event()

    def read(*_):
        if (problem := next(problems)) is not None:
            raise problem
        return rows.Found((), [], None, 0, 0)

    async def receive():
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.body":
            events.append(message.get("body", b"").decode())
            if len(events) == 3:
                enough.set()

    monkeypatch.setattr(rows, "read", read)
    monkeypatch.setattr(app_module, "LOOK_SECONDS", 0.01)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/topics/t/rows",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"accept", b"text/event-stream")],
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
    }
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    assert "the disk is away" in events[0]
    assert events[1].startswith(": nothing new")
    assert "No rows." in events[2]


@pytest.mark.parametrize("text", ["8080", ":8080", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:²"])
def test_the_page_needs_a_host_and_a_port(tmp_path, text):
    said = CommandLine(tmp_path / "log").misuse("ui", f"--listen={text}")
    assert f"'{text}' is not HOST:PORT, such as 127.0.0.1:8080" in said
