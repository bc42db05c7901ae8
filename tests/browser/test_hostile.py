"""Names and contents from people who want the page to run something, and who may see the page at all."""

import http.client

import pytest
from playwright.sync_api import expect

from tests.browser.served import lines
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>{{ 7*7 }}</pre><svg onload=alert(3)>"
HOSTILE = {
    "markup": MARKUP,
    "from right to left": "a\u202egpj.exe",
    "a zero byte": "a\0b",
    "events": "one\n\nevent: content\ndata: forged\r\rdata: x",
    "invalid UTF-8": "\udcff",
}


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "1")
    return cli


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_keys_values_and_headers_are_text(cli, serve, visit, text):
    if text == HOSTILE["invalid UTF-8"]:
        cli.run("produce", "t", stdin=b"<b>\xff</b>\n")
        shown = "base64:PGI+/zwvYj4="
    else:
        lines(cli, "t", {"key": text, "value": text, "headers": [{"key": text, "value": text}]})
        shown = text
    served = serve(cli.path)
    first = shown.replace("\0", "").replace("\r", "\n").split("\n")[0]
    for address in ("/topics/t/rows", "/topics/t/rows/0/0"):
        page = visit(served, address)
        expect(page.locator("main")).to_contain_text(first)
        page.evaluate("window.same = true")
        lines(cli, "t", {"value": "more"})  # so that the content is also swapped by an event
        if address.endswith("rows"):
            expect(page.locator("tbody tr").first).to_contain_text("more")
            expect(page.locator("main")).to_contain_text(first)
        assert page.locator("main").locator("img, script, svg[onload]").count() == 0
        assert page.evaluate("window.same")


def test_a_hostile_group_is_text(cli, serve, visit):
    cli.run("produce", "t", stdin="x\n")
    cli.run("consume", "t", "--group", MARKUP)
    served = serve(cli.path, "--allow-changes")
    page = visit(served, "/groups")
    page.get_by_role("link", name=MARKUP, exact=True).click()
    expect(page.locator("h1")).to_have_text(MARKUP)
    assert page.locator("main").locator("img, script").count() == 0
    page = visit(served, "/timeline")
    expect(page.locator("table")).to_contain_text(MARKUP)
    assert page.locator("main").locator("img, script").count() == 0


def test_a_large_value_is_short_in_the_list_and_whole_in_its_row(cli, serve, visit):
    large = "x" * 1_000_000
    lines(cli, "t", {"value": large})
    page = visit(serve(cli.path), "/topics/t/rows")
    assert len(page.locator("tbody tr").inner_text()) < 1000
    page.get_by_role("link", name="0:0").click()
    expect(page.locator("h2")).to_have_text(["key", "value"])
    assert page.locator("pre").text_content() == large


def test_what_is_masked_is_neither_shown_nor_searched(cli, serve, visit):
    lines(
        cli, "t", {"key": "concealed-key", "value": "seen", "headers": [{"key": "auth", "value": "concealed-header"}]}
    )
    served = serve(cli.path, "--mask", "key", "--mask", "header:auth")
    for address in ("/topics/t/rows", "/topics/t/rows/0/0"):
        content = visit(served, address).content()
        assert "seen" in content
        assert "masked" in content
        assert "concealed" not in content
    page = visit(served, "/topics/t/rows?key=concealed-key")
    expect(page.get_by_role("alert").last).to_contain_text("rows cannot be filtered by key")


def status(served, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", path, headers=headers)
    return connection.getresponse().status


def test_only_viewers_with_the_token_see_anything(cli, serve, visit):
    served = serve(cli.path, token="secret")
    for path in ("/", "/topics/t/rows", "/static/style.css", "/?token=wrong"):
        assert status(served, path) == 401, path
    page = visit(served, "/topics?token=secret")
    assert page.url == f"{served.url}/topics"
    page.get_by_role("link", name="t", exact=True).click()
    expect(page.locator("h1")).to_have_text("t")


def test_a_name_that_somebody_else_controls_is_refused(cli, serve):
    served = serve(cli.path)
    assert status(served, "/") == 200
    assert status(served, "/", host="attacker.example") == 421
