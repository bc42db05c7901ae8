"""How often an idle consumer asks an object store, and how soon it sees the next row."""

import pytest

from pyspark_log import Consumer
from pyspark_log.reading.polling import LONGEST_PAUSE_REMOTE
from pyspark_log_coordinator.membership.member_thread import MemberThread
from tests.support.counted_bucket import CountedCluster

HOUR = 3600


@pytest.fixture
def cluster(monkeypatch):
    made = CountedCluster(monkeypatch)
    made.log.create("t", 8)
    return made


def reader(cluster, *topics, **options):
    """A consumer of these topics that has seen no row for an hour."""
    consumer = Consumer(cluster.path, **options)
    consumer.assign([each for topic in topics or ("t",) for each in consumer.partitions(topic)], "earliest")
    consumer.poll()
    cluster.now += HOUR
    consumer.poll()
    return consumer


def member(cluster, monkeypatch, **options):
    """A member of a group that has seen no row for an hour, without its thread: `poll` sends its heartbeats."""
    monkeypatch.setattr(MemberThread, "start", lambda _: None)
    consumer = Consumer(cluster.path, group_id="g", auto_offset_reset="earliest", **options)
    consumer.subscribe(["t"])
    cluster.in_a_minute(consumer.poll, 0.02)
    assert len(consumer.assignment()) == 8
    for _ in range(10):
        cluster.now += 10
        consumer.poll()
    return consumer


def test_an_idle_consumer_makes_less_than_one_request_in_two_seconds_however_often_it_is_polled(cluster):
    consumer = reader(cluster)
    found = cluster.in_a_minute(consumer.poll, 0.05)
    assert sum(found.values()) < 30
    assert found.get("LIST", 0) <= 2, "a list costs as much as twelve reads"


def test_an_idle_member_of_a_group_does_so_too(cluster, monkeypatch):
    consumer = member(cluster, monkeypatch)
    assert sum(cluster.in_a_minute(consumer.poll, 0.05).values()) <= 30
    assert consumer.assignment()


def test_an_idle_consumer_sees_the_next_row_within_the_longest_pause(cluster):
    consumer = reader(cluster)
    cluster.log.append("t", {0: [b"row"]})
    begun = cluster.now
    while not (found := consumer.poll()):
        cluster.now += 0.05
    assert [each.value for each in found] == [b"row"]
    assert cluster.now - begun <= LONGEST_PAUSE_REMOTE + 0.05


def test_on_a_disk_every_poll_looks(monkeypatch):
    cluster = CountedCluster(monkeypatch, is_object_store=False)
    cluster.log.create("t")
    consumer = reader(cluster)
    assert cluster.in_a_minute(consumer.poll, 0.5)["HEAD"] >= 60
    assert consumer._poller.pause() == pytest.approx(0.1)
