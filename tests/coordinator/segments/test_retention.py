"""Retention and delete-records move the log start."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments.retention import LogStartMoved, future_segments
from pyspark_log_coordinator.topic.machine import ApplyRetention, DeleteRecords, MaintainSegments
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, at, commit, decide, file, filled, pieces, rolled, started, swap

SECOND = 1000
SECOND_US = 1_000_000
AFTER_TEN_SECONDS = {"retention_ms": 10 * SECOND}


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


@pytest.mark.parametrize(("now_ms", "start"), [(11_000, 0), (11_001, 10), (12_001, 20), (13_001, 30), (99_000, 30)])
def test_segments_older_than_retention_ms_expire_and_the_unrolled_rest_stays(now_ms, start):
    state = at(aged(1, 2, 3, **AFTER_TEN_SECONDS), ApplyRetention(), now_ms)
    assert log_start(state) == start
    assert at(state, ApplyRetention(), now_ms) is state


def test_an_old_segment_behind_a_younger_one_stays():
    assert log_start(at(aged(50, 1, **AFTER_TEN_SECONDS), ApplyRetention(), 55 * SECOND)) == 0


def test_a_segment_with_a_row_of_the_future_expires_by_when_it_was_written():
    state = aged(10**9, 1, **AFTER_TEN_SECONDS)
    (first, *others) = state.partitions[0].segments
    first = msgspec.structs.replace(first, until_ms=2 * SECOND)
    partition = msgspec.structs.replace(state.partitions[0], segments=(first, *others))
    state = msgspec.structs.replace(state, partitions=(partition,))
    assert log_start(at(state, ApplyRetention(), 12 * SECOND)) == 0
    assert log_start(at(state, ApplyRetention(), 12 * SECOND + 1)) == 20
    assert [each.name for each in future_segments(partition, 12 * SECOND)] == [first.name]


def test_minus_one_keeps_all_for_ever():
    state = aged(1, retention_ms=-1)
    assert at(state, ApplyRetention(), 10**15) is state


# By size


@pytest.mark.parametrize(("limit", "start"), [(665, 0), (565, 0), (564, 10), (364, 20), (65, 20), (64, 30), (0, 30)])
def test_the_oldest_segments_expire_as_long_as_the_rest_is_as_large_as_retention_bytes(limit, start):
    state = sized(100, 200, 300, retention_bytes=limit)  # 664 with the unrolled chunk
    assert log_start(at(state, ApplyRetention(), 0)) == start


@given(st.lists(st.integers(1, 500), max_size=8), st.integers(-1, 2000))
def test_what_retention_bytes_leaves_is_the_least_that_is_not_below_it(sizes, limit):
    state = at(sized(*sizes, retention_bytes=limit), ApplyRetention(), 0)
    left = [each.log_bytes for each in state.partitions[0].segments]
    assert left == sizes[len(sizes) - len(left) :]
    gone = sizes[: len(sizes) - len(left)]
    assert not gone or sum(left) + 64 >= limit >= 0
    assert not left or limit < 0 or sum(left) + 64 - left[0] < limit


# What changes with it


def test_expired_segments_are_released_and_nothing_else():
    state = aged(1, 2, 3, **AFTER_TEN_SECONDS)
    first = state.partitions[0].segments[0]
    new = at(state, ApplyRetention(), 12 * SECOND)
    assert [(each.key, each.at_ms) for each in new.pending_deletions if each not in state.pending_deletions] == [
        (f"0/{first.name}", 12 * SECOND)
    ]


def test_each_partition_has_its_own_log_start_so_a_batch_may_remain_in_part():
    state = configured(filled(1, partitions=3), **AFTER_TEN_SECONDS)
    for partition, newest in ((0, 1), (1, 50), (2, 2)):
        state = rolled(state, 0, 10, partition=partition, max_timestamp=newest * SECOND_US)
    state = at(state, ApplyRetention(), 20 * SECOND)
    assert [each.log_end - each.log_start for each in state.partitions] == [0, 10, 0]


def test_offsets_continue_after_all_rows_are_deleted():
    state = rolled(configured(filled(2), **AFTER_TEN_SECONDS), 0, 20, max_timestamp=1)
    state = at(state, ApplyRetention(), 60 * SECOND)
    one = state.partitions[0]
    assert (one.log_start, one.log_end, one.high_watermark, one.rolled_end) == (20, 20, 20, 20)
    assert pieces(after(state, commit(None, file({0: 5})))) == [("chunk", 20, 25)]


# Delete-records


def test_the_log_starts_in_the_middle_of_a_chunk_or_segment_and_never_goes_back():
    for state, left in (
        (filled(3), [("chunk", 10, 20), ("chunk", 20, 30)]),
        (rolled(filled(3), 0, 10, 30), [("segment", 10, 30)]),
    ):
        new = after(state, DeleteRecords(0, 15))
        assert (log_start(new), pieces(new)) == (15, left)
        assert [decide(new, DeleteRecords(0, before)) for before in (0, 10, 15)] == [[], [], []]


@pytest.mark.parametrize("before", [10, 20, 30])
def test_pieces_that_end_at_the_log_start_are_deleted(before):
    state = after(rolled(filled(3), 0, 10), DeleteRecords(0, before))
    assert [start for _, start, _ in pieces(state)] == list(range(before, 30, 10))


def test_minus_one_deletes_all_rows():
    assert decide(filled(3), DeleteRecords(0, 30)) == [LogStartMoved(0, 30, 0)]
    state = after(rolled(filled(3), 0, 10), DeleteRecords(0, -1))
    assert (log_start(state), pieces(state), len(state.files)) == (30, [], 0)


def test_no_row_above_the_high_watermark_is_deleted():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",)), acks="1"))
    with pytest.raises(InvalidInput, match="from 0 to 10, the end of the log"):
        decide(state, DeleteRecords(0, 11))
    state = after(state, DeleteRecords(0, -1))
    assert (log_start(state), pieces(state)) == (10, [("chunk", 10, 20)])


@pytest.mark.parametrize(
    ("partition", "before", "said"),
    [(0, 31, "from 0 to 30, the end of the log"), (0, -2, "from 0 to 30"), (-1, 0, "no partition"), (1, 0, "no part")],
)
def test_offsets_outside_the_log_and_partitions_that_do_not_exist_are_refused(partition, before, said):
    with pytest.raises(InvalidInput, match=said):
        decide(filled(3), DeleteRecords(partition, before))


def test_a_swap_after_the_log_start_moved_inside_its_range_keeps_the_rows_behind_it():
    state = rolled(after(filled(3), DeleteRecords(0, 5)), 0, 20)
    assert log_start(state) == 5
    assert after(state, DeleteRecords(0, 20)).partitions[0].segments == ()
    state = after(filled(3), DeleteRecords(0, 20))
    assert pieces(after(state, MaintainSegments((swap(0, 20),)))) == [("chunk", 20, 30)]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (0, ((0, 0), (1, 10), (3, 20))),
        (5, ((0, 5), (1, 10), (3, 20))),
        (10, ((1, 10), (3, 20))),
        (11, ((1, 11), (3, 20))),
        (30, ((3, 30),)),
    ],
)
def test_epochs_before_the_log_start_are_dropped_and_the_first_left_begins_there(before, kept):
    """As in Kafka's truncateFromStart."""
    state = filled(3)
    one = msgspec.structs.replace(state.partitions[0], epoch_starts=((0, 0), (1, 10), (3, 20)), leader_epoch=3)
    state = msgspec.structs.replace(state, partitions=(one,))
    assert after(state, DeleteRecords(0, before)).partitions[0].epoch_starts == kept


def test_a_replica_that_lacks_rows_before_the_log_start_continues_there():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",))))
    assert (state.partitions[0].isr, state.partitions[0].log_end_offsets) == (("A",), {"A": 20, "B": 10})
    assert after(state, DeleteRecords(0, 10)).partitions[0].log_end_offsets == {"A": 20, "B": 10}
    assert after(state, DeleteRecords(0, 20)).partitions[0].log_end_offsets == {"A": 20, "B": 20}
