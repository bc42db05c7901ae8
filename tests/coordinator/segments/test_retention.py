"""Retention and delete-records move the log start."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords, LogStartMoved, future_segments
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, at, decide, filled, pieces, rolled

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


# Delete-records


def test_the_log_starts_in_the_middle_of_a_chunk_or_segment_and_never_goes_back():
    for state, left in (
        (filled(3), [("chunk", 10, 20), ("chunk", 20, 30)]),
        (rolled(filled(3), 0, 10, 30), [("segment", 10, 30)]),
    ):
        new = after(state, DeleteRecords(0, 15))
        assert (log_start(new), pieces(new)) == (15, left)
        assert [decide(new, DeleteRecords(0, before)) for before in (0, 10, 15)] == [[], [], []]


def test_minus_one_deletes_all_rows():
    assert decide(filled(3), DeleteRecords(0, 30)) == [LogStartMoved(0, 30, 0)]
    state = after(rolled(filled(3), 0, 10), DeleteRecords(0, -1))
    assert (log_start(state), pieces(state), len(state.files)) == (30, [], 0)


@pytest.mark.parametrize(
    ("partition", "before", "said"),
    [(0, 31, "from 0 to 30, the end of the log"), (0, -2, "from 0 to 30"), (-1, 0, "no partition"), (1, 0, "no part")],
)
def test_offsets_outside_the_log_and_partitions_that_do_not_exist_are_refused(partition, before, said):
    with pytest.raises(InvalidInput, match=said):
        decide(filled(3), DeleteRecords(partition, before))


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
