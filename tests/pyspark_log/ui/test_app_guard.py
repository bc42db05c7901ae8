"""Who may see and change what: hosts, tokens, forms of other sites, and what is masked."""

from __future__ import annotations

import re
import socket
from urllib.parse import parse_qs, urlencode, urlsplit

import pyarrow as pa
import pytest

from pyspark_log.ui import app as app_module
from pyspark_log.ui.app import Ui
from pyspark_log.ui.settings import Settings
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.group.offsets import Offset
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, record
from tests.support.pyspark_log import page_requests

SECRET = "s3cret"
FORM = {"topic": "t", "to": "offset", "value": "1"}


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


def planned(ui, **changed):
    """Return the form of the page that shows what would change."""
    body = ask(ui, "/groups/g/reset", form=form_of(ui, **changed)).body
    return {"secret": ui.secret, "plan": re.search('name="plan" value="([^"]*)"', body)[1]}


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
    shown = (("-2", 200, "It would read 2 rows again."), ("<b>x", 400, "is not a number of rows"))
    for value, status, said in shown:
        answer = ask(ui, "/groups/g/reset", form=form_of(ui, to="shift", value=value))
        assert (answer.status, said in answer.body, "<b>x" in answer.body) == (status, True, False)
        assert offset_of_the_group(log) == 3
    for headers in ({}, {"origin": "http://127.0.0.1:8080"}):
        answer = ask(ui, "/groups/g/reset", form=urlencode(planned(ui)).encode(), **headers)
        assert offset_of_the_group(log) == 1
        done = ask(ui, answer.headers["location"])
        assert (answer.status, done.status, "as they are committed now" in done.body) == (303, 200, True)
        set_offset(log, 3)


def test_a_reset_that_is_sent_again_changes_nothing_more_and_its_address_shows_the_group(log):
    ui = ui_of(log, allow_changes=True)
    form = urlencode(planned(ui)).encode()
    assert ask(ui, "/groups/g/reset", form=form).status == 303
    set_offset(log, 2)
    again = ask(ui, "/groups/g/reset", form=form)
    assert (again.status, "carried out before" in again.body, offset_of_the_group(log)) == (400, True, 2)
    assert ask(ui, "/groups/g/reset").headers["location"] == "/groups/g"


def test_a_reset_is_refused_if_the_group_has_moved_since_it_was_shown(log):
    ui = ui_of(log, allow_changes=True)
    form = urlencode(planned(ui)).encode()
    set_offset(log, 2)
    answer = ask(ui, "/groups/g/reset", form=form)
    assert (answer.status, "was at 3 and is at 2" in answer.body, offset_of_the_group(log)) == (400, True, 2)


def test_only_the_partitions_that_are_chosen_are_reset(log):
    ui = ui_of(log, allow_changes=True)
    log.create("wide", 5)
    answer = ask(ui, "/groups/g/reset", form=form_of(ui, topic="wide", partitions="0-1, 4", to="earliest"))
    assert re.findall('scope="row" class="n">([0-9]+)<', answer.body) == ["0", "1", "4"]
    for wrong in ("5", "3-1", "x", "-1"):
        answer = ask(ui, "/groups/g/reset", form=form_of(ui, topic="wide", partitions=wrong, to="earliest"))
        assert (answer.status, "is no partition of the topic" in answer.body) == (400, True)


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
    for wrong in ("/", "/topics/t/rows", "/static/0/style.css", "/topics?token=wrong"):
        assert ask(ui, wrong).status == 401, wrong
    assert ask(ui, "/topics", cookie="pyspark_log_ui_8080=x").status == 401
    answer = ask(ui, f"/topics?q=a&{urlencode({'token': token})}")
    assert (answer.status, answer.headers["location"]) == (303, "/topics?q=a")
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=lax"} <= set(attributes)
    assert cookie.startswith("pyspark_log_ui_8080=")
    assert ask(ui, "/topics", cookie=cookie, host="log.example").status == 200


def test_the_address_that_is_printed_has_the_token(log, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    said = CommandLine(log.path).out("ui", "--token", "a&b=c#d", "--listen", "127.0.0.1:0")
    address = next(word for word in said.split() if word.startswith("http"))
    assert parse_qs(urlsplit(address).query, strict_parsing=True) == {"token": ["a&b=c#d"]}
    for listen, has_token in (("127.0.0.1:0", False), ("localhost:0", False), ("0.0.0.0:0", True)):
        assert ("/?token=" in CommandLine(log.path).out("ui", "--listen", listen)) == has_token, listen
    for text in ("8080", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:²"):
        assert f"'{text}' is not HOST:PORT" in CommandLine(log.path).misuse("ui", f"--listen={text}")


def test_an_address_is_printed_only_if_it_is_listened_on(log, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        said = CommandLine(log.path).misuse("ui", "--listen", listen)
    assert ("cannot be listened on" in said, "serving" in said) == (True, False)


@pytest.mark.parametrize("path", ["//evil.example/", "/%2F/evil.example/x", "/\\\\evil.example", "///evil.example"])
def test_a_token_in_an_address_leads_to_no_other_host(log, path):
    answer = ask(ui_of(log, token="x", host="0.0.0.0"), f"{path}?token=x")
    assert re.match(r"/(?![/\\])", answer.headers["location"])


SITES = {"site": "cross-site", "mode": "no-cors", "dest": "image"}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 403),
        ({"site": "same-site"}, 403),
        ({"site": "same-origin"}, 200),
        ({"site": "none"}, 200),
        ({"mode": "navigate", "dest": "document"}, 200),
        ({"mode": "navigate", "dest": "iframe"}, 403),
    ],
)
def test_what_another_site_makes_a_browser_ask_for_is_refused_unless_somebody_has_followed_a_link(log, changed, status):
    headers = {f"sec-fetch-{name}": text for name, text in (SITES | changed).items()}
    assert ask(ui_of(log), "/topics", **headers).status == status


