"""A group in a browser: its offsets are reset after a look at what changes, and its members come and go."""

from playwright.sync_api import expect

from pyspark_log import Consumer
from tests.browser.served import lines
from tests.support.command_line import CommandLine


def test_offsets_are_reset_after_a_look_at_what_changes_and_a_member_appears_without_a_reload(tmp_path, serve, visit):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "2")
    cli.run("groups", "alter", "g", "--config", "group.initial.rebalance.delay.ms=0")
    lines(cli, "t", *({"value": str(number), "partition": number % 2} for number in range(10)))
    cli.run("consume", "t", "--group", "g")

    def offsets():
        [document] = cli.documents("groups", "describe", "g")
        return {each["partition"]: each["committed"] for each in document["partitions"]}

    page = visit(serve(cli.path, "--allow-changes"), "/groups/g")
    page.locator("select[name=to]").select_option("rows further, or back with -")
    page.get_by_label("Value").fill("-2")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("main")).to_contain_text("Nothing has been changed yet.")
    assert page.locator("tbody td").all_inner_texts() == ["5", "3", "-2"] * 2
    assert offsets() == {0: 5, 1: 5}
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_role("status")).to_contain_text("done")
    assert offsets() == {0: 3, 1: 3}
    cli.run("consume", "t", "--group", "g")
    page.reload()
    assert offsets() == {0: 5, 1: 5}, "a page that is loaded again changes nothing"
    page.goto("/groups/g")
    page.evaluate("window.same = true")
    expect(page.locator("main")).to_contain_text("The group has no members.")
    with Consumer(cli.path, group_id="g") as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(10)
        expect(page.locator("main")).to_contain_text("t 0–1")  # noqa: RUF001
    expect(page.locator("main")).to_contain_text("The group has no members.")
    assert page.evaluate("window.same")
