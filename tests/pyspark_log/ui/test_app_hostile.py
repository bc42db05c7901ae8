"""Requests that no browser sends: the page refuses them or shows its defaults, and never fails."""

from __future__ import annotations

import asyncio
import gzip
import itertools

import msgspec
import pytest

from pyspark_log.browse import rows
from pyspark_log.ui import app as app_module
from pyspark_log.ui import pages
from pyspark_log.ui.app import Ui
from pyspark_log.ui.settings import Settings
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
    "/history": ["from", "to", "topic", "group", "lanes"],
    "/groups": ["q"],
}
FORGED = [f"{page}?{name}=" for page, names in PARAMETERS.items() for name in names]
NAMES = ["%2F", "%00", "..", "%2e%2e", "a%2Fb", "..%2F..%2Fetc%2Fpasswd", "%FF", "%ED%A0%80", "%0d%0aX:1", "x" * 5000]
PLACES = ["/topics/{}", "/topics/{}/rows", "/topics/{}/rows/0/0", "/groups/{}", "/static/0/{}", "/entries/topic/{}/1"]


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 2)
    log.append("t", {0: [b"a", b"b"], 1: [b"c"]})
    return log


@pytest.fixture
def app(log, tmp_path):
    return Ui(Settings(path=str(tmp_path), allow_changes=True)).app()


@pytest.mark.parametrize("parameter", sample(FORGED, 4))
def test_no_parameter_makes_a_page_fail(app, parameter):
    found = {value: ask(app, f"{parameter}{value}").status for value in NUMBERS + TIMES}
    assert set(found.values()) <= {200, 400, 404}, found
    known = {"page", "q", "sort", "lanes"} & {parameter.rpartition("?")[2].rstrip("=")}
    assert not known or set(found.values()) == {200}


def test_no_span_of_time_makes_a_page_fail(app):
    for span in ("from=5&to=1", "from=0001-01-01&to=9999-12-31", "lanes=x&from=0&to=0"):
        assert ask(app, f"/history?{span}").status == 200


def test_no_number_or_name_in_an_address_makes_a_page_fail_or_leads_out_of_the_static_files(app):
    places = ["/topics/t/rows/0/{}", "/topics/t/rows/{}/0", "/entries/cluster/{}", "/entries/topic/t/{}"]
    for place, text in (*itertools.product(places, NUMBERS[:4]), *itertools.product(PLACES, NAMES)):
        status = ask(app, place.format(text)).status
        assert status in {400, 404}, (place, text[:50])


def test_other_methods_are_refused_and_a_head_request_has_the_answer_of_a_page(app):
    for page in ("/", "/topics/t", "/topics/t/rows", "/history"):
        for method, status in {"HEAD": 200, "PUT": 405, "DELETE": 405, "TRACE": 405, "FOO": 405}.items():
            answer = ask(app, page, method=method)
            assert answer.status == status
            assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "address",
    [
        "/no",
        "/topics/u",
        "/topics/u/rows",
        "/groups/u",
        "/topics/t/rows/0/9",
        "/history?topic=u",
        "/entries/cluster/999",
    ],
)
def test_what_does_not_exist_is_not_found_on_a_page_with_navigation_that_names_no_other_topics(app, address):
    answer = ask(app, address)
    assert (answer.status, '<nav aria-label="Pages">' in answer.body) == (404, True)
    assert 'href="/topics/t"' not in answer.body.partition("<main")[2].replace("/topics/t/rows", "")


def moved(app, address, known):
    """Return what an open page that shows the screen `known` is sent."""
    return msgspec.json.decode(ask(app, address, **{app_module.KNOWN: known}).body)


def test_rows_that_could_not_be_read_are_shown_as_soon_as_they_can(app, monkeypatch):
    problems = iter([LogError("the disk is away"), LogError("the disk is away"), None, AssertionError("read again")])

    def read(*_):
        if (problem := next(problems)) is not None:
            raise problem
        return rows.Found((), [], None, 0, 0)

    monkeypatch.setattr(rows, "read", read)
    monkeypatch.setattr("pyspark_log.ui.screens.SHARE", float("inf"))
    first = moved(app, "/topics/t/rows", "")
    assert "the disk is away" in first["html"]
    assert moved(app, "/topics/t/rows", first["screen"])["html"] is None
    found = moved(app, "/topics/t/rows", first["screen"])
    assert "No rows." in found["html"]
    assert moved(app, "/topics/t/rows", found["screen"])["html"] is None


def test_an_open_page_is_sent_its_content_if_that_has_changed_and_little_of_it(app, log, monkeypatch):
    monkeypatch.setattr("pyspark_log.ui.app.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("pyspark_log.ui.app.LOOK_SHARE", float("inf"))
    monkeypatch.setattr("pyspark_log.ui.screens.SHARE", float("inf"))
    log.create("wide", 200)
    log.append("wide", {number: [b"x"] * number for number in range(1, 200)})
    first = moved(app, "/topics/wide", "")
    log.append("wide", {7: [b"x"]})
    packed = {app_module.KNOWN: first["screen"], "accept-encoding": "gzip"}
    answer = ask(app, "/topics/wide", **packed)
    assert int(answer.headers["content-length"]) < 10_000
    found = msgspec.json.decode(gzip.decompress(answer.body.encode("latin-1")))
    assert found["screen"] != first["screen"]
    assert "19,901" in found["html"]


def test_a_page_is_drawn_once_for_all_who_look_at_it(app, monkeypatch):
    drawn = []
    render = pages.render
    monkeypatch.setattr(pages, "render", lambda page, **context: drawn.append(page) or render(page, **context))
    monkeypatch.setattr("pyspark_log.ui.app.LOOK_SECONDS", 60.0)

    async def everybody():
        messages = []

        async def send(message):
            messages.append(message)

        async def receive():
            return {"type": "http.disconnect"}

        await asyncio.gather(*(app(scope_of("/topics/t"), receive, send) for _ in range(100)))
        return [each["status"] for each in messages if each["type"] == "http.response.start"]

    assert asyncio.run(everybody()) == [200] * 100
    assert drawn == ["topic"]


def test_marks_that_turn_text_round_are_written_out(app, log):
    log.append("t", {0: ["a\u202egpj.exe".encode()]})
    body = ask(app, "/topics/t/rows").body.encode("latin-1").decode()
    assert ("\u202e" in body, "a\\u202egpj.exe" in body) == (False, True)


def test_a_search_has_a_queue_of_its_own_which_ends(app, monkeypatch):
    monkeypatch.setattr(app_module, "SEARCHES_MAX", 0)
    assert ask(app, "/topics/t/rows?value_has=x").status == 503
    assert ask(app, "/topics/t/rows").status == 200
