"""Reassignments are carried out whichever process began them, and end as soon as they can."""

import pytest

from pyspark_log_coordinator.cluster.nodes import FenceNode, RemoveNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.replication import reassignment
from pyspark_log_coordinator.replication.reassignment import AddPartitions
from pyspark_log_coordinator.sync import catch_up, reassigner
from pyspark_log_coordinator.sync.reassigner import ReassignmentProgress
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NodeMissing, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores

HERE = (("0", "1"), ("1", "0"))
THERE = (("3", "4"), ("4", "3"))
ROWS = {0: [b"a" * 100], 1: [b"b" * 100]}


class SixNodes(ReplicatedTopic):
    """Topic t of two partitions on nodes 0 and 1, with three batches; nodes 2 to 5 have nothing."""

    def __init__(self, **settings):
        super().__init__(Stores(BreakableStore), replicas=HERE, **settings)
        for number in (3, 4, 5):
            node_admin.join(self.log, f"/disk/{number}")
        for _ in range(3):
            self.append(ROWS, on=("0", "1"), acks="all")

    def disk(self, node):
        return self.stores.at[f"/disk/{node}"]

    def where(self):
        return tuple(each.replicas for each in self.handle.refresh().partitions)


@pytest.fixture
def topic():
    return SixNodes()


def test_a_reassignment_copies_what_is_missing_and_ends(topic):
    told = reassigner.bytes_to_copy(topic.handle.refresh(), reassigner.moves(topic.handle.refresh(), THERE))
    found = reassigner.begin(topic.handle, THERE)
    assert [(each.adding, each.removing) for each in found] == [(("3", "4"), ("0", "1")), (("4", "3"), ("1", "0"))]
    size = reassigner.bytes_to_copy(topic.handle.refresh(), ())
    assert told == size
    passed = []
    assert reassigner.run(topic.handle, passed.append) == ReassignmentProgress(6, size, (), ())
    assert sum(passed) == size
    assert topic.where() == THERE
    assert [each.leader for each in topic.handle.journal.state.partitions] == ["3", "4"]
    assert topic.content("3") == topic.content("4") == topic.content("0")


