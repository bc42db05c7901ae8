"""Which replica is read: the leader, or the nearest one in the rack of the reader."""

import msgspec
import pytest

from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.cluster.machine import FenceNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.partitions import Partitions
from pyspark_log_storage.errors import LogError
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.pyspark_log.replicated_rows import BATCHES, Fallible, lose, planned, read, reads, row


@pytest.fixture
def topic():
    """Topic t of BATCHES large rows in as many files, which are on all three nodes; node 0 leads."""
    topic = ReplicatedTopic(Stores(Fallible))
    for number in range(BATCHES):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    return topic


# Which node is read


@pytest.fixture
def racks():
    """A log of nodes 0 to 3, of which 1 and 3 are in the rack east, and topic t on all of them, led by node 0."""
    topic = ReplicatedTopic.__new__(ReplicatedTopic)
    topic.stores = Stores(Fallible)
    topic.log = topic.stores.log()
    for number, rack in ((1, "east"), (2, "west"), (3, "east")):
        node_admin.join(topic.log, f"/disk/{number}", rack=rack)
    topic.handle = topic.log.create_topic("t", 1, replicas=[list("0123")])
    topic._batches = iter(range(100))
    topic.append({0: [b"a"]}, on=list("0123"), acks="all")
    return topic


def order(topic, rack=""):
    return [each.node for each in planned(topic, rack=rack).nodes]


def test_the_leader_comes_first_unless_a_node_is_in_the_readers_rack(racks):
    assert order(racks) == ["0", "1", "2", "3"]
    assert order(racks, "east") == ["1", "3", "0", "2"]
    assert order(racks, "west") == ["2", "0", "1", "3"]
    assert order(racks, "nowhere") == ["0", "1", "2", "3"]


def test_the_leader_of_the_rack_comes_first_in_it(racks):
    partition = msgspec.structs.replace(racks.partition(), leader="3")
    state = msgspec.structs.replace(racks.handle.journal.state, partitions=Partitions((partition,)))
    racks.handle.journal.state = state
    range_ = Range("t", 0, 0, 1)
    assert [each.node for each in split_of(racks.handle, range_, "east").nodes] == ["3", "1", "0", "2"]


def test_the_node_of_the_readers_rack_is_the_one_that_is_read(racks):
    split = planned(racks, rack="west")
    assert find_again(racks.log, split, 0) == split
    assert read(racks, split) == [b"a"]
    assert reads(racks) == {"2": 1}
    assert offset_for_time(racks.handle, 0, 0, "east") == 0
    assert reads(racks) == {"1": 1}


def test_fenced_and_missing_nodes_come_last(racks):
    racks.log.cluster.submit(FenceNode("1"))
    racks.log.missing_nodes = {"0": LogError("gone")}
    assert order(racks, "east") == ["3", "2", "1", "0"]


def test_a_node_that_only_holds_a_file_is_read_too():
    topic = ReplicatedTopic(Stores(Fallible), replicas=[["0", "1"], ["1", "2"]])
    topic.append({0: [b"a"], 1: [b"other"]}, on=ALL, acks="all")
    for node in ("0", "1"):
        lose(topic, node)
    assert topic.partition().replicas == ("0", "1")
    assert read(topic, planned(topic)) == [b"a"]


def test_only_holders_are_asked_for_a_file():
    topic = ReplicatedTopic(Stores(Fallible))
    topic.append({0: [b"a"]}, on=ALL, acks="all")
    topic.append({0: [b"b"]}, on=["0", "2"], acks="all")
    topic.append({0: [b"c"]}, on=["0"])
    split = planned(topic, 0, 3)
    names = {key: [each.node for each in split.holders(key)] for key in split.files.values()}
    assert list(names.values()) == [["0", "1", "2"], ["0", "2"], ["0"]]
    lose(topic, "0")
    assert read(topic, planned(topic, 0, 2)) == [b"a", b"b"]
    assert "1" in reads(topic)


def test_a_former_incarnation_holds_nothing(topic):
    state = topic.handle.journal.state
    topic.handle.journal.state = msgspec.structs.replace(state, incarnations={**state.incarnations, "1": "former"})
    split = split_of(topic.handle, Range("t", 0, 0, BATCHES))
    assert [each.node for each in split.nodes] == ["0", "2"]
