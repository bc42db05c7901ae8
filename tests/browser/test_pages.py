"""Each page in a browser, on a cluster that lives."""

import datetime as dt
import re

import pytest
from playwright.sync_api import expect

from tests.browser.served import Served, lines
from tests.support.command_line import on_three_nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes, and topics with rows."""
    cli = on_three_nodes(tmp_path_factory.mktemp("cluster"))
    cli.run("topics", "create", "a.b_c-1", "--partitions", "2", "--config", "retention.ms=3600000")
    headers = [{"key": "trace", "value": "t"}]
    rows = ({"key": f"k{n}", "value": f'{{"n": {n}}}', "partition": 0, "headers": headers} for n in range(120))
    lines(cli, "a.b_c-1", *rows)
    lines(cli, "first", {"value": "x", "partition": 0})
    cli.run("consume", "first", "--group", "g")
    return cli


@pytest.fixture(scope="module")
def served(cluster):
    served = Served(cluster.path)
    yield served
    served.kill()


def test_topics_are_sorted_and_searched(served, visit):
    page = visit(served, "/topics")
    expect(page.locator("tbody th")).to_have_text(["a.b_c-1", "first"])
    for direction in ("descending", "ascending"):
        page.get_by_role("link", name="Rows").click()
        expect(page.locator("th[aria-sort]")).to_contain_text("Rows")
        expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", direction)
    page.get_by_label("Name contains").fill("B_C")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody th")).to_have_text(["a.b_c-1"])


def test_rows_are_filtered_and_older_ones_and_the_whole_of_one_are_a_click_away(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows")
    expect(page.locator("tbody th").first).to_have_text("0:119")
    page.get_by_role("link", name="Older rows").click()
    expect(page.locator("tbody th").first).to_have_text("0:69")
    page.get_by_label("Field").fill("n=42")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody th")).to_have_text(["0:42"])
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON lines").click()
    assert download.value.suggested_filename == "a.b_c-1.jsonl"
    page.goto("/topics/a.b_c-1/rows/0/42")
    expect(page.locator("pre").nth(1)).to_have_text('{\n  "n": 42\n}')


def test_new_rows_appear_without_a_reload_and_a_half_filled_form_keeps_its_text(served, visit, cluster):
    page = visit(served, "/topics/first/rows")
    page.evaluate("window.same = true")
    page.get_by_label("Value contains").fill("half")
    for number in range(3):
        lines(cluster, "first", {"value": f"new {number}", "partition": 0})
        expect(page.locator("tbody tr").first).to_contain_text(f"new {number}")
    expect(page.get_by_label("Value contains")).to_have_value("half")
    expect(page.get_by_label("Value contains")).to_be_focused()
    assert page.evaluate("window.same")


def test_the_history_has_charts_and_zooms_by_keyboard_and_by_mouse_and_opens_an_entry(served, visit):
    page = visit(served, "/history")
    expect(page.locator(".plot canvas")).to_have_count(5)
    shown = page.locator("main .pager").first
    before = shown.inner_text()
    page.get_by_role("link", name="Zoom out").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("from="))
    assert shown.inner_text() != before
    chart = page.locator(".plot .u-over").first
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
    expect(page.locator(".plot .u-legend").first).to_contain_text(re.compile("UTC.*20"))
    address = page.url
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url(lambda url: url != address)
    page.goto("/history")
    page.locator("tbody a[href^='/entries/']").first.click()
    expect(page.locator("h1")).to_contain_text("Entry")
    expect(page.locator("pre")).not_to_be_empty()


def test_marks_have_tooltips_lead_to_their_row_and_are_few_tab_stops(served, visit):
    soon = f"{dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    page = visit(served, f"/history?lanes=settings&to={soon}")  # an end that does not move, nor do the marks
    marks = page.locator(".lanes .u-over")
    marks.scroll_into_view_if_needed()
    box = marks.bounding_box()
    x, y = box["x"], box["y"] + box["height"] / 2
    while not page.locator(".tip").inner_text():
        x += 2
        assert x < box["x"] + box["width"]
        page.mouse.move(x, y)
    # The first mark is where the cluster began, or its first topic, which may have the same place.
    expect(page.locator(".tip")).to_contain_text(re.compile("the cluster|the topic began"))
    page.mouse.click(x, y)
    expect(page.locator("tr.found")).to_have_count(1)
    assert page.locator("figure a, figure button, figure [tabindex]").count() == 0


def test_what_is_folded_out_stays_so_while_the_page_moves(served, visit, cluster):
    page = visit(served, "/topics/first")
    page.locator("#settings summary").click()
    rows = page.locator("main .facts dd").nth(1)
    before = rows.inner_text()
    lines(cluster, "first", {"value": "more", "partition": 0})
    expect(rows).not_to_have_text(before)
    assert not page.locator("#settings").evaluate("each => each.open")


def test_the_overview_says_in_one_line_whether_somebody_should_worry_and_how_new_that_is(served, visit):
    page = visit(served, "/")
    expect(page.locator(".verdict .headline")).to_contain_text("healthy")
    expect(page.locator("#status")).to_contain_text(re.compile(r"as of \d\d:\d\d:\d\d, live"))
    expect(page.locator(".plot canvas")).to_have_count(2)


def test_a_theme_is_switched_and_stays(served, visit):
    page = visit(served, "/", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(paper)
    page.goto("/topics")
    assert (page.evaluate(paper), dark != light) == (dark, True)


def test_a_slash_leads_to_the_search_and_lists_are_sifted_while_somebody_types(served, visit):
    page = visit(served, "/topics")
    page.keyboard.press("/")
    page.keyboard.type("FIR")
    expect(page.locator("tbody tr:visible th")).to_have_text(["first"])


def test_a_row_is_shown_beside_the_list(served, visit):
    page = visit(served, "/topics/a.b_c-1/rows", viewport={"width": 1400, "height": 900})
    page.get_by_role("link", name="0:42", exact=False).or_(page.locator("tbody th a").nth(3)).first.click()
    expect(page.locator("#beside pre").nth(1)).to_contain_text('"n":')
    assert page.url.endswith("/rows")


def test_json_is_a_tree_with_its_numbers_as_they_are_written(served, visit, cluster):
    lines(cluster, "first", {"value": '{"a": {"big": 12345678901234567890, "price": 1.10}, "b": []}', "partition": 0})
    page = visit(served, "/topics/first/rows")
    page.locator("tbody th a").first.click()
    expect(page.locator(".tree")).to_contain_text("big: 12345678901234567890")
    expect(page.locator(".tree")).to_contain_text("price: 1.10")


def test_a_hidden_page_asks_for_nothing_and_a_visible_one_again(served, visit):
    page = visit(served, "/topics")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    hide = """is => {
        Object.defineProperty(document, "hidden", {get: () => is, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    page.wait_for_timeout(1000)
    asked.clear()
    page.wait_for_timeout(1500)
    assert asked == []
    with page.expect_request("**/topics"):
        page.evaluate(hide, False)


PAGES = [
    "/",
    "/topics",
    "/topics/a.b_c-1",
    "/topics/a.b_c-1/rows",
    "/topics/a.b_c-1/rows/0/3",
    "/groups",
    "/groups/g",
    "/queries",
    "/history",
    "/nodes",
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
def test_all_text_has_the_contrast_of_wcag_aa_and_a_phone_scrolls_no_page_sideways(served, visit, scheme):
    for address in PAGES:
        page = visit(served, address, color_scheme=scheme, viewport={"width": 360, "height": 740})
        found = page.evaluate(CONTRASTS)
        assert found["total"] > 10
        assert found["low"] == [], address
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address


def test_the_keyboard_reaches_the_content_first(served, visit):
    page = visit(served, "/topics")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("address", ["/", "/topics", "/topics/first", "/topics/first/rows", "/groups/g", "/history"])
def test_the_keyboard_reaches_everything_and_shows_where_it_is(served, visit, address):
    page = visit(served, address)
    everything = "a[href], input:not([type=hidden]), select, button, summary"
    reached = []
    for _ in range(page.locator(f":is({everything}):visible").count()):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if not focused.evaluate(f"each => each.matches({everything!r})"):
            page.keyboard.press("Tab")  # a part that scrolls
        assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
        reached.append(focused.evaluate(f"each => [...document.querySelectorAll({everything!r})].indexOf(each)"))
    assert reached == sorted(set(reached))
