"""Each page in a browser, on a cluster that lives."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.served import Served, column, lines
from tests.support.command_line import on_three_nodes
from tests.support.pyspark_log.typed_frames import write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes, and topics with rows."""
    cli = on_three_nodes(tmp_path_factory.mktemp("cluster"))
    cli.run("topics", "create", "a.b_c-1", "--partitions", "2", "--config", "retention.ms=3600000")
    cli.run("topics", "create", "wide", "--partitions", "250")
    cli.run("topics", "create", "typed", "--partitions", "1", "--schema", "id BIGINT, city STRING")
    write(cli.path, "id BIGINT, city STRING", [{"id": 7, "city": "Ulm"}], topic="typed")
    rows = (
        {
            "key": f"k{number}",
            "value": f'{{"n": {number}, "deep": {{"even": "{number % 2 == 0}"}}}}',
            "partition": 0,
            "headers": [{"key": "trace", "value": f"t{number}"}],
        }
        for number in range(120)
    )
    lines(cli, "a.b_c-1", *rows)
    lines(cli, "first", {"value": "x", "partition": 0})
    return cli


@pytest.fixture(scope="module")
def served(cluster):
    served = Served(cluster.path)
    yield served
    served.kill()


def test_the_cluster_shows_its_nodes_and_its_health(served, visit):
    page = visit(served)
    assert page.locator("tbody th").all_inner_texts() == ["0", "1", "2"]
    assert [each.strip() for each in column(page, 2)] == ["✓ live"] * 3
    expect(page.locator("main")).to_contain_text("healthy")


def test_topics_are_sorted_and_searched(served, visit):
    page = visit(served, "/topics")
    assert column(page, 1) == ["a.b_c-1", "first", "typed", "wide"]
    page.get_by_role("link", name="Rows", exact=True).click()
    expect(page.locator("tbody th").first).to_have_text("a.b_c-1")
    assert column(page, 4)[0] == "120"
    page.get_by_label("Name contains").fill("B_C")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody th")).to_have_text(["a.b_c-1"])
    expect(page.locator("th[aria-sort]")).to_contain_text("Rows")


def test_a_topic_shows_its_partitions_by_page(served, visit):
    page = visit(served, "/topics/wide")
    assert page.locator("table").first.locator("tbody tr").count() == 200
    page.get_by_role("link", name=re.compile("^200")).click()
    expect(page.locator("table").first.locator("tbody th").first).to_have_text("200")
    assert page.locator("table").first.locator("tbody tr").count() == 50


def test_a_setting_that_is_not_default_is_marked(served, visit):
    page = visit(served, "/topics/a.b_c-1")
    assert page.locator("tr.changed th").all_inner_texts() == ["retention.ms"]
    expect(page.locator("tr.changed")).to_contain_text("● changed")


def shown(page):
    return page.locator("tbody th").all_inner_texts()


