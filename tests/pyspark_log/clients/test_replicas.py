"""Clients of a topic with three replicas, some of which are lost."""

import shutil

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.clients import reading
from pyspark_log.reading.groups import lags, oldest_unread_ms
from pyspark_log.ui import content
from pyspark_log.ui.view import Watch
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.topic.machine import Holder, Suspect, Suspicion
from pyspark_log_storage.errors import DataLoss, LogError
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder
from tests.support.pyspark_log.three_folders import ThreeFolders

GUARD = 60


@pytest.fixture
def topic(tmp_path):
    return ThreeFolders(tmp_path, min_insync_replicas=2)


def read(path, **options):
    with Consumer(path, **options) as consumer:
        consumer.assign(consumer.partitions("t"), "earliest")
        values = []
        while found := consumer.poll():
            values += [row.value for row in found]
        return values


def test_a_row_is_on_all_replicas_when_it_is_acknowledged(topic):
    with Producer(topic.path, linger_ms=0) as producer:
        producer.send("t", b"a").result(GUARD)
    assert set(topic.partition.log_end_offsets.values()) == {1}
    for number in (1, 2):
        lose_folder(topic.nodes[number - 1])
    assert read(topic.path) == [b"a"]


def test_rows_go_on_when_a_node_is_lost(topic):
    with Producer(topic.path, linger_ms=0) as producer:
        producer.send("t", b"before").result(GUARD)
        lose_folder(topic.nodes[0])
        assert producer.send("t", b"after").result(GUARD).offset == 1
    assert topic.partition.isr == ("2", "3")
    assert read(topic.path) == [b"before", b"after"]


def test_rows_are_refused_without_enough_replicas_and_accepted_when_one_is_back(topic):
    with Producer(topic.path, linger_ms=0, delivery_timeout_ms=300) as producer:
        producer.send("t", b"before").result(GUARD)
        for number in (1, 2):
            topic.take_away(number)
        future = producer.send("t", b"refused")
        with pytest.raises(LogError, match=r"min\.insync\.replicas"):
            future.result(GUARD)
    topic.bring_back(1)
    with Producer(topic.path, linger_ms=0) as producer:
        producer.send("t", b"after").result(GUARD)
    assert read(topic.path) == [b"before", b"after"]


