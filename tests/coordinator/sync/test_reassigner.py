"""Reassignments are carried out whichever process began them, and end as soon as they can."""

import pytest

from pyspark_log_coordinator.cluster.machine import FenceNode, RemoveNode
from pyspark_log_coordinator.commit.inline_maintenance import plan_inline
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.sync import catch_up, reassigner
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_coordinator.sync.reassigner import PartitionMove, ReassignmentProgress
from pyspark_log_coordinator.topic.machine import AddPartitions, AlterReplicas, DeleteRecords, PartitionReassignment
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
    found = reassigner.begin(topic.handle, THERE)
    assert [(each.adding, each.removing) for each in found] == [(("3", "4"), ("0", "1")), (("4", "3"), ("1", "0"))]
    size = reassigner.bytes_behind(topic.handle)
    passed = []
    assert reassigner.run(topic.handle, passed.append) == ReassignmentProgress(6, size, (), ())
    assert sum(passed) == size
    assert topic.where() == THERE
    assert [each.leader for each in topic.handle.journal.state.partitions] == ["3", "4"]
    assert topic.content("3") == topic.content("4") == topic.content("0")


def test_the_bytes_announced_are_the_bytes_copied(topic):
    found = reassigner.moves(topic.handle.refresh(), THERE)
    told = reassigner.bytes_to_copy(topic.handle.journal.state, found)
    reassigner.begin(topic.handle, THERE)
    assert reassigner.run(topic.handle).bytes == told


def test_a_segment_that_a_new_replica_has_already_is_not_among_the_bytes_to_copy():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 2}, on=("A", "B"))))
    state = rolled(state, 0, 2, on=("A", "B"), log_bytes=100)
    state = after(state, AlterReplicas((PartitionReassignment(0, ("A",)),), {"A": incarnation("A")}))
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


def test_a_follower_ends_a_reassignment_too(topic):
    reassigner.begin(topic.handle, THERE)
    for node in ("3", "4"):
        Follower(topic.log, node).round()
    assert topic.where() == THERE
    assert reassigner.run(topic.handle) == ReassignmentProgress(0, 0, (), ())


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

    monkeypatch.setattr(catch_up, "catch_up", busy)
    done = reassigner.run(topic.handle)
    assert (done.unfinished, done.failures) == ((1,), ("/disk/5 was taken away by the test",))
    assert topic.where()[0] == ("0", "3")


def test_a_missing_node_is_reported_and_the_others_are_caught_up(topic):
    reassigner.begin(topic.handle, THERE)
    topic.disk("3").broken = StoreUnavailable
    done = reassigner.run(topic.handle)
    assert (done.objects, done.unfinished) == (3, (0, 1))
    assert done.failures == ("/disk/3 was taken away by the test",)
    topic.disk("3").broken = None
    assert reassigner.run(topic.handle).objects == 3
    assert topic.where() == THERE


def test_a_file_without_a_whole_copy_is_reported_and_the_reassignment_waits(topic):
    name = topic.append(ROWS, on=("0", "1"), acks="all")
    for node in ("0", "1"):
        topic.log.node_store(node).delete(topic.handle.append_file(name))
    reassigner.begin(topic.handle, THERE)
    done = reassigner.run(topic.handle)
    assert (done.objects, done.unfinished, len(done.failures)) == (6, (0, 1), 2)
    assert name in done.failures[0]


def test_removing_replicas_needs_no_copy_but_another_leader(topic):
    reassigner.begin(topic.handle, (("1",), ("1",)))
    assert reassigner.run(topic.handle).objects == 0
    assert topic.where() == (("1",), ("1",))
    assert [each.leader for each in topic.handle.journal.state.partitions] == ["1", "1"]


def test_a_lagging_node_is_caught_up_before_it_leads_alone(topic):
    topic.append({0: [b"late"]}, on=("0",), acks="1")
    reassigner.begin(topic.handle, (("1",), ("1",)))
    assert reassigner.reassigning_partitions(topic.handle.refresh()) == (0,)
    assert reassigner.run(topic.handle).objects == 1
    assert topic.where() == (("1",), ("1",))


def test_files_left_on_a_former_replica_expire_with_retention():
    topic = SixNodes(file_delete_delay_ms="0", flush_messages="1")
    reassigner.begin(topic.handle, THERE)
    reassigner.run(topic.handle)
    assert len(topic.keys("0")) == 3
    topic_roll.roll_and_merge(topic.handle)
    for number in range(2):
        topic.handle.submit(DeleteRecords(number, 3))
    topic_cleanup.clean_up_topic(topic.handle)
    assert [topic.keys(node) for node in "0134"] == [[]] * 4


# What is refused


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ((("3", "4"),), "has 2 partitions, but the assignment has 1"),
        ((("3", "9"), ("3", "4")), "names node '9', which does not exist"),
        ((("3", "3"), ("3", "4")), "names node '3' twice"),
        ((("3", "4"), ("3",)), "has 1 replica, but partition 0 has 2"),
        ((("3", "5"), ("3", "4")), "names node '5', which is fenced"),
    ],
)
def test_an_invalid_assignment_is_refused_and_nothing_begins(topic, wanted, said):
    node_admin.set_fenced(topic.log, "5", fenced=True)
    with pytest.raises(InvalidOption, match=said):
        reassigner.begin(topic.handle, wanted)
    assert topic.where() == HERE


