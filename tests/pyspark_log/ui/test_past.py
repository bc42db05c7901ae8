"""The past of a cluster: what it costs a bucket, and that it continues."""

from __future__ import annotations

import pytest

from pyspark_log.opening import own_log
from pyspark_log.ui import past
from pyspark_log.ui.past import Past, span_of
from pyspark_log_coordinator.audit.timeline import Scope
from pyspark_log_storage.errors import LogError
from tests.support.counted_bucket import CountedCluster


@pytest.fixture
def cluster(monkeypatch):
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b", "c", "d"):
        cluster.log.create(name, 3)
        cluster.log.log.group(f"group of {name}", create=True)
    return cluster


@pytest.mark.parametrize("topic", ["", "a"])
def test_an_open_timeline_costs_a_bucket_one_request_a_second(cluster, topic):
    found = Past(own_log(cluster.path))
    found.journals(topic)
    counts = cluster.in_a_minute(lambda: found.journals(topic), every=1.0)
    assert sum(counts.values()) <= 60, counts
    assert counts, "it is not looked at again"


def test_an_open_timeline_of_a_bucket_sees_what_is_new(cluster):
    found = Past(own_log(cluster.path))
    before = found.journals()[Scope.TOPIC, "a"].version
    cluster.log.append("a", {0: [b"x"]})
    cluster.now += 60
    assert found.journals()[Scope.TOPIC, "a"].version == before + 1


def test_a_long_journal_is_read_from_its_newest_entries_on(cluster, monkeypatch):
    monkeypatch.setattr(past, "ENTRIES_READ", 10)
    for _ in range(40):
        cluster.log.append("a", {0: [b"x"]})
    found = Past(own_log(cluster.path))
    journal = found.journals("a")[Scope.TOPIC, "a"]
    assert journal.begin == journal.version - 9
    assert {each.entry for each in journal.moments} == set(range(journal.begin, journal.version + 1))


def test_a_topic_that_does_not_exist_is_refused_each_time(cluster):
    found = Past(own_log(cluster.path))
    for _ in range(2):
        with pytest.raises(LogError):
            found.journals("none")


def test_a_span_that_ends_before_it_begins_is_a_moment():
    span = span_of({"from": "5", "to": "1"}, [], 10)
    assert span.since < span.until
