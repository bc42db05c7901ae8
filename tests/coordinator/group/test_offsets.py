"""Commits, who may make them, rewinds, and the deletion of offsets."""

import pytest

from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_coordinator.group.state import CommittedOffset
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidOption,
)
from tests.support.coordinator.groups import NOW, after, commit, join, refusal, stable, started


def test_a_member_commits():
    command = OffsetCommit({"t": {3: Offset(7, 2, "note")}}, "A", 1)
    group = after(stable(join("A")), command, commit(5, "A", 1), commit(3, "A", 1))
    assert group.committed("t", 3) == CommittedOffset(7, 2, "note", NOW)
    assert group.committed("t", 0).offset == 3, "an offset may go back"
    assert group.committed("t", 1) is None
    assert group.committed("u", 3) is None


@pytest.mark.parametrize("other", [Offset(8, 2, "note"), Offset(7, 3, "note"), Offset(7, 2, "another")])
def test_a_commit_that_differs_in_offset_leader_epoch_or_text_is_another_one(other):
    group = after(stable(join("A")), OffsetCommit({"t": {0: Offset(7, 2, "note")}}, "A", 1))
    group = after(group, OffsetCommit({"t": {0: other}}, "A", 1))
    assert group.committed("t", 0) == CommittedOffset(other.offset, other.leader_epoch, other.metadata, NOW)


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
