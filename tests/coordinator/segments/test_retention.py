"""Retention and delete-records move the log start."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.partitions import Partitions
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments.retention import LogStartMoved
from pyspark_log_coordinator.topic.machine import ApplyRetention, DeleteRecords, MaintainSegments
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, at, commit, decide, file, filled, pieces, rolled, started, swap

SECOND = 1000
SECOND_US = 1_000_000


def configured(state, **config):
    return msgspec.structs.replace(state, config=TopicConfig(**config))


def aged(*seconds, **config):
    """Return a topic of segments of ten rows, whose newest rows are of these times, and one unrolled chunk."""
    state = filled(len(seconds) + 1)
    for number, second in enumerate(seconds):
        state = rolled(state, number * 10, number * 10 + 10, max_timestamp=second * SECOND_US)
    return configured(state, **config)


def sized(*sizes, **config):
    """Return a topic of segments of ten rows and such sizes, and one unrolled chunk of 64 bytes."""
    state = filled(len(sizes) + 1)
    for number, size in enumerate(sizes):
        state = rolled(state, number * 10, number * 10 + 10, log_bytes=size)
    return configured(state, retention_ms=-1, **config)


def log_start(state):
    return state.partitions[0].log_start


# By time


@pytest.mark.parametrize(("now", "start"), [(11, 0), (12, 10), (13, 20), (14, 30), (99, 30)])
def test_segments_older_than_retention_ms_go_and_the_unrolled_rest_stays(now, start):
    state = aged(1, 2, 3, retention_ms=10 * SECOND)
    assert log_start(at(state, ApplyRetention(), now * SECOND)) == start


def test_a_segment_of_exactly_that_age_stays():
    assert log_start(at(aged(1, retention_ms=10 * SECOND), ApplyRetention(), 11 * SECOND)) == 0
    assert log_start(at(aged(1, retention_ms=10 * SECOND), ApplyRetention(), 11 * SECOND + 1)) == 10


def test_an_old_segment_behind_a_younger_one_stays():
    assert log_start(at(aged(50, 1, retention_ms=10 * SECOND), ApplyRetention(), 55 * SECOND)) == 0


def test_minus_one_keeps_all_for_ever():
    state = aged(1, retention_ms=-1)
    assert at(state, ApplyRetention(), 10**15) is state


# By size


@pytest.mark.parametrize(
    ("limit", "start"),
    [(1000, 0), (665, 0), (664, 0), (565, 0), (564, 10), (365, 10), (364, 20), (65, 20), (64, 30), (1, 30), (0, 30)],
)
def test_the_oldest_segments_go_as_long_as_the_rest_is_as_large_as_retention_bytes(limit, start):
    state = sized(100, 200, 300, retention_bytes=limit)  # 664 with the unrolled chunk
    assert log_start(at(state, ApplyRetention(), 0)) == start


def test_without_a_limit_of_bytes_all_stay():
    assert decide(sized(10**12, 10**12), ApplyRetention()) == []


@given(st.lists(st.integers(1, 500), max_size=8), st.integers(0, 2000))
def test_what_retention_bytes_leaves_is_the_least_that_is_not_below_it(sizes, limit):
    state = at(sized(*sizes, retention_bytes=limit), ApplyRetention(), 0)
    left = [each.log_bytes for each in state.partitions[0].segments]
    assert left == sizes[len(sizes) - len(left) :]
    gone = sizes[: len(sizes) - len(left)]
    assert not gone or sum(left) + 64 >= limit
    assert not left or sum(left) + 64 - left[0] < limit


# What goes with it


def test_expired_segments_are_released_and_nothing_else():
    state = aged(1, 2, 3, retention_ms=10 * SECOND)
    first = state.partitions[0].segments[0]
    new = at(state, ApplyRetention(), 12 * SECOND)
    assert [(each.key, each.at_ms) for each in new.pending_deletions if each not in state.pending_deletions] == [
        (f"0/{first.name}", 12 * SECOND)
    ]


def test_retention_that_finds_nothing_is_no_event():
    state = aged(1, retention_ms=10 * SECOND)
    expired = at(state, ApplyRetention(), 60 * SECOND)
    assert at(expired, ApplyRetention(), 60 * SECOND) is expired


def test_a_batch_may_remain_in_part_because_writers_with_other_clocks_have_written_to_one_of_its_partitions():
    state = configured(filled(1, partitions=2), retention_ms=10 * SECOND)
    for partition, newest in ((0, 1), (1, 50)):
        state = rolled(state, 0, 10, partition=partition, max_timestamp=newest * SECOND_US)
    state = at(state, ApplyRetention(), 20 * SECOND)
    assert [each.log_end - each.log_start for each in state.partitions] == [0, 10]


def test_each_partition_has_its_own_log_start():
    state = configured(filled(2, partitions=2), retention_ms=10 * SECOND)
    state = rolled(state, 0, 10, partition=0, max_timestamp=1)
    state = rolled(state, 0, 20, partition=1, max_timestamp=1)
    state = at(state, ApplyRetention(), 60 * SECOND)
    assert [each.log_start for each in state.partitions] == [10, 20]


def test_offsets_continue_after_all_rows_are_deleted():
    state = rolled(configured(filled(2), retention_ms=10 * SECOND), 0, 20, max_timestamp=1)
    state = at(state, ApplyRetention(), 60 * SECOND)
    one = state.partitions[0]
    assert (one.log_start, one.log_end, one.high_watermark, one.rolled_end) == (20, 20, 20, 20)
    assert pieces(after(state, commit(None, file({0: 5})))) == [("chunk", 20, 25)]


# Delete-records


def test_the_log_starts_in_the_middle_of_a_chunk():
    state = after(filled(3), DeleteRecords(0, 15))
    assert log_start(state) == 15
    assert pieces(state) == [("chunk", 10, 20), ("chunk", 20, 30)]


def test_the_log_starts_in_the_middle_of_a_segment():
    state = after(rolled(filled(3), 0, 10, 30), DeleteRecords(0, 15))
    assert log_start(state) == 15
    assert pieces(state) == [("segment", 10, 30)]


@pytest.mark.parametrize("before", [10, 20, 30])
def test_pieces_that_end_at_the_log_start_go(before):
    state = after(rolled(filled(3), 0, 10), DeleteRecords(0, before))
    assert [start for _, start, _ in pieces(state)] == list(range(before, 30, 10))


def test_minus_one_deletes_all_rows():
    state = after(rolled(filled(3), 0, 10), DeleteRecords(0, -1))
    assert log_start(state) == 30
    assert pieces(state) == []
    assert len(state.files) == 0


def test_minus_one_deletes_no_row_above_the_high_watermark():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",)), acks="1"))
    state = after(state, DeleteRecords(0, -1))
    assert log_start(state) == 10
    assert pieces(state) == [("chunk", 10, 20)]


@pytest.mark.parametrize("before", [31, 10**18, -2])
def test_an_offset_outside_the_log_is_refused(before):
    with pytest.raises(InvalidInput, match="from 0 to 30, the end of the log"):
        decide(filled(3), DeleteRecords(0, before))


def test_an_offset_above_the_high_watermark_is_refused():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",)), acks="1"))
    with pytest.raises(InvalidInput, match="from 0 to 10, the end of the log"):
        decide(state, DeleteRecords(0, 11))


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_that_is_not_there_is_refused(partition):
    with pytest.raises(InvalidInput, match="no partition"):
        decide(filled(3), DeleteRecords(partition, 0))


@pytest.mark.parametrize("before", [0, 10, 15])
def test_the_log_start_never_goes_back(before):
    state = after(filled(3), DeleteRecords(0, 15))
    assert decide(state, DeleteRecords(0, before)) == []


def test_the_high_watermark_itself_may_be_the_log_start():
    assert decide(filled(3), DeleteRecords(0, 30)) == [LogStartMoved(0, 30, 0)]


def test_a_swap_after_the_log_start_moved_inside_its_range_keeps_the_rows_behind_it():
    state = rolled(after(filled(3), DeleteRecords(0, 5)), 0, 20)
    assert log_start(state) == 5
    assert after(state, DeleteRecords(0, 20)).partitions[0].segments == ()


# Leader epochs, as Kafka's truncateFromStart has it


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (0, ((0, 0), (1, 10), (3, 20))),
        (5, ((0, 5), (1, 10), (3, 20))),
        (10, ((1, 10), (3, 20))),
        (11, ((1, 11), (3, 20))),
        (25, ((3, 25),)),
        (30, ((3, 30),)),
    ],
)
def test_epochs_before_the_log_start_go_and_the_first_left_begins_there(before, kept):
    state = filled(3)
    one = msgspec.structs.replace(state.partitions[0], epoch_starts=((0, 0), (1, 10), (3, 20)), leader_epoch=3)
    state = msgspec.structs.replace(state, partitions=Partitions((one,)))
    assert after(state, DeleteRecords(0, before)).partitions[0].epoch_starts == kept


def test_a_swap_of_a_range_whose_rows_were_all_deleted_is_dropped():
    state = after(filled(3), DeleteRecords(0, 20))
    assert pieces(after(state, MaintainSegments((swap(0, 20),)))) == [("chunk", 20, 30)]


def test_a_replica_that_lacks_rows_before_the_log_start_continues_there():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",))))
    assert (state.partitions[0].isr, state.partitions[0].log_end_offsets) == (("A",), {"A": 20, "B": 10})
    assert after(state, DeleteRecords(0, 10)).partitions[0].log_end_offsets == {"A": 20, "B": 10}
    assert after(state, DeleteRecords(0, 20)).partitions[0].log_end_offsets == {"A": 20, "B": 20}