def test_another_process_goes_on_where_one_stopped(topic):
    reassigner.begin(topic.handle, THERE)

    def killed(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reassigner.run(topic.handle, killed)
    Follower(topic.log, "3").round()
    _, handle = topic.open()
    assert all(map(reassignment.is_reassigning, handle.refresh().partitions))
    assert reassigner.begin(handle, THERE) == ()
    assert reassigner.run(handle).objects == 3
    assert topic.where() == THERE


def test_a_missing_node_is_reported_although_others_write_all_the_time(topic, monkeypatch):
    reassigner.begin(topic.handle, (("0", "3"), ("1", "5")))
    topic.disk("5").broken = StoreUnavailable
    caught_up = catch_up.catch_up
    rounds = []

    def busy(handle, node, **more):
        done = caught_up(handle, node, **more)
        topic.append(ROWS, on=("0", "1", "3"), acks="1")
        rounds.append(node)
        assert len(rounds) < 100
        return done

    with monkeypatch.context() as patch:
        patch.setattr(catch_up, "catch_up", busy)
        done = reassigner.run(topic.handle)
    assert (done.unfinished, done.failures) == ((1,), ("/disk/5 was taken away by the test",))
    assert topic.where()[0] == ("0", "3")
    topic.disk("5").broken = None
    assert reassigner.run(topic.handle).unfinished == ()


# What is refused


def fence_at_the_last_moment(topic, monkeypatch, *commands):
    """Change the cluster between the reading of it and the topic's entry."""
    submit = topic.handle.submit

    def late(command):
        for each in commands:
            topic.log.cluster.submit(each)
        monkeypatch.undo()
        return submit(command)

    monkeypatch.setattr(topic.handle, "submit", late)


def test_a_node_removed_at_the_same_moment_is_noticed(topic, monkeypatch):
    everything = frozenset({topic.handle.topic_id})
    fence_at_the_last_moment(topic, monkeypatch, FenceNode("3"), RemoveNode("3", everything, 1))
    with pytest.raises(InvalidOption, match="node '3' was removed meanwhile; reassign topic 't' to other nodes"):
        reassigner.begin(topic.handle, THERE)
    done = reassigner.run(topic.handle)
    assert done.failures == ("node '3' was removed; reassign to other nodes or cancel",)
    reassigner.begin(topic.handle, (("5", "4"), ("4", "5")))
    assert reassigner.run(topic.handle).unfinished == ()


def test_a_node_fenced_at_the_same_moment_is_fenced_in_the_topic(topic, monkeypatch):
    fence_at_the_last_moment(topic, monkeypatch, FenceNode("3"))
    reassigner.begin(topic.handle, THERE)
    assert topic.handle.refresh().fenced == ("3",)
    done = reassigner.run(topic.handle)
    assert (done.unfinished, done.failures[0][:21]) == ((0, 1), "node '3' is fenced; u")


@pytest.mark.parametrize(
    "act", [lambda h: reassigner.begin(h, THERE), lambda h: reassigner.add_partitions(h, 3, (("3", "4"),))]
)
def test_a_node_is_not_removed_by_what_a_topic_was_before_it_got_replicas_there(topic, monkeypatch, act):
    late = RemoveNode("3", frozenset({topic.handle.topic_id}), 1)
    fence_at_the_last_moment(topic, monkeypatch, FenceNode("3"))
    act(topic.handle)
    assert any("3" in each.replicas for each in topic.handle.refresh().partitions)
    with pytest.raises(InvalidOption, match="node '3' was fenced again meanwhile, and may have got replicas"):
        topic.log.cluster.submit(late)


# Where replicas go


def test_with_fewer_replicas_those_that_have_every_row_stay():
    topic = ReplicatedTopic(Stores(BreakableStore), replicas=(("0", "1", "2"),), min_insync_replicas="2")
    topic.append(on=("0", "1", "2"), acks="all")
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    topic.log.probe_nodes()
    assert reassigner.placement_with_factor(topic.handle, 2) == (("0", "2"),)
    topic.append(on=("0", "2"), acks="all")
    topic.stores.at["/disk/1"].broken = None
    topic.log.probe_nodes()
    assert topic.partition().isr == ("0", "2")
    reassigner.begin(topic.handle, reassigner.placement_with_factor(topic.handle, 2))
    assert (topic.partition().replicas, topic.partition().isr) == (("0", "2"), ("0", "2"))


# More partitions


@pytest.mark.parametrize(
    ("total", "assignments", "said"),
    [
        (2, None, r"already has 2 partitions, and .* never removed; choose 3 to 100000, not 2"),
        (3, (("5", "2"), ("2", "5")), "gets 1 new partition, but the assignment has 2"),
        (3, (("5",),), "partition 2, has 1 replica, but the existing partitions have 2"),
        (3, (("5", "7"),), "names node '7', which does not exist"),
    ],
)
def test_invalid_numbers_of_partitions_are_refused(topic, total, assignments, said):
    with pytest.raises(InvalidOption, match=said):
        reassigner.add_partitions(topic.handle, total, assignments)
    assert topic.where() == HERE


def test_of_two_processes_that_add_partitions_at_once_one_succeeds(topic, monkeypatch):
    submit = topic.handle.submit

    def late(command):
        incarnations = {node: topic.log.cluster.state.nodes[node].incarnation for node in "01"}
        submit(AddPartitions((("0", "1"),), incarnations))
        return submit(command)

    monkeypatch.setattr(topic.handle, "submit", late)
    with pytest.raises(InvalidInput, match="another process added partitions to topic 't' meanwhile"):
        reassigner.add_partitions(topic.handle, 3)
    assert len(topic.where()) == 3


# Nodes that join and leave while other processes run


def test_a_node_that_was_removed_is_a_failed_node_to_a_process_that_began_later(topic):
    topic.log.cluster.submit(FenceNode("5"))
    node_admin.remove(topic.log, "5")
    writer = topic.stores.log()
    with pytest.raises(NodeMissing, match="node '5' was removed from the cluster"):
        writer.node_store("5")
    with pytest.raises(InvalidOption, match="node '9' does not exist"):
        writer.node_store("9")