def test_fewer_replicas_than_min_insync_asks_for_are_refused():
    topic = SixNodes(min_insync_replicas="2")
    with pytest.raises(InvalidOption, match=r"a replication factor of 1 is less than min\.insync\.replicas=2"):
        reassigner.begin(topic.handle, (("0",), ("1",)))


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


def test_a_node_is_not_removed_by_what_its_topics_were_before_it_was_fenced(topic, monkeypatch):
    def looked(*_):
        pytest.fail("the topics were looked at while the node was in use")

    monkeypatch.setattr(node_admin, "has_replicas", looked)
    with pytest.raises(InvalidOption, match="fence it first"):
        node_admin.remove(topic.log, "5")


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


def test_with_fewer_replicas_the_only_one_in_sync_stays_while_its_node_is_missing(topic):
    # Node 1 has the most replicas, so it would be the first to lose one.
    topic.handle = topic.log.create_topic("u", 2, replicas=[["1", "0", "2"], ["1", "3", "4"]])
    topic.append({0: [b"a"]}, on=("1",), acks="all")
    assert topic.partition().isr == ("1",)
    topic.disk("1").broken = StoreUnavailable
    topic.log.probe_nodes()
    assert reassigner.placement_with_factor(topic.handle, 2) == (("1", "0"), ("3", "4"))


def test_a_drain_removes_a_node_from_every_topic(topic):
    topic.log.create_topic("elsewhere", 1, replicas=[["2"]])
    [(handle, wanted)] = reassigner.topics_to_drain(topic.log, "1")
    assert handle.name == "t"
    assert not any("1" in nodes for nodes in wanted)
    assert [nodes[0] for nodes in wanted].count("0") == 1


# More partitions


def test_added_partitions_continue_the_spread():
    topic = SixNodes()
    log = topic.log
    both, grown = log.create_topic("both", 5, replication_factor=3), log.create_topic("grown", 3, replication_factor=3)
    assert reassigner.add_partitions(grown, 5)[0] == 3
    partitions = grown.refresh().partitions
    assert len({each.replicas[0] for each in partitions}) == 5
    assert len({each.replicas[0] for each in both.refresh().partitions}) == 5
    assert [len(each.isr) for each in partitions] == [3] * 5


def test_new_partitions_are_not_spread_over_fenced_nodes(topic):
    node_admin.set_fenced(topic.log, "5", fenced=True)
    _, added = reassigner.add_partitions(topic.handle, 14)
    assert {node for nodes in added for node in nodes} == set("01234")


def test_the_nodes_of_new_partitions_may_be_chosen(topic):
    assert reassigner.add_partitions(topic.handle, 3, (("5", "2"),)) == (2, (("5", "2"),))
    assert topic.where() == (*HERE, ("5", "2"))
    topic.append({2: [b"c"]}, on=("5", "2"), acks="all")
    assert topic.partition(2).high_watermark == 1


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


def test_a_move_lists_the_added_and_the_removed_nodes():
    move = PartitionMove(0, ("0", "1"), ("1", "2"))
    assert (move.adding, move.removing) == (("2",), ("0",))


# Nodes that join and leave while other processes run


def test_a_process_copies_to_a_node_that_joined_after_it_began(topic):
    writer = topic.stores.log().topic("t")
    node_admin.join(topic.log, "/disk/6")
    reassigner.begin(topic.handle, (("0", "6"), ("6", "0")))
    writer.journal.refresh()  # as a commit does that was refused
    assert catch_up.catch_up(writer, "6").objects == 3
    assert reassigner.target_placement(writer.refresh()) == topic.where() == (("0", "6"), ("6", "0"))


def test_a_process_rolls_onto_a_node_that_joined_after_it_began():
    topic = SixNodes(flush_messages=1)
    writer = topic.stores.log().topic("t")
    node_admin.join(topic.log, "/disk/6")
    reassigner.begin(topic.handle, (("0", "6"), ("6", "0")))
    reassigner.run(topic.handle)
    writer.journal.refresh()
    works = plan_inline(writer)
    assert {each.addresses[target] for each in works for target in each.targets} == {".", "/disk/6"}


def test_a_node_that_was_wiped_holds_nothing_when_a_partition_moves_back_to_it(topic, monkeypatch):
    reassigner.begin(topic.handle, (("0", "5"), ("5", "0")))
    reassigner.run(topic.handle)
    with monkeypatch.context() as patch:
        patch.setattr(node_admin, "update_topics", lambda *_: None)  # interrupted
        node_admin.renew(topic.log, "1", "/disk/new")
    reassigner.begin(topic.handle, HERE)
    assert topic.partition().log_end_offsets["1"] == 0
    assert reassigner.run(topic.handle).objects == 3
    assert topic.where() == HERE


def test_a_node_that_was_removed_is_a_failed_node_to_a_process_that_began_later(topic):
    topic.log.cluster.submit(FenceNode("5"))
    node_admin.remove(topic.log, "5")
    writer = topic.stores.log()
    with pytest.raises(NodeMissing, match="node '5' was removed from the cluster"):
        writer.node_store("5")
    with pytest.raises(InvalidOption, match="node '9' does not exist"):
        writer.node_store("9")


def test_the_change_of_a_node_that_is_removed_meanwhile_is_copied_to_no_topic(topic):
    before = topic.handle.refresh()
    topic.log.cluster.submit(FenceNode("5"))
    node_admin.remove(topic.log, "5")
    node_admin.update_topics(topic.log, "5")
    assert topic.handle.refresh() == before
