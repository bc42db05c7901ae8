"""Commits, who may make them, rewinds, and the deletion of offsets."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import LeaveGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, OffsetDelete, ResetOffsets
from pyspark_log_coordinator.group.rebalance import SyncGroup
from pyspark_log_coordinator.group.state import CommittedOffset, GroupState
from pyspark_log_storage.errors import (
    FencedInstance,
    GroupNotEmpty,
    IllegalGeneration,
    InvalidInput,
    InvalidOption,
    RebalanceInProgress,
    RewindPending,
    UnknownMember,
)
from tests.support.coordinator.groups import NOW, after, commit, join, refusal, rejoin, stable, started


def reset(offset, partition=0):
    return ResetOffsets({"t": {partition: Offset(offset)}})


def test_a_member_commits():
    command = OffsetCommit({"t": {3: Offset(7, 2, "note")}}, "A", 1)
    group = after(stable(join("A")), command, commit(5, "A", 1), commit(3, "A", 1))
    assert group.committed("t", 3) == CommittedOffset(7, 2, "note", NOW)
    assert group.committed("t", 0).offset == 3, "an offset may go back"
    assert group.committed("t", 1) is None
    assert group.committed("u", 3) is None


def test_the_same_commit_again_makes_no_entry():
    group = after(stable(join("A")), commit(1, "A", 1))
    assert machine.decide(group, commit(1, "A", 1), NOW + 1) == []
    assert machine.decide(group, OffsetCommit({}, "A", 1), NOW) == []


@pytest.mark.parametrize("other", [Offset(8, 2, "note"), Offset(7, 3, "note"), Offset(7, 2, "another")])
def test_a_commit_that_differs_in_offset_leader_epoch_or_text_is_another_one(other):
    group = after(stable(join("A")), OffsetCommit({"t": {0: Offset(7, 2, "note")}}, "A", 1))
    group = after(group, OffsetCommit({"t": {0: other}}, "A", 1))
    assert group.committed("t", 0) == CommittedOffset(other.offset, other.leader_epoch, other.metadata, NOW)


def test_a_commit_of_another_generation_or_of_no_member_is_refused():
    group = after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))
    error = refusal(IllegalGeneration, group, commit(1, "A", 1))
    assert (error.group, error.member, error.generation, error.retriable) == ("g", "A", 1, False)
    assert "generation 2" in error.message
    assert refusal(RebalanceInProgress, group, commit(1, "A", 2)).retriable, "nobody commits before the assignment"
    group = after(stable(join("A"), join("B")), LeaveGroup("B"))
    assert "join again" in refusal(UnknownMember, group, commit(1, "B", 1)).message
    refused = refusal(UnknownMember, stable(join("A")), commit(1, "A", 1, instance_id="x"))
    assert "group.instance.id 'x'" in refused.message
    refusal(UnknownMember, started(), commit(4, "A", 0))


def test_a_commit_of_a_replaced_static_member_is_refused():
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"))
    refusal(FencedInstance, group, commit(1, "B1", 1, instance_id="b"))
    refusal(UnknownMember, group, commit(1, "B1", 1))
    assert after(group, commit(1, "B2", 1, instance_id="b")).committed("t", 0).offset == 1


def test_members_of_the_generation_commit_while_a_rebalance_waits_and_those_that_join_do_not():
    group = after(stable(join("A"), join("B")), join("C"))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert after(group, commit(1, "A", 1)).committed("t", 0).offset == 1
    refusal(IllegalGeneration, group, commit(1, "C", 1))


def test_a_member_that_left_and_joined_again_has_nothing_to_commit():
    group = after(stable(join("A"), join("B")), LeaveGroup("B"), join("B"))
    assert "from generation 2 on" in refusal(IllegalGeneration, group, commit(1, "B", 1)).message


def test_a_simple_consumer_commits_to_an_empty_group_only():
    assert after(started(), commit(4)).committed("t", 0).offset == 4
    assert "choose another group.id" in refusal(UnknownMember, stable(join("A")), commit(4)).message


def test_metadata_is_bounded_in_bytes_not_in_characters():
    group = started(offset_metadata_max_bytes=3)
    assert after(group, commit(1, metadata="äb")).committed("t", 0).metadata == "äb"
    error = refusal(InvalidOption, group, commit(1, metadata="äbc"))
    assert error.option == "offset.metadata.max.bytes"


@pytest.mark.parametrize(
    ("offset", "partition", "epoch"), [(-1, 0, 0), (2**63, 0, 0), (0, -1, 0), (1, 0, -2), (1, 0, 2**63)]
)
def test_offsets_partitions_and_leader_epochs_are_those_that_an_entry_may_have(offset, partition, epoch):
    offsets = {"t": {partition: Offset(offset, epoch)}}
    refusal(InvalidInput, started(), OffsetCommit(offsets))
    refusal(InvalidInput, started(), ResetOffsets(offsets))


# Rewinds


def test_a_commit_that_does_not_know_the_rewind_is_refused():
    group = after(started(), commit(9), commit(1, partition=1), reset(4))
    assert (group.rewinds, group.committed("t", 0).offset, group.committed("t", 0).rewind) == (1, 4, 1)
    assert "continue from there" in refusal(RewindPending, group, commit(10)).message
    assert after(group, commit(2, partition=1)).committed("t", 1).offset == 2
    known = after(group, commit(5, rewinds=1), commit(6, rewinds=1))
    assert known.committed("t", 0).offset == 6
    refusal(RewindPending, known, commit(10))
    assert after(group, reset(4)).rewinds == 2
    assert machine.decide(started(), ResetOffsets({"t": {}}), NOW) == []


def test_no_part_of_a_commit_is_kept_if_one_partition_was_rewound():
    group = after(started(), reset(4, partition=1))
    both = OffsetCommit({"t": {0: Offset(1), 1: Offset(9)}})
    refusal(RewindPending, group, both)


def test_a_group_with_members_is_not_rewound_and_its_members_know_every_rewind():
    group = after(started(), reset(4), join("A"), SyncGroup("A", 1, {"A": b"work"}))
    assert "1 members" in refusal(GroupNotEmpty, group, reset(5)).message
    assert after(group, commit(5, "A", 1)).committed("t", 0).offset == 5


# Deletion


def test_offsets_of_an_empty_group_are_deleted():
    group = after(started(), commit(1), commit(2, partition=1))
    group = after(group, OffsetDelete({"t": (0, 7), "u": (0,)}))
    assert group.offsets == {"t": {1: CommittedOffset(2, -1, "", NOW)}}
    assert machine.decide(group, OffsetDelete({"t": (0,)}), NOW) == []
    assert after(group, OffsetDelete({"t": (1,)})).offsets == {}
    refusal(GroupNotEmpty, after(stable(join("A")), commit(1, "A", 1)), OffsetDelete({"t": (0,)}))
