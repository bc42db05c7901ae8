"""Which segments are Parquet: those that are merged, large ones, and in time all that follows a Parquet one."""

import pytest

from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.segments.roll_plan import INLINE_LAG_MS, LEVEL_MAX, plan, table_end
from pyspark_log_coordinator.segments.tiers import MERGE_COUNT
from tests.support.coordinator.topics import after, at, commit, file, filled, rolled, started

HOUR = 3_600_000
MINUTE = 60_000
LAG = 5 * MINUTE
"""The default of parquet.max.lag.ms."""
BUDGET = 10**9
LARGE = 1024**3 // MERGE_COUNT
"""Segments of this size are not merged, with the default segment.bytes."""


def segmented(kinds, segment_format="parquet", size=100, **settings):
    """Return a topic with segments of ten rows: P for Parquet that is done, a digit for the level of one of chunks."""
    state = filled(len(kinds), segment_ms=HOUR, segment_format=segment_format, **settings)
    for number, kind in enumerate(kinds):
        level = LEVEL_MAX if kind == "P" else int(kind)
        state = rolled(state, number * 10, number * 10 + 10, level=level, log_bytes=size, parquet=kind == "P")
    return state


def planned(state, budget=None):
    return [(job.base_offset, job.end_offset, job.level, job.parquet) for job in plan(state, 0, budget)]


def test_chunks_are_rolled_to_parquet_only_if_they_are_large():
    small = filled(3, flush_messages=1, segment_format="parquet")
    assert planned(small) == [(0, 30, 1, False)]
    large = {"flush_messages": 1, "segment_bytes": 1024}
    assert planned(filled(3, segment_format="parquet", **large)) == [(0, 30, 1, True)]
    assert planned(filled(3, **large)) == [(0, 30, 1, False)]


@pytest.mark.parametrize("segment_format", ["log", "parquet"])
def test_what_is_merged_has_the_format_of_the_topic(segment_format):
    made = segment_format == "parquet"
    for level in range(1, LEVEL_MAX):
        state = segmented(str(level) * MERGE_COUNT, segment_format)
        assert planned(state) == [(0, MERGE_COUNT * 10, level + 1, made)]


@pytest.mark.parametrize(
    ("kinds", "range_"), [("1P", (0, 10)), ("P1P", (10, 20)), ("P211P1", (20, 40)), ("P4P1P", (30, 40))]
)
def test_a_small_segment_of_chunks_that_parquet_follows_becomes_parquet_too_alone_or_with_its_neighbours(kinds, range_):
    [(start, end, _, parquet)] = planned(segmented(kinds))
    assert (start, end, parquet) == (*range_, True)
    assert all(not made for *_, made in planned(segmented(kinds, "log")))


@pytest.mark.parametrize("kinds", ["P", "PP", "P211", "11", "4P", "4", "", "4P1", "444"])
@pytest.mark.parametrize("budget", [None, 1000])
def test_other_segments_stay_as_they_are(kinds, budget):
    assert planned(segmented(kinds), budget) == []


# By age


def trickle(*times, **settings):
    """Return a topic of Parquet with a batch of ten rows at each of these times."""
    state = started(segment_format="parquet", retention_ms=-1, **settings)
    for now in times:
        state = at(state, commit(None, file({0: 10})), now)
    return state


def due(state, now, budget=BUDGET, at_once=()):
    return [(job.base_offset, job.end_offset, job.level, job.parquet) for job in plan(state, now, budget, at_once)]


def test_the_newest_rows_become_parquet_when_the_oldest_of_them_is_older_than_the_lag():
    state = trickle(MINUTE, 2 * MINUTE)
    assert due(state, LAG + MINUTE - 1) == []
    assert due(state, LAG + MINUTE) == [(0, 20, 1, True)]
    assert due(trickle(0, 0, 0), LAG, budget=2 * 64) == [(0, 20, 1, True)]  # the oldest first
    done = rolled(state, 0, 10, parquet=True)  # what is Parquet is not written again
    assert due(done, LAG + MINUTE) == []
    assert due(done, LAG + 2 * MINUTE) == [(10, 20, 1, True)]
    assert due(rolled(done, 10, 20, parquet=True), 100 * HOUR) == []
    assert due(trickle(MINUTE, parquet_max_lag_ms=0), MINUTE) == [(0, 10, 1, True)]


def test_small_segments_and_the_chunks_behind_them_become_one_of_parquet_by_the_age_of_the_first_row():
    state = rolled(trickle(7, MINUTE, 2 * MINUTE, 3 * MINUTE), 0, 10, 20, since_ms=7)
    assert due(state, LAG + 6) == []
    [job] = plan(state, LAG + 7, BUDGET)
    assert (job.base_offset, job.end_offset, job.level, job.parquet) == (0, 40, 2, True)
    assert (len(job.segments), len(job.chunks), job.since_ms, job.until_ms) == (2, 2, 7, 3 * MINUTE)
    [job] = plan(trickle(LAG, LAG + 1), 2 * LAG, BUDGET)
    assert (job.since_ms, job.until_ms) == (LAG, LAG + 1)


def test_writers_do_so_in_passing_after_an_hour():
    state = trickle(0, MINUTE)
    assert due(state, INLINE_LAG_MS - 1, budget=None) == []
    assert due(state, INLINE_LAG_MS, budget=None) == [(0, 20, 1, True)]
    late = trickle(0, parquet_max_lag_ms=2 * INLINE_LAG_MS)
    assert due(late, 2 * INLINE_LAG_MS - 1, budget=None) == []
    assert due(late, 2 * INLINE_LAG_MS, budget=None) == [(0, 10, 1, True)]


@pytest.mark.parametrize("facts", [{"log_bytes": LARGE}, {"level": LEVEL_MAX}])
def test_a_segment_of_chunks_that_is_done_keeps_its_format(facts):
    state = rolled(trickle(0, MINUTE), 0, 10, **facts)
    assert due(state, 100 * HOUR) == [(10, 20, 1, True)]
    assert due(rolled(state, 10, 20, parquet=True), 100 * HOUR, at_once=[20]) == []


def test_rows_below_an_offset_become_parquet_at_once():
    state = trickle(0, 0)
    assert due(state, 0, at_once=[20]) == [(0, 20, 1, True)]
    assert due(state, 0, at_once=[0]) == []
    assert due(trickle(0, parquet_max_lag_ms=-1), 0, at_once=[10]) == [(0, 10, 1, True)]
    assert due(filled(2), 0, at_once=[20]) == []
    done = rolled(state, 0, 10, parquet=True)
    assert due(done, 0, at_once=[10]) == []
    assert due(done, 0, at_once=[20]) == [(10, 20, 1, True)]


@pytest.mark.parametrize(("kinds", "end"), [("", 0), ("1P", 0), ("P", 10), ("PP1", 20), ("P1P", 10), ("P1PP", 10)])
def test_a_table_ends_before_the_first_segment_that_is_not_parquet(kinds, end):
    state = segmented(kinds)
    assert table_end(state.partitions[0], state.config) == end
    state = after(segmented("11"), DeleteRecords(0, 10))
    assert table_end(state.partitions[0], state.config) == 10
