"""The plan of maintenance: when a partition is rolled, what is merged, and how often a byte is written."""

import itertools
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.segments import roll_plan, tiers
from pyspark_log_coordinator.segments.roll_plan import (
    INLINE_ROLL_BYTES,
    INLINE_ROLL_BYTES_MAX,
    LEVEL_MAX,
    MERGE_LOOK_BACK,
    ROLL_BYTES,
    ROLL_CHUNKS,
    ROLL_FILES,
    plan,
)
from pyspark_log_coordinator.segments.tiers import MERGE_COUNT
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX
from tests.support.coordinator.topics import after, at, commit, file, filled, incarnation, rolled, started

CHUNK = 64
"""The size of a chunk in these tests."""
HOUR = 3_600_000


def heavy(rows, size):
    """Return a file of one chunk of so many rows and bytes."""
    made = file({0: rows})
    return SequencedFile(made.name, made.holders, (msgspec.structs.replace(made.chunks[0], length=size),))


def ranges(jobs):
    return [(job.partition, job.level, job.base_offset, job.end_offset) for job in jobs]


def segmented(*levels, size=100):
    """Return a topic whose one partition has segments of ten rows of these levels."""
    state = filled(len(levels), segment_ms=HOUR)
    for number, level in enumerate(levels):
        state = rolled(state, number * 10, number * 10 + 10, level=level, log_bytes=size)
    return state


def rolled_to(rows):
    """Return a topic whose one partition has a segment of each of these numbers of rows."""
    state = after(started(), commit(None, file([(0, each) for each in rows])))
    return rolled(state, 0, *itertools.accumulate(rows))


# When a partition is rolled


def test_a_partition_with_many_chunks_is_rolled():
    assert plan(filled(ROLL_CHUNKS - 1), 0) == []
    [job] = plan(filled(ROLL_CHUNKS), 0)
    assert ranges([job]) == [(0, 1, 0, ROLL_CHUNKS * 10)]
    assert len(job.chunks) == ROLL_CHUNKS


def test_nothing_is_planned_for_a_partition_whose_segment_would_be_dropped():
    state = after(started(replicas=("A", "B"), min_insync=2), commit(None, file([(0, 10)] * ROLL_CHUNKS, on="AB")))
    for budget in (None, ROLL_BYTES):
        assert plan(state, 0, budget)
        assert plan(state, 0, budget, away=["C"])
        assert plan(state, 0, budget, away=["B"]) == [], "it is in the ISR"
        fenced = after(state, AlterReplicaNode("B", incarnation("B"), fenced=True))
        assert plan(fenced, 0, budget) == [], "the ISR is too small"


@pytest.mark.parametrize(
    ("rolled_at", "below"),
    [({"segment_bytes": 2 * CHUNK}, {"segment_bytes": 3 * CHUNK}), ({"flush_messages": 20}, {"flush_messages": 21})],
)
def test_a_partition_with_as_much_unrolled_as_a_setting_says_is_rolled(rolled_at, below):
    assert plan(filled(2, **below), 0) == []
    assert ranges(plan(filled(2, **rolled_at), 0)) == [(0, 1, 0, 20)]
    state = after(
        filled(2, **below), AlterConfig({key.replace("_", "."): str(each) for key, each in rolled_at.items()})
    )
    assert ranges(plan(state, 0)) == [(0, 1, 0, 20)]
    state = after(rolled(filled(3, **below), 0, 20), commit(None, file({0: 5})))
    assert plan(state, 0) == [], "the rows that are in segments do not count"


@pytest.mark.parametrize("setting", ["segment_ms", "flush_ms", "retention_ms"])
def test_a_partition_whose_oldest_chunk_is_old_is_rolled(setting):
    state = filled(2, **{"segment_ms": 100 * HOUR, "retention_ms": -1, setting: HOUR})
    assert plan(state, HOUR - 1) == []
    assert ranges(plan(state, HOUR)) == [(0, 1, 0, 20)]
    state = at(state, commit(None, file({0: 10})), HOUR - 1)
    assert plan(rolled(state, 0, 20), HOUR) == []


def test_a_partition_that_holds_many_old_files_is_rolled():
    state = after(started(2), commit(None, file({1: 1})))
    for _ in range(ROLL_FILES - 2):
        state = after(state, commit(None, file({0: 1})))
    assert [job.partition for job in plan(state, 0)] == [0]
    state = after(state, commit(None, file({0: 1})))
    assert sorted(job.partition for job in plan(state, 0)) == [0, 1]


def test_nothing_above_the_high_watermark_is_rolled():
    above = commit(None, file([(0, 10)] * ROLL_CHUNKS, on=("A",)), acks="1")
    assert plan(after(started(replicas=("A", "B")), above), 0) == []
    state = after(started(replicas=("A", "B")), commit(None, file([(0, 10)] * 5, on=("A", "B"))))
    assert ranges(plan(after(state, above), 0)) == [(0, 1, 0, 50)]


# What is merged


def test_so_many_neighbours_of_one_level_become_one_of_the_next():
    assert plan(segmented(*[1] * (MERGE_COUNT - 1)), 0) == []
    assert ranges(plan(segmented(*[1] * MERGE_COUNT), 0)) == [(0, 2, 0, MERGE_COUNT * 10)]
    assert ranges(plan(segmented(3, *[2, 1] * MERGE_COUNT), 0)) == [(0, 3, 10, 10 + (2 * MERGE_COUNT - 1) * 10)]
    assert plan(segmented(*[LEVEL_MAX] * 40), 0) == []


