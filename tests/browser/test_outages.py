"""Stores and the page's own server go away while the page is open: it says so, and recovers without a reload."""

from playwright.sync_api import expect

from tests.browser.served import lines
from tests.support.command_line import CommandLine


def test_the_store_goes_away_and_returns(tmp_path, serve, visit):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "1")
    page = visit(serve(cli.path), "/topics")
    page.evaluate("window.same = true")
    away = tmp_path / "away"
    cli.path.rename(away)
    expect(page.get_by_role("alert").filter(has_text="cannot be read")).to_be_visible()
    expect(page.locator("tbody th")).to_have_text(["t"])
    expect(page.locator("#status")).to_contain_text("stale")
    assert page.locator("main .sign.good").count() == 0
    away.rename(cli.path)
    expect(page.get_by_role("alert").filter(has_text="cannot be read")).to_have_count(0)
    lines(cli, "t", {"value": "x"})
    expect(page.locator("tbody tr")).to_contain_text("1")
    assert page.evaluate("window.same")


def test_the_server_of_the_page_dies_and_returns(tmp_path, serve, visit):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    served = serve(cli.path)
    page = visit(served, "/topics", server_goes=True)
    page.evaluate("window.same = true")
    served.kill()
    expect(page.locator("#disconnected")).to_be_visible()
    served.start()
    expect(page.locator("#disconnected")).to_be_hidden()
    cli.run("topics", "create", "u")
    expect(page.locator("tbody th")).to_have_text(["t", "u"])
    assert page.evaluate("window.same")
