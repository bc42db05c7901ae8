"""Where a consumer is, as a notebook shows it."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest

from pyspark_log import Consumer, TopicPartition
from tests.support.plain_log import PlainLog

HOSTILE = "<b>{{ 7*7 }}\"'&"


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2)
    made.append("t", {0: [b"a", b"b", b"c"], 1: [b"d"]})
    return made


def texts(consumer):
    """Return the cells of each row of the table, and the facts above it by their names."""
    shown = consumer._repr_html_()
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)]
    return rows[1:], dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", shown))


def test_it_shows_position_ends_and_lag_of_each_partition_also_while_the_log_is_away(log, tmp_path):
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    with Consumer(log.path) as consumer:
        assert "No partitions are assigned." in consumer._repr_html_()
        consumer.assign([("t", 0), ("t", 1)], {TopicPartition("t", 0): 1})
        consumer.pause(("t", 1))
        expected = [["t", "0", "1", "0", "3", "2", "reads"], ["t", "1", "latest", "0", "1", "0", "▲ paused"]]
        tmp_path.rename(away)
        assert texts(consumer)[0] == expected
        away.rename(tmp_path)
        next(consumer)
        assert texts(consumer)[0][0][2] == "2", "rows that an iteration has only read are not passed"
        consumer.poll()
        rows, facts = texts(consumer)
        assert rows[0] == ["t", "0", "3", "0", "3", "0", "reads"]
        assert (facts["Lag"], facts["State"]) == ("0 rows", "open")
    assert texts(consumer)[1]["State"] == "closed"


def test_it_shows_the_member_and_text_stays_text(log):
    with Consumer(log.path, group_id=HOSTILE, client_id="c", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while not consumer.poll(timeout_ms=100):
            pass
        rows, facts = texts(consumer)
        assert facts["Subscribes to"] == "t"
        assert html.unescape(facts["Member"]) == consumer.group_metadata().member_id
        assert [each[:3] for each in rows] == [["t", "0", "3"], ["t", "1", "1"]]
        shown = consumer._repr_html_()
    assert HOSTILE not in shown
    assert HOSTILE in html.unescape(shown)


@pytest.mark.deep
def test_without_the_extra_a_consumer_reads_and_is_shown_as_other_objects_are(tmp_path):
    program = (
        "import sys; from pyspark_log import Consumer; print({'jinja2', 'pyspark_log.ui'} & {*sys.modules})\n"
        f"sys.modules['jinja2'] = None; print(Consumer({str(tmp_path)!r})._repr_html_())"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["set()", "None"]