def test_several_that_one_of_a_higher_level_follows_become_one_for_they_get_no_more_neighbours():
    assert ranges(plan(segmented(3, 1, 1, 2, 1), 0)) == [(0, 2, 10, 30)]
    assert ranges(plan(segmented(3, 1, LEVEL_MAX, 1), 0)) == [(0, LEVEL_MAX, 0, 20)]
    assert plan(segmented(2, LEVEL_MAX, 1, LEVEL_MAX, 2, 1), 0) == []


def test_a_segment_is_done_if_so_many_like_it_exceed_segment_bytes():
    largest = 2**30 // MERGE_COUNT
    assert len(plan(segmented(*[1] * MERGE_COUNT, size=largest - 1), 0, 10**12)) == 1
    assert plan(segmented(*[1] * MERGE_COUNT, size=largest), 0, 10**12) == []


def test_writers_leave_those_that_are_larger_than_their_budget_to_maintenance():
    state = filled(2 * MERGE_COUNT)
    for number in range(2 * MERGE_COUNT):
        state = rolled(state, number * 10, number * 10 + 10, log_bytes=INLINE_ROLL_BYTES if number == 0 else 100)
    assert ranges(plan(state, 0)) == [(0, 2, MERGE_COUNT * 10, 2 * MERGE_COUNT * 10)]
    assert ranges(plan(state, 0, 10**9)) == [(0, 2, 0, MERGE_COUNT * 10)]
    assert plan(segmented(*[1] * MERGE_COUNT, size=INLINE_ROLL_BYTES // 8), 0) == [], "eight of them fit"


def test_a_writer_looks_only_at_the_newest_segments_and_by_hand_all_are_merged():
    state = segmented(*[1] * MERGE_COUNT, *[LEVEL_MAX] * MERGE_LOOK_BACK)
    assert plan(state, 0) == []
    assert len(plan(state, 0, 10**9)) == 1


# Budgets


def test_a_job_is_no_larger_than_its_budget():
    [job] = plan(filled(ROLL_CHUNKS), 0, 10 * CHUNK)
    assert job.bytes == 10 * CHUNK
    assert ranges([job]) == [(0, 1, 0, 100)]
    # A chunk larger than it is rolled by itself.
    state = after(after(started(), commit(None, heavy(1, ROLL_BYTES))), commit(None, heavy(1, ROLL_BYTES)))
    assert ranges(plan(state, 0, 1000)) == [(0, 1, 0, 1)]


def test_a_segment_is_done_if_so_many_like_it_exceed_the_most_rows_of_a_segment():
    rows = [SEGMENT_ROWS_MAX // MERGE_COUNT] * MERGE_COUNT
    assert ranges(plan(rolled_to(rows), 0)) == [(0, 2, 0, sum(rows))]
    rows[0] += 1
    assert plan(rolled_to(rows), 0) == []


@pytest.mark.parametrize(
    ("chunk", "count", "expected"),
    [
        (2**20, 64, ROLL_BYTES),  # half of the 64 MiB that are unrolled
        (2**16, 64, 64 * 2**16),  # all of the 4 MiB, which RIDE_BYTES allows
        (2**24, 64, INLINE_ROLL_BYTES_MAX),  # not half of 1 GiB
    ],
)
def test_an_inline_job_is_half_of_what_is_unrolled_within_bounds(chunk, count, expected):
    state = started()
    for _ in range(count):
        state = after(state, commit(None, heavy(1, chunk)))
    [job] = plan(state, 0)
    assert job.bytes == expected


# A long history

SIZES = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 400)), min_size=1, max_size=120)
"""The rows of batches. Each has 10 bytes, so some are large: `FULL` is the size of a segment that is done."""
FULL = 1000


@pytest.mark.parametrize("segment_format", ["log", "parquet"])
@pytest.mark.parametrize("budget", [None, 500, 10**9], ids=["in passing", "little", "by hand"])
@given(sizes=SIZES, times=st.lists(st.integers(0, HOUR), min_size=1, max_size=9))
def test_no_row_is_rewritten_more_than_four_times_and_few_segments_are_small(sizes, times, budget, segment_format):
    count = 3
    with mock.patch.object(roll_plan, "ROLL_CHUNKS", 3), mock.patch.object(tiers, "MERGE_COUNT", count):
        state = started(segment_format=segment_format, segment_bytes=FULL * count, retention_ms=-1)
        writes, now = [], 0
        for number, rows in enumerate(sizes):
            now += times[number % len(times)]
            state = at(state, commit(None, heavy(rows, rows * 10)), now)
            writes += [0] * rows
            state = carried_out(state, now, budget, writes)
        small = [each for each in state.partitions[0].segments if not roll_plan._is_done(each, state.config)]
        done = len(state.partitions[0].segments) - len(small)
        if budget == 10**9:
            assert len(small) <= 2 * (count - 1) * (LEVEL_MAX - 1) + done, "at most one is before each that is done"
        state = carried_out(state, 10**15, 10**9, writes)
        assert max(writes) <= LEVEL_MAX
        assert min(writes) >= 1, "nothing waits for ever"
        assert state.partitions[0].chunks == ()
        if segment_format == "parquet":
            assert all(
                each.is_parquet or roll_plan._is_done(each, state.config) for each in state.partitions[0].segments
            )


def carried_out(state, now, budget, writes):
    """Return the topic after all jobs that are due, whose rows have been written once more."""
    while jobs := plan(state, now, budget):
        for job in jobs:
            for row in range(job.base_offset, job.end_offset):
                writes[row] += 1
            facts = {"level": job.level, "log_bytes": job.bytes, "parquet": job.parquet, "since_ms": job.since_ms}
            state = rolled(state, job.base_offset, job.end_offset, **facts)
    return state
