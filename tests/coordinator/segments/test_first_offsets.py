"""The partitions of a new topic may begin at other offsets than 0."""

import msgspec
import pytest

from pyspark_log_coordinator.model.partitions import Partitions
from pyspark_log_coordinator.segments.first_offsets import FIRST_OFFSET_MAX, FirstOffsetsSet
from pyspark_log_coordinator.topic import integrity
from pyspark_log_coordinator.topic.machine import DeleteRecords, SetFirstOffsets
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, commit, decide, file, pieces, rolled, started


def test_a_partition_begins_at_its_first_offset_on_all_replicas():
    state = after(started(partitions=2, replicas=("A", "B")), SetFirstOffsets({1: 100}))
    integrity.check_snapshot(state, 2)
    first, second = state.partitions
    assert (first.log_start, first.log_end) == (0, 0)
    assert (second.log_start, second.high_watermark, second.log_end) == (100, 100, 100)
    assert second.log_end_offsets == {"A": 100, "B": 100}
    assert second.epoch_starts == ((0, 100),)


def test_a_partition_that_has_changed_its_leader_begins_in_the_newest_epoch():
    state = started(replicas=("A", "B"))
    led = msgspec.structs.replace(state.partitions[0], leader="B", leader_epoch=1, epoch_starts=((0, 0), (1, 0)))
    state = after(msgspec.structs.replace(state, partitions=Partitions((led,))), SetFirstOffsets({0: 100}))
    integrity.check_snapshot(state, 2)
    assert state.partitions[0].epoch_starts == ((1, 100),)


def test_rows_follow_the_first_offset_and_are_rolled_from_there():
    state = after(started(), SetFirstOffsets({0: 100}))
    state = after(state, commit(None, file({0: 10})))
    state = after(state, commit(None, file({0: 5})))
    assert pieces(state) == [("chunk", 100, 110), ("chunk", 110, 115)]
    assert pieces(rolled(state, 100, 110)) == [("segment", 100, 110), ("chunk", 110, 115)]


def test_the_same_first_offset_again_changes_nothing():
    state = after(started(partitions=2), SetFirstOffsets({0: 100}))
    assert decide(state, SetFirstOffsets({0: 100, 1: 0})) == []
    assert decide(state, SetFirstOffsets({0: 100, 1: 7})) == [FirstOffsetsSet({1: 7})]


def test_a_partition_that_has_had_rows_keeps_its_offsets():
    state = after(started(), commit(None, file({0: 10})))
    with pytest.raises(InvalidInput, match="it ends at offset 10"):
        decide(state, SetFirstOffsets({0: 100}))
    with pytest.raises(InvalidInput, match="it ends at offset 10"):
        decide(after(state, DeleteRecords(0, 10)), SetFirstOffsets({0: 100}))
    with pytest.raises(InvalidInput, match="it ends at offset 100"):
        decide(after(started(), SetFirstOffsets({0: 100})), SetFirstOffsets({0: 101}))
    with pytest.raises(InvalidInput, match="no partition 1"):
        decide(started(), SetFirstOffsets({1: 7}))


@pytest.mark.parametrize("offset", [-1, FIRST_OFFSET_MAX + 1])
def test_an_offset_that_no_row_can_have_is_refused(offset):
    with pytest.raises(InvalidInput, match=f"cannot begin at offset {offset}"):
        decide(started(), SetFirstOffsets({0: offset}))
