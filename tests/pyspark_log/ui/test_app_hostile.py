"""Requests that no browser sends: the page refuses them or shows its defaults, and never fails."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pyspark_log.ui import app as app_module
from pyspark_log.ui import rows
from pyspark_log.ui.app import Settings, Ui
from pyspark_log_storage.errors import LogError
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.page_requests import ask, scope_of
from tests.support.rings import sample

NUMBERS = ["-1", "1" + "0" * 30, "9" * 5000, "9223372036854775808", "abc", "²", "1e9", "nan", "0-0.0--5", "x" * 3000]
TIMES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-31", "0"]
PARAMETERS = {
    "/topics": ["q", "sort"],
    "/topics/t": ["page"],
    "/topics/t/rows": ["partition", "offset", "time", "order", "header", "field", "at"],
    "/timeline": ["from", "to", "topic", "group", "lanes"],
    "/groups": ["q"],
}
FORGED = [f"{page}?{name}=" for page, names in PARAMETERS.items() for name in names]
NAMES = ["%2F", "%00", "..", "%2e%2e", "a%2Fb", "..%2F..%2Fetc%2Fpasswd", "%FF", "%ED%A0%80", "%0d%0aX:1", "x" * 5000]
PLACES = ["/topics/{}", "/topics/{}/rows", "/topics/{}/rows/0/0", "/groups/{}", "/static/{}", "/entries/topic/{}/1"]


@pytest.fixture
def app(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 2)
    log.append("t", {0: [b"a", b"b"], 1: [b"c"]})
    return Ui(Settings(path=str(tmp_path), allow_changes=True)).app()


@pytest.mark.parametrize("parameter", sample(FORGED, 4))
def test_no_parameter_makes_a_page_fail(app, parameter):
    found = {value: ask(app, f"{parameter}{value}").status for value in NUMBERS + TIMES}
    assert set(found.values()) == {200}, found


def test_no_span_of_time_makes_a_page_fail(app):
    for span in ("from=5&to=1", "from=0001-01-01&to=9999-12-31", "lanes=x&from=0&to=0"):
        assert ask(app, f"/timeline?{span}").status == 200


def test_no_number_or_name_in_an_address_makes_a_page_fail_or_leads_out_of_the_static_files(app):
    places = ["/topics/t/rows/0/{}", "/topics/t/rows/{}/0", "/entries/cluster/{}", "/entries/topic/t/{}"]
    for place, text in (*itertools.product(places, NUMBERS[:4]), *itertools.product(PLACES, NAMES)):
        status = ask(app, place.format(text)).status
        # An address that ends with / leads to the one without.
        assert status in ({307, 404} if place.startswith("/static") else {200, 307, 404}), (place, text[:50])


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_other_methods_are_refused_and_a_head_request_has_the_answer_of_a_page(app, accept):
    for page in ("/", "/topics/t", "/topics/t/rows", "/timeline"):
        for method, status in {"HEAD": 200, "PUT": 405, "DELETE": 405, "TRACE": 405, "FOO": 405}.items():
            answer = ask(app, page, method=method, accept=accept)
            assert answer.status == status
            assert status != 200 or answer.headers["content-type"].startswith("text/html")
    assert ask(app, "/", accept="text/event-stream").headers["content-type"].startswith("text/event-stream")


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
    scope = scope_of("/topics/t/rows", accept="text/event-stream")
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    assert "the disk is away" in events[0]
    assert events[1].startswith(": nothing new")
    assert "No rows." in events[2]
