"""How often a query asks an object store, and how soon an idle one sees the next row."""

import pytest

from pyspark_log.reading.polling import LONGEST_PAUSE_REMOTE
from tests.support.counted_bucket import CountedCluster
from tests.support.direct import Stream

POLLING_SECONDS = 0.01
"""Spark's spark.sql.streaming.pollingDelay: without a trigger interval it asks so soon again."""


@pytest.fixture
def cluster(monkeypatch):
    made = CountedCluster(monkeypatch)
    made.log.create("t", 8)
    made.log.append("t", {0: [b"old"]})
    return made


def idle(cluster, every, seconds=60, **options):
    """A query that has seen no row for so long."""
    stream = Stream(cluster.path, subscribe="t", startingOffsets="earliest", **options)
    until = cluster.now + seconds
    while cluster.now < until:
        stream.batch()
        cluster.now += every
    assert len(stream.ends) > 0
    return stream


def until_a_row(cluster, stream, every):
    """The seconds until a new row is seen."""
    cluster.log.append("t", {0: [b"new"]})
    begun = cluster.now
    while not stream.batch():
        cluster.now += every
    return cluster.now - begun


def test_an_idle_query_without_a_trigger_makes_at_most_one_request_in_two_seconds(cluster):
    stream = idle(cluster, POLLING_SECONDS)
    found = cluster.in_a_minute(stream.batch, POLLING_SECONDS)
    assert sum(found.values()) <= 30
    assert found.get("LIST", 0) <= 4, "a list costs as much as twelve reads"


def test_the_next_row_is_seen_within_the_longest_pause(cluster):
    stream = idle(cluster, POLLING_SECONDS)
    assert until_a_row(cluster, stream, POLLING_SECONDS) <= LONGEST_PAUSE_REMOTE + 0.2
    for _ in range(5):
        assert stream.batch() is None
        assert until_a_row(cluster, stream, POLLING_SECONDS) <= 0.2, "while rows come it looks at once"


def test_the_pauses_do_not_delay_the_end_of_max_trigger_delay(cluster):
    options = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "37s"}
    stream = idle(cluster, POLLING_SECONDS, **options)
    assert until_a_row(cluster, stream, POLLING_SECONDS) <= LONGEST_PAUSE_REMOTE + 0.2, "the last batch is longer ago"
    begun = cluster.now
    cluster.log.append("t", {0: [b"newer"]})
    while not stream.batch():
        cluster.now += POLLING_SECONDS
    assert 36.7 <= cluster.now - begun <= 37.3


def test_on_a_disk_every_trigger_looks(monkeypatch):
    cluster = CountedCluster(monkeypatch, is_object_store=False)
    cluster.log.create("t")
    cluster.log.append("t", {0: [b"old"]})
    stream = idle(cluster, 0.5)
    assert until_a_row(cluster, stream, 0.5) <= 0.1


def test_a_micro_batch_that_is_read_costs_one_list(cluster):
    stream = Stream(cluster.path, subscribe="t", startingOffsets="earliest")
    assert len(stream.batch()) == 1
    for _ in range(3):
        cluster.log.append("t", {each: [b"new"] for each in range(8)})
        cluster.counted()
        assert len(stream.batch()) == 8
        assert cluster.counted().get("LIST") == 1
