"""An exported file, and what notebooks show, in a browser."""

from __future__ import annotations

from pyspark_log.ui.export import export
from tests.support.plain_log import PlainLog

HOSTILE = "<script>document.title='run'</script>{{ 7*7 }}\"'&"


def test_an_exported_file_works_without_a_network_and_without_scripts(browser, tmp_path):
    log = PlainLog(tmp_path / "log")
    log.create("a.b_c-1", 3)
    log.append("a.b_c-1", {0: [b"x"]})
    log.log.group(HOSTILE, create=True)
    file = tmp_path / "page.html"
    file.write_text(export(log.path), encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    for name, heading in (("Topics", "Topics"), ("a.b_c-1", "a.b_c-1"), ("History", "History")):
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
