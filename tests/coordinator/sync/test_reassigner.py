"""Reassignments are carried out whichever process began them, and end as soon as they can."""

import pytest

from pyspark_log_coordinator.cluster.nodes import FenceNode, RemoveNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.sync import catch_up, reassigner
from pyspark_log_coordinator.sync.reassigner import PartitionMove, ReassignmentProgress
from pyspark_log_coordinator.topic.machine import AddPartitions, AlterReplicas
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NodeMissing, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.topics import after, commit, file, incarnation, rolled, started

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


def test_a_segment_that_a_new_replica_has_already_is_not_among_the_bytes_to_copy():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 2}, on=("A", "B"))))
    state = rolled(state, 0, 2, on=("A", "B"), log_bytes=100)
    state = after(state, AlterReplicas({0: ("A",)}, {"A": incarnation("A")}))
    assert reassigner.bytes_to_copy(state, [PartitionMove(0, ("A",), ("B", "C"))]) == 100


def test_another_process_goes_on_where_one_stopped(topic):
    reassigner.begin(topic.handle, THERE)

    def killed(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reassigner.run(topic.handle, killed)
    Follower(topic.log, "3").round()
    _, handle = topic.open()
    assert reassigner.reassigning_partitions(handle.refresh()) == (0, 1)
    assert reassigner.begin(handle, THERE) == ()
    assert reassigner.run(handle).objects == 3
    assert topic.where() == THERE


def test_a_cancelled_reassignment_leaves_everything_where_it_was(topic):
    reassigner.begin(topic.handle, THERE)
    Follower(topic.log, "3").round()
    reassigner.begin(topic.handle, reassigner.original_placement(topic.handle.refresh()))
    assert (topic.where(), reassigner.reassigning_partitions(topic.handle.refresh())) == (HERE, ())
    assert reassigner.run(topic.handle) == ReassignmentProgress(0, 0, (), ())


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


def test_a_lagging_node_is_caught_up_before_it_leads_alone(topic):
    topic.append({0: [b"late"]}, on=("0",), acks="1")
    reassigner.begin(topic.handle, (("1",), ("1",)))
    assert reassigner.reassigning_partitions(topic.handle.refresh()) == (0,)
    assert reassigner.run(topic.handle).objects == 1
    assert topic.where() == (("1",), ("1",))


# What is refused


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ((("3", "4"),), "has 2 partitions, but the assignment has 1"),
        ((("3", "9"), ("3", "4")), "names node '9', which does not exist"),
        ((("3", "3"), ("3", "4")), "names node '3' twice"),
        ((("3", "4"), ("3",)), "has 1 replica, but partition 0 has 2"),
        ((("3", "5"), ("3", "4")), "names node '5', which is fenced"),
        ((("0",), ("1",)), r"a replication factor of 1 is less than min\.insync\.replicas=2"),
    ],
)
def test_an_invalid_assignment_is_refused_and_nothing_begins(wanted, said):
    topic = SixNodes(min_insync_replicas="2")
    node_admin.set_fenced(topic.log, "5", fenced=True)
    with pytest.raises(InvalidOption, match=said):
        reassigner.begin(topic.handle, wanted)
    assert topic.where() == HERE


def test_a_topic_with_fewer_replicas_than_min_insync_asks_for_moves_to_as_many_others():
    state = started(replicas=("A",), min_insync=2)
    assert reassigner.moves(state, (("B",),)) == (PartitionMove(0, ("A",), ("B",)),)


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
    fence_at_the_last_moment(topic, monkeypatch, FenceNode("3"), RemoveNode("3", everything, frozenset(), 1))
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
    late = RemoveNode("3", frozenset({topic.handle.topic_id}), frozenset(), 1)
    fence_at_the_last_moment(topic, monkeypatch, FenceNode("3"))
    act(topic.handle)
    assert any("3" in each.replicas for each in topic.handle.refresh().partitions)
    with pytest.raises(InvalidOption, match="node '3' was fenced again meanwhile, and may have got replicas"):
        topic.log.cluster.submit(late)


# Where replicas go


def test_a_topic_is_spread_evenly_over_nodes(topic):
    topic.handle.refresh()
    assert sorted(map(sorted, reassigner.placement_on(topic.handle, ["3", "4"]))) == [["3", "4"], ["3", "4"]]
    assert [len(each) for each in reassigner.placement_on(topic.handle, ["3", "4", "5"], 3)] == [3, 3]
    node_admin.set_fenced(topic.log, "5", fenced=True)
    with pytest.raises(InvalidOption, match="node '5' is fenced"):
        reassigner.placement_on(topic.handle, ["3", "5"])


def test_additional_replicas_are_placed_on_usable_nodes(topic):
    for node in ("2", "3"):
        topic.disk(node).broken = StoreUnavailable
    node_admin.set_fenced(topic.log, "4", fenced=True)
    topic.log.probe_nodes()
    assert reassigner.placement_with_factor(topic.handle, 3) == (("0", "1", "5"), ("1", "0", "5"))


def test_a_partition_may_stay_on_a_fenced_node_while_another_one_moves(topic):
    node_admin.set_fenced(topic.log, "1", fenced=True)
    assert [each.partition for each in reassigner.begin(topic.handle, (("0", "1"), ("3", "0")))] == [1]
    node_admin.set_fenced(topic.log, "5", fenced=True)
    with pytest.raises(InvalidOption, match="node '5', which is fenced"):
        reassigner.begin(topic.handle, (("0", "1"), ("5", "0")))


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


def test_a_drain_removes_a_node_from_every_topic(topic):
    topic.log.create_topic("elsewhere", 1, replicas=[["2"]])
    [(handle, wanted)] = reassigner.topics_to_drain(topic.log, "1")
    assert handle.name == "t"
    assert not any("1" in nodes for nodes in wanted)
    assert [nodes[0] for nodes in wanted].count("0") == 1


# More partitions


def test_new_partitions_are_not_spread_over_fenced_nodes(topic):
    node_admin.set_fenced(topic.log, "5", fenced=True)
    _, added = reassigner.add_partitions(topic.handle, 14)
    assert {node for nodes in added for node in nodes} == set("01234")


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
