"""What pages show of a cluster: charts, strips of files, heat of lag, and 50 partitions a page."""

from __future__ import annotations

import re

import msgspec
import pytest

from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.opening import own_log
from pyspark_log.ui import content
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 120)
    log.append("t", {0: [b"x"] * 10, 1: [b"x"] * 5})
    commit(log, {0: 2})
    commit(log, {0: 4})
    return log


def commit(log, offsets):
    places = {number: Offset(offset, 0) for number, offset in offsets.items()}
    log.log.group("g", create=True).reset_offsets({log.log.topic("t").topic_id: places})


def shown(log, page, /, **parameters):
    reader = own_log(log.path)
    return getattr(content, page)(Past(reader).read(Watch(reader, log.path).look()), parameters)


def values(charts, title):
    [chart] = [each for each in charts if each["title"] == title]
    data = msgspec.json.decode(chart["data"])
    return dict(zip(data["names"], data["y"], strict=True))


def test_a_first_commit_counts_no_rows_and_says_so(log):
    group = log.log.group("new", create=True)
    topic = log.log.topic("t").topic_id
    for offset in (3, 7):
        group.submit(OffsetCommit({topic: {0: Offset(offset)}}))
    said = shown(log, "history", group="new", lanes="commits")["listed"]
    assert [each.committed for each in said] == [4, 0]
    assert "first time" not in said[0].words
    assert said[1].words.endswith("in 1 partition for the first time, which counts no rows")


@pytest.mark.parametrize("asked", [{}, {"group": "g"}])
def test_the_history_of_a_group_has_its_lag(log, asked):
    lag = values(shown(log, "history", **asked)["charts"], "Lag")["g"]
    assert [each for each in lag if each is not None][-1] == 11


def test_the_history_of_a_topic_has_its_rates_and_none_of_groups(log):
    charts = shown(log, "history", topic="t")["charts"]
    assert set(values(charts, "Rows a second")) == {"written"}
    assert "Lag" not in {each["title"] for each in charts}


def test_a_topic_has_fifty_partitions_on_a_page_and_one_path_for_each_kind_of_file(log):
    for page, count in (("0", 50), ("2", 20), ("9", 20)):
        assert len(shown(log, "topic", topic="t", page=page)["partitions"]) == count
    for _ in range(300):
        log.append("t", {0: [b"x"]})
    strip = shown(log, "topic", topic="t")["partitions"][0]["strip"]
    assert set(strip) <= {"parquet", "log", "chunk"}
    assert all(re.fullmatch(r"(M\d+ 0h\d+v9h-\d+z)+", path) for path in strip.values())


def test_each_partition_of_a_group_has_a_heat_and_those_without_a_commit_are_told_apart(log):
    cells = shown(log, "group", group="g")["heat"]["t"]
    assert cells[:3] == [(0, 6, 5), (1, None, 0), (2, None, 0)]


def test_the_furthest_behind_come_first_and_a_disk_that_fills_has_its_days(log):
    found = shown(log, "overview")
    assert [each.group_id for each, _ in found["behind"]] == ["g"]
    node = {"free": 86_400 * 10_000, "has": None}
    assert (content._days_left(node, 1000), content._days_left(node, 0)) == (10.0, None)