def test_a_consumer_fails_over_while_it_reads(topic):
    with Producer(topic.path, linger_ms=0) as producer:
        for number in range(30):
            producer.send("t", b"%d" % number).result(GUARD)
    with Consumer(topic.path, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([("t", 0)], "earliest")
        found = consumer.poll(max_records=5)
        shutil.rmtree(f"{topic.nodes[0]}/topics")
        found += consumer.poll(max_records=10)
        lose_folder(topic.nodes[1])
        while more := consumer.poll(max_records=10):
            found += more
    assert [row.value for row in found] == [b"%d" % number for number in range(30)]


def test_a_consumer_sees_no_row_above_the_high_watermark(topic):
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on the leader alone"]}, ("1",), "1")
    with Consumer(topic.path) as consumer:
        consumer.assign([("t", 0)], "earliest")
        assert [row.value for row in consumer.poll(50)] == [b"on all"]
        assert consumer.end_offsets([("t", 0)]) == {("t", 0): 1}
        for node in ("2", "3"):
            catch_up.catch_up(topic.handle, node)
        assert [row.value for row in consumer.poll(GUARD * 1000)] == [b"on the leader alone"]


def elect_2_instead_of_1(topic):
    of_node = topic.handle.journal.state.incarnations
    topic.handle.submit(Suspect("1", of_node["1"]))
    gone = tuple(Suspicion(*each) for each in topic.handle.journal.state.suspects.items())
    topic.handle.submit(ElectLeaders((Holder("2", of_node["2"]),), gone, unclean=True))


def test_a_consumer_whose_rows_an_unclean_election_has_cut_says_so(tmp_path):
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on 1"] * 2}, ("1",), "all")
    with Consumer(topic.path, auto_offset_reset="none") as consumer:
        consumer.assign([("t", 0)], {("t", 0): 0})
        assert len(consumer.poll(GUARD * 1000)) == 3
        elect_2_instead_of_1(topic)
        write(topic.log, topic.handle, 2, {0: [b"on 2"] * 3}, ("2",), "all")
        assert topic.partition.high_watermark == 4
        with pytest.raises(DataLoss, match="offset 3 is not in the log, which ends at 1"):
            consumer.poll(GUARD * 1000)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_on_where_an_unclean_election_has_cut_its_rows(tmp_path, reset):
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on 1"] * 2}, ("1",), "all")
    with Consumer(topic.path, auto_offset_reset=reset) as consumer:
        consumer.assign([("t", 0)], {("t", 0): 0})
        assert len(consumer.poll(GUARD * 1000)) == 3
        elect_2_instead_of_1(topic)
        write(topic.log, topic.handle, 2, {0: [b"on 2"] * 3}, ("2",), "all")
        assert [row.offset for row in consumer.poll(GUARD)] == [1, 2, 3]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_iteration_that_is_left_goes_on_where_an_unclean_election_has_cut_its_rows(tmp_path, monkeypatch, reset):
    monkeypatch.setattr(reading, "BUSY_LOOK_SECONDS", 0)
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on 1"] * 3}, ("1",), "all")
    with Consumer(topic.path, auto_offset_reset=reset) as consumer:
        consumer.assign([("t", 0)], {("t", 0): 0})
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        elect_2_instead_of_1(topic)
        write(topic.log, topic.handle, 2, {0: [b"on 2"] * 3}, ("2",), "all")
        assert [row.offset for row in consumer.poll(GUARD * 1000)] == [1, 2, 3]


def test_the_lag_of_a_consumer_has_the_rows_that_took_the_place_of_those_it_had_read(tmp_path):
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on 1"] * 2}, ("1",), "all")
    with Consumer(topic.path) as consumer:
        consumer.assign([("t", 0)], "earliest")
        assert len(consumer.poll(GUARD * 1000)) == 3
        elect_2_instead_of_1(topic)
        write(topic.log, topic.handle, 2, {0: [b"on 2"] * 3}, ("2",), "all")
        consumer.pause(("t", 0))
        consumer.poll(0)
        assert [(each.offset, each.lag) for each in consumer._reading.places()] == [(3, 3)]
        consumer.resume(("t", 0))
        assert len(consumer.poll(GUARD * 1000)) == 3


def test_the_lag_of_a_group_has_the_rows_that_took_the_place_of_those_it_had_read(tmp_path):
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    write(topic.log, topic.handle, 1, {0: [b"on 1"] * 2}, ("1",), "all")
    with Consumer(topic.path, group_id="g") as consumer:
        consumer.assign([("t", 0)], "earliest")
        assert len(consumer.poll(GUARD * 1000)) == 3
        consumer.commit()
    elect_2_instead_of_1(topic)
    write(topic.log, topic.handle, 2, {0: [b"on 2"] * 2}, ("2",), "all")
    (behind,) = lags(topic.log, topic.log.group("g").state)
    assert (behind.committed, behind.unread, behind.latest, behind.lag) == (3, 1, 3, 2)
    assert oldest_unread_ms(topic.log, behind) is not None
    page = content.group(Watch(topic.log, topic.path).look(), {"group": "g"})
    assert page["unread"].keys() == {("t", 0)}
    assert page["oldest"] is not None


def test_a_consumer_seeks_rows_of_a_leader_that_it_does_not_know_yet(tmp_path):
    topic = ThreeFolders(tmp_path)
    write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
    with Consumer(topic.path, auto_offset_reset="none") as consumer:
        consumer.assign([("t", 0)], "earliest")
        assert len(consumer.poll(GUARD * 1000)) == 1
        elect_2_instead_of_1(topic)
        write(topic.log, topic.handle, 1, {0: [b"first", b"second"]}, ("2",), "all")
        consumer.seek(("t", 0), 2)
        assert [row.value for row in consumer.poll(GUARD * 1000)] == [b"second"]


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_each_promise_of_acks_gives_offsets(topic, acks):
    with Producer(topic.path, linger_ms=0, acks=acks) as producer:
        assert [producer.send("t", b"").result(GUARD).offset for _ in range(3)] == [0, 1, 2]
