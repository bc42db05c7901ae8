"""The pages as a file that needs no server, and as what notebooks show."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import pyspark_log
from pyspark_log.browse import past
from pyspark_log.ui.export import export
from pyspark_log.ui.notebook import describe
from pyspark_log_storage.errors import InvalidOption, UnknownGroup, UnknownTopic
from tests.support.command_line import CommandLine
from tests.support.counted_bucket import CountedCluster
from tests.support.plain_log import PlainLog

HOSTILE = "<script>document.title='run'</script>{{ 7*7 }}\"'&"


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("a.b_c-1", 3)
    made.create("empty", 250)
    made.append("a.b_c-1", {0: [b"secret"] * 10, 2: [b"secret"]})
    made.log.group(HOSTILE, create=True)
    return made


def test_an_export_has_no_rows_no_scripts_and_nothing_that_only_a_server_can_do(log, tmp_path):
    file = tmp_path / "page.html"
    CommandLine(log.path).run("ui", "--export", file)
    shown = file.read_text(encoding="utf-8")
    assert "a.b_c-1" in shown
    assert "secret" not in shown
    assert not re.search(r"<(script|form|input|button|select)\b|\son\w+=", shown)
    assert not re.search(r"Earlier|Zoom|Later|Drag|class=\"tabs\"", shown)
    assert "The first 50 of 250 partitions." in shown
    links, parts = (set(re.findall(found, shown)) for found in (r'<a [^>]*href="([^"]*)"', r'<section id="([^"]*)"'))
    assert links - {"#content"} == {f"#{part}" for part in parts}
    assert len(parts) > 7


def test_an_export_has_all_journals_and_more_of_the_timeline_than_the_page(monkeypatch):
    monkeypatch.setattr(past, "REQUESTS_AT_ONCE", 1)
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b", "c"):
        cluster.log.create(name, 1)
    for number in range(60):
        cluster.log.log.group(f"g{number}", create=True)
    shown = export(cluster.path)
    assert "have not been read" not in shown
    assert "The newest" not in shown
    assert shown.count(">the topic began") == 3
    monkeypatch.setattr("pyspark_log.ui.export.MOMENTS_LISTED", 50)
    assert "The newest 50 of " in export(cluster.path)


def test_a_description_is_text_outside_of_notebooks_and_of_what_exists(log):
    assert pyspark_log.describe is describe
    shown = repr(describe(log.path, "a.b_c-1"))
    assert re.fullmatch(r"topic a\.b_c-1, partitions: 3, rows: 11, [\d.]+ k?B, healthy", shown)
    group = repr(describe(log.path, group=HOSTILE))
    assert group.startswith(f"group {HOSTILE}, ")
    everything = repr(describe(log.path, options={"storage_options": {"profile": "prod"}}))
    assert ("topic a.b_c-1" in everything, group in everything) == (True, True)
    with pytest.raises(UnknownTopic):
        describe(log.path, "other")
    with pytest.raises(UnknownGroup):
        describe(log.path, group="other")
    with pytest.raises(InvalidOption, match="unknown option rack for describe"):
        describe(log.path, options={"rack": "a"})


@pytest.mark.deep
def test_without_the_extra_a_description_says_what_to_install():
    program = "import sys; sys.modules['jinja2'] = None; import pyspark_log; pyspark_log.describe"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install jinja2" in failed.stderr.splitlines()[-1]
