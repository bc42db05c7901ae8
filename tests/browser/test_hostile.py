"""Names and contents from people who want the page to run something: a browser runs none of it.

Who may see the page, and what is masked, is in `tests/pyspark_log/ui/test_app_guard.py`.
"""

import pytest
from playwright.sync_api import expect

from tests.browser.served import lines
from tests.support.command_line import CommandLine

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>{{ 7*7 }}</pre><svg onload=alert(3)>"
HOSTILE = {
    "markup": MARKUP,
    "from right to left": "a\u202egpj.exe",
    "a zero byte": "a\0b",
    "events": "one\n\nevent: content\ndata: forged\r\rdata: x",
}


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "1")
    return cli


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_keys_values_and_headers_are_text(cli, serve, visit, text):
    lines(cli, "t", {"key": text, "value": text, "headers": [{"key": text, "value": text}]})
    served = serve(cli.path)
    first = text.replace("\0", "").replace("\r", "\n").split("\n")[0].replace("\u202e", "\\u202e")
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
    page = visit(served, "/history")
    expect(page.locator("table.events")).to_contain_text(MARKUP)
    assert page.locator("main").locator("img, script").count() == 0
