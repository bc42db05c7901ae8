"""An exported file, and what notebooks show, in a browser."""

from __future__ import annotations

import pytest

from pyspark_log.ui.export import export
from pyspark_log.ui.notebook import describe
from tests.support.plain_log import PlainLog

HOSTILE = "<script>document.title='run'</script>{{ 7*7 }}\"'&"
JUPYTER = """<style>
.jp-RenderedHTMLCommon tr:nth-child(even) { background: rgb(255, 0, 0); }
.jp-RenderedHTMLCommon td { text-align: center; color: rgb(255, 255, 0); }
</style>"""


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("a.b_c-1", 3)
    made.create("empty", 250)
    made.append("a.b_c-1", {0: [b"secret"] * 10, 2: [b"secret"]})
    made.log.group(HOSTILE, create=True)
    return made


def test_an_exported_file_works_without_a_network_and_without_scripts(log, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(export(log.path), encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    for name, heading in (("Topics", "Topics"), ("a.b_c-1", "a.b_c-1"), ("Timeline", "Timeline")):
        page.get_by_role("link", name=name, exact=True).first.click()
        assert page.evaluate("document.querySelector(':target h1').textContent") == heading
    assert HOSTILE in page.locator("body").inner_text()
    assert page.title() != "run"
    assert (said, asked) == ([], [file.as_uri()])
    hrefs = page.evaluate("[...document.querySelectorAll('[href]')].map(each => each.getAttribute('href'))")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert {each for each in hrefs if each.startswith("#")} <= {f"#{each}" for each in ids}
    assert {each for each in hrefs if not each.startswith("#")} == {"data:,"}
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("is_light", "paper", "ink"),
    [("true", "rgb(253, 253, 252)", "rgb(29, 33, 38)"), ("false", "rgb(21, 24, 28)", "rgb(230, 232, 234)")],
    ids=["light", "dark"],
)
def test_styles_of_a_notebook_and_a_description_leave_each_other_alone(log, browser, is_light, paper, ink):
    shown = describe(log.path)._repr_html_() + describe(log.path, "a.b_c-1", HOSTILE)._repr_html_()
    page = browser.new_page()
    page.set_content(f'<body data-jp-theme-light="{is_light}">{JUPYTER}<div class="jp-RenderedHTMLCommon">'
                     f'<table id="own"><tr></tr><tr><td>x</td></tr></table>{shown}</div></body>')  # fmt: skip
    style = (
        "each => { const found = getComputedStyle(each); return [found.backgroundColor, found.textAlign, found.color] }"
    )
    assert page.eval_on_selector(".pyspark-log", style)[0] == paper
    assert page.eval_on_selector_all(".pyspark-log tr", f"rows => rows.map({style})[1][0]") == "rgba(0, 0, 0, 0)"
    assert page.eval_on_selector(".pyspark-log td.n", style)[1:] == ["right", ink]
    assert page.eval_on_selector("#own td", style)[1] == "center"
    assert page.eval_on_selector("#own tr:nth-child(2)", style)[0] == "rgb(255, 0, 0)"
    assert page.title() == ""
    assert HOSTILE in page.locator("body").inner_text()
    assert page.evaluate("document.querySelectorAll('.pyspark-log a, .pyspark-log script').length") == 0
