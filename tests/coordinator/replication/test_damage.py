"""Damaged and lost copies do not count and are copied again, and no report costs a row."""

import pytest

from pyspark_log_coordinator.replication import file_holders
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.topic.machine import AlterReplicaNode, HoldFiles, MaintainSegments, ReportDamage, Suspect
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, rolled, started, swap

ABC = ("A", "B", "C")


def bad(node, *files, segments=(), named=None):
    """Return the report that files, as number and position, and segments of a node are damaged."""
    return ReportDamage(node, named or incarnation(node), files, tuple(segments))


def filled(min_insync=1, **config):
    """Return a topic on A, B and C, of two partitions, with two files: 0 has rows of both, 1 of partition 0."""
    state = started(2, ABC, min_insync, **config)
    state = after(state, commit(None, file({0: 2, 1: 1}, on=ABC)))
    return after(state, commit(None, file({0: 3}, on=ABC)))


# What a report changes


def test_a_damaged_file_ends_what_the_node_has_of_all_partitions_that_it_has_rows_of():
    assert decide(filled(), bad("B", (0, 64))) == [
        IsrShrunk(0, ("A", "C")),
        IsrShrunk(1, ("A", "C")),
        CopiesDamaged("B", ((0, 64),), ()),
    ]
    state = after(filled(), bad("B", (0, 64)))
    assert [one.log_end_offsets for one in state.partitions] == [{"A": 5, "B": 0, "C": 5}, {"A": 1, "B": 0, "C": 1}]
    assert [number for number, _ in file_holders.missing(state, "B").files] == [0]
    state = after(state, HoldFiles("B", incarnation("B"), (0,)))
    assert state.partitions == filled().partitions


def test_a_damaged_segment_ends_what_the_node_has_of_its_partition():
    state = rolled(filled(), 0, 2, on=ABC)
    name = state.partitions[0].segments[0].name
    state = after(state, bad("C", segments=[(0, name, 99)]))
    assert [one.log_end_offsets["C"] for one in state.partitions] == [0, 1]
    assert [one.isr for one in state.partitions] == [("A", "B"), ABC]


@pytest.mark.parametrize(
    "report",
    [
        bad("B", (0, 1)),
        bad("B", (7, 0)),
        bad("B", segments=[(0, "gone", 0), (9, "gone", 0)]),
        bad("B", (0, 0), named="another"),
        bad("Z", (0, 0)),
    ],
    ids=["no chunk begins there", "no such file", "no such segment", "another incarnation", "another node"],
)
def test_what_the_journal_does_not_name_is_no_damage(report):
    assert decide(filled(), report) == []


def test_damage_behind_the_end_of_a_segment_and_in_rows_that_were_rolled_is_none():
    state = rolled(filled(), 0, 2, on=ABC)
    name = state.partitions[0].segments[0].name
    assert decide(state, bad("B", (0, 0), segments=[(0, name, 100)])) == []
    assert decide(state, bad("B", (0, 64))) != []  # the chunk of partition 1


def test_a_leader_with_a_damaged_copy_gives_the_lead_to_one_that_has_every_row():
    state = after(filled(), commit(None, file({0: 1}, on=("A", "C")), acks="1"))
    state = after(state, bad("A", (1, 0)))
    one = state.partitions[0]
    assert (one.leader, one.leader_epoch, one.isr, one.log_end) == ("C", 1, ("B", "C"), 6)
    assert state.partitions[1].leader == "A"


def test_damage_to_rows_that_are_not_committed_shrinks_no_isr():
    state = after(filled(), commit(None, file({0: 1}, on=("A", "C")), acks="1"))
    assert decide(state, bad("C", (2, 0))) == [CopiesDamaged("C", ((2, 0),), ())]


# What is needed stays counted


def test_a_copy_is_not_given_up_for_one_on_a_node_under_suspicion():
    state = after(started(1, ("A", "B")), commit(None, file({0: 1}, on=("A", "B"))))
    assert decide(state, bad("B", (0, 0))) != []
    assert decide(after(state, Suspect("A", incarnation("A"))), bad("B", (0, 0))) == []


def test_a_lost_copy_is_given_up_for_one_on_a_node_under_suspicion_only_by_a_node_that_is_out_of_sync():
    state = after(started(1, ABC), commit(None, file({0: 1}, on=("A", "B")), acks="1"))
    state = after(state, Suspect("A", incarnation("A")))
    lost = ReportDamage("B", incarnation("B"), ((0, 0),), are_lost=True)
    assert decide(state, lost) == []
    for fenced in (True, False):
        state = after(state, AlterReplicaNode("B", incarnation("B"), fenced=fenced))
    assert decide(state, bad("B", (0, 0))) == []
    assert decide(state, lost) == [CopiesDamaged("B", ((0, 0),), ())]
    assert decide(after(state, AlterReplicaNode("A", "wiped")), lost) == []


def test_a_staged_segment_whose_last_copy_is_damaged_is_given_up_as_nobody_could_copy_it():
    state = after(filled(), MaintainSegments((swap(0, 2, on=("B", "C")),)))
    (staged,) = state.partitions[0].staged
    state = after(state, bad("B", segments=[(0, staged.name, 0)]))
    assert [holder.node for holder in state.partitions[0].staged[0].holders] == ["C"]
    state = after(state, bad("C", segments=[(0, staged.name, 0)]))
    assert (state.partitions[0].staged, state.partitions[0].isr) == ((), ABC)


def test_of_many_copies_those_that_are_not_needed_are_given_up():
    state = after(filled(), commit(None, file({0: 1}, on=("A",)), acks="1"))
    assert decide(state, bad("A", (2, 0))) == [], "the only copy"
    state = after(state, commit(None, file({1: 1}, on=ABC)))
    assert decide(state, bad("A", (0, 0), (1, 0), (2, 0), (3, 0)))[-1] == CopiesDamaged("A", ((3, 0),), ())


@pytest.mark.parametrize(("min_insync", "out"), [(1, ["B", "C"]), (2, ["B"]), (3, [])])
def test_min_insync_replicas_are_left(min_insync, out):
    state = filled(min_insync)
    for node in ("B", "C", "A"):
        state = after(state, bad(node, (1, 0)))
    assert [node for node in ABC if node not in state.partitions[0].isr] == out


@pytest.mark.parametrize("fenced", [False, True])
def test_a_majority_is_left_that_has_what_was_committed_and_fenced_nodes_do_not_count(fenced):
    state = started(1, ABC, replication_mode="quorum")
    state = after(after(state, AlterReplicaNode("A", incarnation("A"), fenced)), commit(None, file({0: 1}, on=ABC)))
    assert bool(decide(state, bad("B", (0, 0)))) != fenced
    assert decide(after(state, bad("B", (0, 0))), bad("C", (0, 0))) == []
