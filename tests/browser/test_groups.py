"""Groups in a browser: a rebalance while the page is open, and offsets that are reset after a look at what changes."""

import re
import threading

import pytest
from playwright.sync_api import expect

from pyspark_log import Consumer
from tests.browser.served import column, lines
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.slow


class Member(threading.Thread):
    """A consumer that polls until it is told to leave."""

    def __init__(self, path, name):
        super().__init__()
        self._path, self._name, self._leaves = path, name, threading.Event()
        self.start()

    def run(self):
        with Consumer(
            self._path, group_id="g", client_id=self._name, auto_offset_reset="earliest", auto_commit_interval_ms=100
        ) as consumer:
            consumer.subscribe(["t"])
            while not self._leaves.is_set():
                consumer.poll(100)

    def leave(self):
        self._leaves.set()
        self.join()


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "2")
    cli.run("groups", "alter", "g", "--config", "group.initial.rebalance.delay.ms=0")
    lines(cli, "t", *({"value": str(number), "partition": number % 2} for number in range(10)))
    return cli


@pytest.fixture
def committed(cli):
    """The group has read everything, and has no members."""
    cli.run("consume", "t", "--group", "g")
    return cli


def offsets(cli):
    [document] = cli.documents("groups", "describe", "g")
    return {each["partition"]: each["committed"] for each in document["partitions"]}


def test_members_change_while_the_page_is_open(cli, serve, visit):
    page = visit(serve(cli.path), "/groups/g")
    page.evaluate("window.same = true")
    expect(page.locator("main")).to_contain_text("The group has no members.")
    members = [Member(cli.path, "one")]
    try:
        expect(page.locator("main")).to_contain_text("t 0, t 1")
        members.append(Member(cli.path, "two"))
        table = page.locator("table").first
        expect(table.locator("tbody tr > :nth-child(4)")).to_have_text([re.compile(r"^t \d$")] * 2)
        assert sorted(column(page, 2)[:2]) == ["one", "two"]
        members.pop(0).leave()
        expect(table.locator("tbody tr > :nth-child(4)")).to_have_text(["t 0, t 1"])
    finally:
        for each in members:
            each.leave()
    assert page.evaluate("window.same")


def test_offsets_are_reset_after_a_look_at_what_changes(committed, serve, visit):
    page = visit(serve(committed.path, "--allow-changes"), "/groups/g")
    page.locator("select[name=to]").select_option("rows further, or back with -")
    page.get_by_label("Value").fill("-2")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("main")).to_contain_text("Nothing has been changed yet.")
    assert page.locator("tbody td").all_inner_texts() == ["5", "3"] * 2
    assert offsets(committed) == {0: 5, 1: 5}
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_role("status")).to_contain_text("done")
    assert offsets(committed) == {0: 3, 1: 3}


def test_a_group_leads_to_its_own_timeline(committed, serve, visit):
    page = visit(serve(committed.path), "/groups/g")
    page.locator("main").get_by_role("link", name="Timeline").click()
    expect(page.locator("tbody")).to_contain_text("the group began")
    expect(page.get_by_label("Group")).to_have_value("g")


def test_a_value_that_is_no_number_is_refused_in_words(committed, serve, visit):
    page = visit(serve(committed.path, "--allow-changes"), "/groups/g")
    page.locator("select[name=to]").select_option("an offset")
    page.get_by_label("Value").fill("<b>x")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_contain_text("'<b>x' is not a number of rows")


FORM = {"topic": "t", "to": "earliest", "offsets": "0:0,1:0"}


def test_nothing_is_reset_unless_changes_are_allowed(committed, serve, visit):
    page = visit(serve(committed.path), "/groups/g")
    assert page.locator("form").count() == 0
    assert page.request.post("/groups/g/reset", form=FORM).status == 403
    assert offsets(committed) == {0: 5, 1: 5}


@pytest.mark.parametrize(("secret", "origin"), [("wrong", None), (None, "http://elsewhere.example")])
def test_nothing_is_reset_by_a_form_of_another_site(committed, serve, visit, secret, origin):
    page = visit(serve(committed.path, "--allow-changes"), "/groups/g")
    form = FORM | {"secret": secret or page.locator("input[name=secret]").get_attribute("value")}
    answer = page.request.post("/groups/g/reset", form=form, headers={"origin": origin} if origin else {})
    assert answer.status == 403
    assert offsets(committed) == {0: 5, 1: 5}