def test_a_proxy_serves_the_page_under_another_name_and_below_a_path(log):
    ui = ui_of(log, hosts=("log.example",), root="/log", allow_changes=True)
    answer = ask(ui, "/topics", host="log.example")
    assert (answer.status, "/log/log" in answer.body) == (200, False)
    found = re.findall('(?:href|src|action)="([^"#d][^"]*)"', answer.body)
    assert {each.partition("/")[0] + each[:5] for each in found if not each.startswith("?")} == {"/log/"}
    change = ask(ui, "/topics", host="log.example", **{app_module.KNOWN: ""}).body
    assert ("/log/topics/t" in change, '\\"/topics/t' in change, "/log/log" in change) == (True, False, False)
    form = urlencode(planned(ui)).encode()
    done = ask(ui, "/groups/g/reset", form=form, host="log.example", origin="https://log.example")
    assert (done.status, done.headers["location"].startswith("/log/groups/g/reset?done=")) == (303, True)


def test_without_rows_nothing_of_a_row_is_shown(log):
    ui = ui_of(log, shows_rows=False)
    for address in ("/topics/t/rows", "/topics/t/rows/0/0", "/topics/t/download.jsonl"):
        answer = ask(ui, address)
        assert (answer.status, SECRET in answer.body) == (404, False)
    assert '/rows"' not in ask(ui, "/topics/t").body


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ("vaule", "it is no column of any topic"),
        ("nobody:value", "topic 'nobody' does not exist"),
        ("t:user", "it is no column of topic 't'"),
        ("typed:value", "it is no column of topic 'typed'"),
        ("user.snn", "it is no column of any topic"),
        *(
            (each, "")
            for each in ("value", "t:key", "value.a.b", "header:x", "user.ssn", "typed:USER", "list.a", "map.any")
        ),
    ],
)
def test_a_mask_that_masks_nothing_is_refused(log, monkeypatch, mask, problem):
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    person = pa.struct([("ssn", pa.string())])
    columns = {
        "user": person,
        "list": pa.list_(pa.field("element", pa.struct([("a", pa.int64())]))),
        "map": pa.map_(pa.string(), pa.string()),
    }
    log.log.create_topic("typed", 1, columns=pa.schema(list(columns.items())))
    options = ("ui", "--listen", "127.0.0.1:0", "--mask", mask)
    if problem:
        assert problem in CommandLine(log.path).error(*options)
    else:
        assert "serving" in CommandLine(log.path).out(*options)


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/topics/t/rows",
        "/topics/t/rows/0/0",
        "/topics/t/download.jsonl",
        "/static/0/style.css",
        "/no",
        "/?token=x",
    ],
)
def test_a_browser_runs_no_script_of_a_rows_wherever_one_is_shown(log, address):
    headers = ask(ui_of(log), address).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert ("attachment" in headers.get("content-disposition", "")) == ("download" in address)


@pytest.mark.parametrize(
    "address", ["/topics/t/rows", "/topics/t/rows/0/0", "/topics/t/download.jsonl", "/topics/t/download.parquet"]
)
def test_what_is_masked_is_on_no_page_and_in_no_file_however_it_is_spelt_and_filters_neither(log, address):
    for mask in ((), ("key", "value", "header:h"), ("Key", "VALUE", "headers")):
        ui = ui_of(log, mask=mask)
        answer = ask(ui, address)
        assert (answer.status, SECRET in answer.body) == (200, not mask)
    if not address.endswith("0/0"):
        answer = ask(ui, f"{address}?value_has=x")
        assert answer.status == 400
        assert "rows cannot be filtered by value_has: this page masks " in answer.body


def test_hostile_names_and_contents_are_text(log):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>{{ 7*7 }}"
    log.append_rows("t", Rows(record([hostile.encode()], [hostile.encode()]), None, None))
    log.log.group(hostile, create=True)
    for address in ("/topics/t/rows", "/topics/t/rows/0/3", "/groups", "/history"):
        body = ask(ui_of(log), address).body
        assert "&lt;script&gt;alert(1)" in body, address
        assert "<script>alert" not in body
        assert "<img" not in body
