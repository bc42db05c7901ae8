"""How often an idle consumer asks an object store, and how soon it sees the next row."""

import pytest

from pyspark_log import Consumer
from pyspark_log.clients.looks import LONGEST_PAUSE_REMOTE
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


def test_after_a_row_it_sees_the_next_one_at_once(cluster):
    consumer = reader(cluster)
    cluster.log.append("t", {0: [b"first"]})
    cluster.now += LONGEST_PAUSE_REMOTE
    assert len(consumer.poll()) == 1
    for _ in range(5):
        assert consumer.poll() == []
        cluster.log.append("t", {0: [b"next"]})
        assert len(consumer.poll()) == 1


def test_a_consumer_that_has_to_be_fresher_pays_for_it(cluster):
    consumer = reader(cluster, fetch_max_wait_ms=200)
    assert 250 <= sum(cluster.in_a_minute(consumer.poll, 0.05).values()) <= 310


def test_the_pause_grows_with_the_number_of_topics(cluster):
    for number in range(3):
        cluster.log.create(f"more-{number}")
    consumer = reader(cluster, "t", "more-0", "more-1", "more-2")
    consumer.poll()
    assert sum(cluster.in_a_minute(consumer.poll, 0.05).values()) < 35


def test_a_poll_that_waits_looks_as_soon_as_the_pause_is_over(cluster):
    consumer = reader(cluster)
    cluster.now += LONGEST_PAUSE_REMOTE - 0.5
    assert consumer._looks.pause() == pytest.approx(0.5)


def test_on_a_disk_every_poll_looks(monkeypatch):
    cluster = CountedCluster(monkeypatch, is_object_store=False)
    cluster.log.create("t")
    consumer = reader(cluster)
    assert cluster.in_a_minute(consumer.poll, 0.5)["HEAD"] >= 60
    assert consumer._looks.pause() == pytest.approx(0.1)


def test_a_consumer_that_slept_while_entries_were_trimmed_sees_the_rows_within_a_minute(cluster):
    consumer = reader(cluster)
    cluster.log.append("t", {0: [b"row"]})
    journal = cluster.log.log.topic("t").journal
    journal.create_snapshot()
    journal.entries._store.delete(journal.entries.keys(journal.number)[0])
    begun = cluster.now
    while not consumer.poll():
        cluster.now += 1
    assert cluster.now - begun <= 65
