"""Who may see and change what: hosts, tokens, forms of other sites, and what is masked."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from pyspark_log.ui import app as app_module
from pyspark_log.ui.app import Settings, Ui
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.group.offsets import Offset
from tests.support.plain_log import PlainLog, record

SECRET = "s3cret"
FORM = {"topic": "t", "offsets": "0-1"}


class Answer(NamedTuple):
    """An answer, with the last of each header."""

    status: int
    headers: dict[str, str]
    body: str


def ask(ui, address, *, form=None, host="127.0.0.1:8080", **headers):
    """Return the answer to a request; with a form, or with the parts of one, it is a POST."""
    path, _, query = address.partition("?")
    parts = [form] if isinstance(form, bytes) else form or [b""]
    messages = iter([{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts])
    found, body = [], bytearray()
    scope = {
        "type": "http",
        "method": "GET" if form is None else "POST",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in {"host": host, **headers}.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
    }

    async def receive():
        return next(messages, {"type": "http.disconnect"})

    async def send(message):
        if message["type"] == "http.response.start":
            found.append((message["status"], {name.decode(): text.decode() for name, text in message["headers"]}))
        body.extend(message.get("body", b""))

    asyncio.run(asyncio.wait_for(ui.app()(scope, receive, send), 10))
    return Answer(*found[0], body.decode("latin-1"))


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t")
    secret = SECRET.encode()
    log.append_rows(
        "t", Rows(record([secret] * 3, [secret] * 3, None, [[{"key": "h", "value": secret}]] * 3), None, None)
    )
    log.log.group("g", create=True).reset_offsets({log.log.topic("t").topic_id: {0: Offset(3, 0)}})
    return log


def ui_of(log, **given):
    return Ui(Settings(path=log.path, **given))


def offset_of_the_group(log):
    return log.log.group("g", polls=True).state.offsets[log.log.topic("t").topic_id][0].offset


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("[::1]:8080", 200),
        ("10.0.0.1:8080", 200),
        ("rebound.example:8080", 421),
        ("127.0.0.1.rebound.example", 421),
    ],
)
def test_a_page_without_a_token_is_served_only_as_the_host_that_it_listens_on(log, host, status):
    answer = ask(ui_of(log, host="10.0.0.1"), "/", host=host)
    assert answer.status == status
    assert (log.log.cluster_id in answer.body) == (status == 200)


def test_a_form_of_this_page_changes_what_was_shown(log):
    ui = ui_of(log, allow_changes=True)
    for headers in ({}, {"origin": "http://127.0.0.1:8080"}):
        assert ask(ui, "/groups/g/reset", form=form_of(ui), **headers).status == 200
        assert offset_of_the_group(log) == 1
        log.log.group("g").reset_offsets({log.log.topic("t").topic_id: {0: Offset(3, 0)}})


def form_of(ui, **changed):
    return urlencode(FORM | {"secret": ui.secret} | changed).encode()


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://127.0.0.1:8081", ""])
def test_a_form_of_another_site_changes_nothing(log, origin):
    ui = ui_of(log, allow_changes=True)
    assert ask(ui, "/groups/g/reset", form=form_of(ui), origin=origin).status == 403
    assert offset_of_the_group(log) == 3


@pytest.mark.parametrize("secret", ["", "wrong", "\x00", "ä"])
def test_a_form_without_the_secret_of_the_page_changes_nothing(log, secret):
    ui = ui_of(log, allow_changes=True)
    assert ask(ui, "/groups/g/reset", form=form_of(ui, secret=secret)).status == 403
    assert offset_of_the_group(log) == 3


def test_nothing_is_changed_unless_changes_are_allowed(log):
    ui = ui_of(log)
    answer = ask(ui, "/groups/g/reset", form=form_of(ui))
    assert (answer.status, "--allow-changes" in answer.body) == (403, True)
    assert offset_of_the_group(log) == 3


def test_of_a_form_that_is_too_large_no_more_is_read(log, monkeypatch):
    monkeypatch.setattr(app_module, "FORM_BYTES_MAX", 1000)
    ui = ui_of(log, allow_changes=True)
    assert ask(ui, "/groups/g/reset", form=[form_of(ui), b"&x=" + b"y" * 1000]).status == 403
    assert offset_of_the_group(log) == 3


def test_a_token_becomes_a_cookie_that_only_this_page_gets_and_leaves_the_address(log):
    answer = ask(ui_of(log, token=SECRET, host="0.0.0.0"), f"/topics?q=a&token={SECRET}")
    assert (answer.status, answer.headers["location"]) == (307, "/topics?q=a")
    _, *attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict"} <= set(attributes)


@pytest.mark.parametrize(
    "address", ["/", "/topics/t/rows", "/topics/t/rows/0/0", "/topics/t/download.jsonl", "/static/style.css"]
)
def test_a_browser_runs_no_script_of_a_rows_wherever_one_is_shown(log, address):
    headers = ask(ui_of(log), address).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert ("attachment" in headers.get("content-disposition", "")) == ("download" in address)


@pytest.mark.parametrize(
    "address", ["/topics/t/rows", "/topics/t/rows/0/0", "/topics/t/download.jsonl", "/topics/t/download.parquet"]
)
def test_what_is_masked_is_on_no_page_and_in_no_file(log, address):
    mask = ("key", "value", "header:h")
    for ui, has_secret in ((ui_of(log), True), (ui_of(log, mask=mask), False)):
        answer = ask(ui, address)
        assert (answer.status, SECRET in answer.body) == (200, has_secret)


@pytest.mark.parametrize(("page", "status"), [("rows", 200), ("download.jsonl", 400)])
def test_neither_a_page_nor_a_file_is_filtered_by_what_is_masked(log, page, status):
    answer = ask(ui_of(log, mask=("value",)), f"/topics/t/{page}?value_has=x")
    assert answer.status == status
    assert "rows cannot be filtered by value_has: this page masks value" in answer.body
