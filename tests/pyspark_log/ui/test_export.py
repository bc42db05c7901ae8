"""The pages as a file that needs no server, and as what notebooks show."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import pyspark_log
from pyspark_log.cli.main import app
from pyspark_log.ui import past
from pyspark_log.ui.export import export, without_server
from pyspark_log.ui.notebook import describe
from pyspark_log_storage.errors import UnknownGroup, UnknownTopic
from tests.support.counted_bucket import CountedCluster
from tests.support.plain_log import PlainLog

HOSTILE = "<script>document.title='run'</script>{{ 7*7 }}\"'&"


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("a.b_c-1", 3)
    made.create("empty", 250)
    made.append("a.b_c-1", {0: [b"secret"] * 10, 2: [b"secret"]})
    made.log.group(HOSTILE, create=True)
    return made


def test_an_export_has_no_contents_of_rows(log):
    assert "secret" not in export(log.path)


def test_an_export_has_no_scripts_and_nothing_to_fill_in(log):
    assert not re.search(r"<(script|form|input|button|select)\b|\son\w+=", export(log.path))


def test_an_export_offers_nothing_that_only_a_server_can_do(log):
    shown = export(log.path)
    assert not re.search(r"Earlier|Zoom|zoom|Later|Click|class=\"(tabs|bucket)\"", shown)
    assert "The first 200 of 250 partitions." in shown


def test_an_export_lists_more_of_the_timeline_than_the_page(log, monkeypatch):
    for number in range(310):
        log.log.group(f"g{number}", create=True)
    assert "The newest" not in export(log.path)
    monkeypatch.setattr("pyspark_log.ui.export.MOMENTS_LISTED", 300)
    assert "<p>The newest 300 of " in export(log.path)


def test_an_export_of_a_bucket_has_all_journals(monkeypatch):
    monkeypatch.setattr(past, "REQUESTS_AT_FIRST", 1)
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b", "c"):
        cluster.log.create(name, 1)
    shown = export(cluster.path)
    assert "have not been read" not in shown
    assert shown.count(">the topic began") == 3


def test_the_command_exports_to_a_file(log, tmp_path):
    from typer.testing import CliRunner

    file = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["ui", "--path", log.path, "--export", str(file)])
    assert result.exit_code == 0, result.output
    assert "a.b_c-1" in file.read_text(encoding="utf-8")


def test_what_is_text_stays_text_without_a_server():
    html = "<p>&lt;a href=/topics/t&gt; &#39;&amp;amp;</p>"
    assert without_server(html, {"/topics/t"}) == html
    title = 'title="&quot;&gt;&lt;script&gt;"'
    assert without_server(f'<p id="a" {title}>') == f"<p {title}>"


def test_a_description_is_text_outside_of_notebooks(log):
    assert re.fullmatch(
        r"topic a\.b_c-1, partitions: 3, rows: 11, [\d.]+ k?B, healthy", repr(describe(log.path, "a.b_c-1"))
    )
    shown = repr(describe(log.path, group=HOSTILE))
    assert shown.startswith(f"group {HOSTILE}, ")
    everything = repr(describe(log.path))
    assert "topic a.b_c-1" in everything
    assert shown in everything


def test_a_description_of_what_does_not_exist_is_an_error(log):
    with pytest.raises(UnknownTopic):
        describe(log.path, "other")
    with pytest.raises(UnknownGroup):
        describe(log.path, group="other")


def test_without_the_extra_a_description_says_what_to_install():
    program = "import sys; sys.modules['jinja2'] = None; import pyspark_log; pyspark_log.describe"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'pyspark-log[ui]'" in failed.stderr.splitlines()[-1]


def test_a_description_is_what_the_package_offers():
    assert pyspark_log.describe is describe
