"""Who may see and change what: hosts, tokens, forms of other sites, and what is masked."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from pyspark_log.ui import app as app_module
from pyspark_log.ui.app import Settings, Ui
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.group.offsets import Offset
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, record
from tests.support.pyspark_log import page_requests

SECRET = "s3cret"
FORM = {"topic": "t", "offsets": "0-1"}


def ask(ui, address, **given):
    return page_requests.ask(ui.app(), address, **given)


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t")
    secret = SECRET.encode()
    headers = [[{"key": "h", "value": secret}]] * 3
    log.append_rows("t", Rows(record([secret] * 3, [secret] * 3, None, headers), None, None))
    set_offset(log, 3)
    return log


def set_offset(log, offset):
    log.log.group("g", create=True).reset_offsets({log.log.topic("t").topic_id: {0: Offset(offset, 0)}})


def offset_of_the_group(log):
    return log.log.group("g", polls=True).state.offsets[log.log.topic("t").topic_id][0].offset


def ui_of(log, **given):
    return Ui(Settings(path=log.path, **given))


def form_of(ui, **changed):
    return urlencode(FORM | {"secret": ui.secret} | changed).encode()


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


def test_a_form_of_this_page_shows_what_would_change_and_then_changes_that(log):
    ui = ui_of(log, allow_changes=True)
    for value, said in (("-2", "Nothing has been changed yet."), ("<b>x", "is not a number of rows")):
        form = {"topic": "t", "to": "shift", "value": value, "secret": ui.secret}
        planned = ask(ui, "/groups/g/reset", form=urlencode(form).encode())
        assert (planned.status, said in planned.body, "<b>" in planned.body) == (200, True, False)
        assert offset_of_the_group(log) == 3
    for headers in ({}, {"origin": "http://127.0.0.1:8080"}):
        assert ask(ui, "/groups/g/reset", form=form_of(ui), **headers).status == 200
        assert offset_of_the_group(log) == 1
        set_offset(log, 3)


@pytest.mark.parametrize(
    ("changed", "headers"),
    [
        *(({}, {"origin": each}) for each in ("http://elsewhere.example", "null", "http://127.0.0.1:8081", "")),
        *(({"secret": each}, {}) for each in ("", "wrong", "\x00", "ä")),
    ],
)
def test_a_form_of_another_site_or_without_the_secret_of_the_page_changes_nothing(log, changed, headers):
    ui = ui_of(log, allow_changes=True)
    assert ask(ui, "/groups/g/reset", form=form_of(ui, **changed), **headers).status == 403
    assert offset_of_the_group(log) == 3


def test_nothing_is_changed_unless_changes_are_allowed_or_by_a_form_that_is_too_large_or_cut(log, monkeypatch):
    ui = ui_of(log)
    answer = ask(ui, "/groups/g/reset", form=form_of(ui))
    assert (answer.status, "--allow-changes" in answer.body) == (403, True)
    monkeypatch.setattr(app_module, "FORM_BYTES_MAX", 1000)
    ui = ui_of(log, allow_changes=True)
    assert ask(ui, "/groups/g/reset", form=[form_of(ui), b"&x=" + b"y" * 1000]).status == 403
    assert ask(ui, "/groups/g/reset", form=b"sec", leaves=True).status == 403
    assert offset_of_the_group(log) == 3


@pytest.mark.parametrize("token", ["secret", "a+b", "a&b=c#d", "пароль", 'a;b "c"'])
def test_a_token_becomes_a_cookie_that_only_this_page_gets_and_leaves_the_address(log, token):
    ui = ui_of(log, token=token, host="0.0.0.0")
    for wrong in ("/", "/topics/t/rows", "/static/style.css", "/topics?token=wrong"):
        assert ask(ui, wrong).status == 401, wrong
    assert ask(ui, "/topics", cookie="pyspark_log_ui=x").status == 401
    answer = ask(ui, f"/topics?q=a&{urlencode({'token': token})}")
    assert (answer.status, answer.headers["location"]) == (307, "/topics?q=a")
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict"} <= set(attributes)
    assert ask(ui, "/topics", cookie=cookie, host="log.example").status == 200


def test_the_address_that_is_printed_has_the_token(log, monkeypatch):
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: None)
    said = CommandLine(log.path).out("ui", "--token", "a&b=c#d")
    address = next(word for word in said.split() if word.startswith("http"))
    assert parse_qs(urlsplit(address).query, strict_parsing=True) == {"token": ["a&b=c#d"]}
    for text in ("8080", ":8080", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:²"):
        assert f"'{text}' is not HOST:PORT" in CommandLine(log.path).misuse("ui", f"--listen={text}")


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
def test_what_is_masked_is_on_no_page_and_in_no_file_and_filters_neither(log, address):
    mask = ("key", "value", "header:h")
    for ui, has_secret in ((ui_of(log), True), (ui_of(log, mask=mask), False)):
        answer = ask(ui, address)
        assert (answer.status, SECRET in answer.body) == (200, has_secret)
    if not address.endswith("0/0"):
        answer = ask(ui, f"{address}?value_has=x")
        assert answer.status == (400 if "download" in address else 200)
        assert "rows cannot be filtered by value_has: this page masks " in answer.body


def test_hostile_names_and_contents_are_text(log):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>{{ 7*7 }}"
    log.append_rows("t", Rows(record([hostile.encode()], [hostile.encode()]), None, None))
    log.log.group(hostile, create=True)
    for address in ("/topics/t/rows", "/topics/t/rows/0/3", "/groups", "/timeline"):
        body = ask(ui_of(log), address).body
        assert "&lt;script&gt;alert(1)" in body, address
        assert "<script>alert" not in body
        assert "<img" not in body