def test_the_newest_rows_are_first_and_older_ones_a_click_away(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows")
    assert shown(page)[::49] == ["0:119", "0:70"]
    page.get_by_role("link", name="Older rows").click()
    expect(page.locator("tbody th").first).to_have_text("0:69")


@pytest.mark.parametrize(
    ("label", "text", "expected"),
    [
        ("Key is", "k7", ["0:7"]),
        (
            "Key contains",
            "11",
            ["0:119", "0:118", "0:117", "0:116", "0:115", "0:114", "0:113", "0:112", "0:111", "0:110", "0:11"],
        ),
        ("Value contains", '"n": 55,', ["0:55"]),
        ("Header", "trace=t99", ["0:99"]),
        ("Field", "n=42", ["0:42"]),
        ("From offset", "1", ["0:1", "0:0"]),
    ],
)
def test_rows_are_filtered(served, visit, label, text, expected):
    page = visit(served, "/topics/a.b_c-1/rows")
    page.get_by_label(label).fill(text)
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(re.compile(r"\?"))
    assert shown(page) == expected


def test_rows_are_shown_from_a_time_on(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows")
    page.get_by_label("Order").select_option("oldest first")
    page.get_by_label("From time").fill("2020-01-31T12:00:00Z")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody th").first).to_have_text("0:0")
    page.get_by_label("From time").fill("2999-01-31T12:00:00Z")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody")).to_contain_text("No rows match.")


def test_the_rows_that_are_shown_are_downloaded(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows?value_has=False")
    shown = page.locator("tbody th").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON lines").click()
    assert download.value.suggested_filename == "a.b_c-1.jsonl"
    found = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [f"{each['partition']}:{each['offset']}" for each in found][: len(shown)] == shown
    assert len(found) == 60


def test_a_row_opens_in_full(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows")
    page.get_by_role("link", name="0:118").click()
    expect(page.locator("pre").nth(1)).to_have_text('{\n  "n": 118,\n  "deep": {\n    "even": "True"\n  }\n}')
    expect(page.locator("tbody")).to_contain_text("t118")


def test_a_typed_topic_has_its_columns(served, visit):
    page = visit(served, "/topics/typed/rows")
    assert page.locator("thead th").all_inner_texts() == ["Row", "Time", "id", "city"]
    assert page.locator("tbody td.cell").all_inner_texts() == ["7", "Ulm"]


def test_new_rows_appear_without_a_reload(served, visit, cluster):
    page = visit(served, "/topics/first/rows")
    page.evaluate("window.same = true")
    for number in range(3):
        lines(cluster, "first", {"value": f"new {number}", "partition": 0})
        expect(page.locator("tbody tr").first).to_contain_text(f"new {number}")
    assert page.evaluate("window.same")


def test_a_half_filled_form_keeps_its_text_while_the_page_moves(served, visit, cluster):
    page = visit(served, "/topics/first/rows")
    page.get_by_label("Value contains").fill("half")
    lines(cluster, "first", {"value": "it moved", "partition": 0})
    expect(page.locator("tbody tr").first).to_contain_text("it moved")
    expect(page.get_by_label("Value contains")).to_have_value("half")
    expect(page.get_by_label("Value contains")).to_be_focused()


def test_the_timeline_zooms_and_opens_an_entry(served, visit):
    page = visit(served, "/timeline")
    before = page.locator("main > p").first.inner_text()
    page.locator(".lanes a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("from="))
    assert page.locator("main > p").first.inner_text() != before
    page.locator("tbody a[href^='/entries/']").first.click()
    expect(page.locator("h1")).to_contain_text("Entry")
    expect(page.locator("pre")).not_to_be_empty()


PAGES = [
    "/",
    "/topics",
    "/topics/a.b_c-1",
    "/topics/a.b_c-1/rows",
    "/topics/a.b_c-1/rows/0/3",
    "/groups",
    "/queries",
    "/timeline",
]
CONTRASTS = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const found = channels(getComputedStyle(element).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    throw "nothing is behind the text";
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [];
  let total = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [a, b] = [channels(element instanceof SVGElement ? style.fill : style.color), behind(element)].map(luminance);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    total++;
    if (contrast < 4.5) low.push(`${contrast.toFixed(2)} ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  return {total, low};
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_wcag_aa(served, visit, scheme):
    for address in PAGES:
        found = visit(served, address, color_scheme=scheme).evaluate(CONTRASTS)
        assert found["total"] > 10
        assert found["low"] == [], address


def test_a_phone_scrolls_no_page_sideways(served, visit):
    for address in PAGES:
        page = visit(served, address, viewport={"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


def test_the_keyboard_reaches_everything_and_shows_where_it_is(served, visit):
    page = visit(served, "/topics")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.goto("/topics")
    everything = "a[href], input:not([type=hidden]), select, button"
    reached = []
    for _ in range(page.locator(everything).count()):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
        reached.append(focused.evaluate(f"each => [...document.querySelectorAll({everything!r})].indexOf(each)"))
    assert reached == list(range(len(reached)))
