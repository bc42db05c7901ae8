"""Clients of a topic with three replicas, some of which are lost."""

import shutil

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.sync import catch_up
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


def test_rows_go_on_without_a_node_are_refused_without_two_and_accepted_when_one_is_back(topic):
    with Producer(topic.path, linger_ms=0, delivery_timeout_ms=300) as producer:
        producer.send("t", b"before").result(GUARD)
        assert set(topic.partition.log_end_offsets.values()) == {1}
        topic.take_away(1)
        assert producer.send("t", b"after").result(GUARD).offset == 1
        assert topic.partition.isr == ("2", "3")
        topic.take_away(2)
        future = producer.send("t", b"refused")
        with pytest.raises(LogError, match=r"min\.insync\.replicas"):
            future.result(GUARD)
    topic.bring_back(2)
    with Producer(topic.path, linger_ms=0) as producer:
        producer.send("t", b"accepted").result(GUARD)
    assert read(topic.path) == [b"before", b"after", b"accepted"]


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


class Cut:
    """A consumer has read three rows, of which an unclean election cuts the last two; others take their places."""

    def __init__(self, path):
        self.topic = topic = ThreeFolders(path)
        write(topic.log, topic.handle, 0, {0: [b"on all"]}, ("1", "2", "3"), "all")
        write(topic.log, topic.handle, 1, {0: [b"on 1"] * 2}, ("1",), "all")
        self.path = topic.path

    def read(self, consumer):
        consumer.assign([("t", 0)], {("t", 0): 0})
        assert len(consumer.poll(GUARD * 1000)) == 3

    def elect_2_instead_of_1(self, rows):
        handle = self.topic.handle
        of_node = handle.journal.state.incarnations
        handle.submit(Suspect("1", of_node["1"]))
        gone = handle.journal.state.suspects
        handle.submit(ElectLeaders((Holder("2", of_node["2"]),), gone, unclean=True))
        write(self.topic.log, handle, 2, {0: [b"on 2"] * rows}, ("2",), "all")


@pytest.fixture
def cut(tmp_path):
    return Cut(tmp_path)


def test_a_consumer_whose_rows_an_unclean_election_has_cut_says_so(cut):
    with Consumer(cut.path, auto_offset_reset="none") as consumer:
        cut.read(consumer)
        cut.elect_2_instead_of_1(3)
        assert cut.topic.partition.high_watermark == 4
        with pytest.raises(DataLoss, match="offset 3 is not in the log, which ends at 1"):
            consumer.poll(GUARD * 1000)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_on_where_an_unclean_election_has_cut_its_rows(cut, reset):
    with Consumer(cut.path, auto_offset_reset=reset) as consumer:
        cut.read(consumer)
        cut.elect_2_instead_of_1(3)
        assert [row.offset for row in consumer.poll(GUARD)] == [1, 2, 3]
