"""Which segments are Parquet: those that are not merged again, and in time all that a Parquet one follows.

A topic whose format was changed has segments of chunks that are not merged again, which are converted.
"""

import random

import pytest

from pyspark_log_coordinator.segments.roll_plan import (
    INLINE_LAG_MS,
    KEPT_LEVEL,
    LEVEL_MAX,
    MERGE_COUNT,
    PARQUET_LEVEL_MAX,
    plan,
    table_end,
)
from pyspark_log_coordinator.topic.machine import DeleteRecords
from tests.support.coordinator.topics import after, at, commit, file, filled, rolled, started
from tests.support.rings import sample

HOUR = 3_600_000
MINUTE = 60_000
LAG = 5 * MINUTE
"""The default of parquet.max.lag.ms."""
BUDGET = 10**9
LARGE = 1024**3 // MERGE_COUNT
"""Segments of this size are not merged, with the default segment.bytes."""


def segmented(kinds, segment_format="parquet", size=100, **settings):
    """Return a topic with segments of ten rows: P for Parquet, a digit for the level of one of chunks."""
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
    assert planned(filled(3, flush_messages=1, segment_format="parquet", segment_bytes=1024)) == [
        (0, 30, PARQUET_LEVEL_MAX, True)
    ]
    assert planned(filled(3, flush_messages=1, segment_bytes=1024)) == [(0, 30, 1, False)]


@pytest.mark.parametrize(
    ("level", "size", "made"),
    [(1, 100, (2, False)), (1, LARGE // MERGE_COUNT, (PARQUET_LEVEL_MAX, True)), (2, 100, (3, True))],
)
def test_segments_are_merged_to_parquet_at_the_last_level_or_if_they_are_large(level, size, made):
    state = segmented(str(level) * MERGE_COUNT, size=size)
    assert planned(state, LARGE * MERGE_COUNT) == [(0, MERGE_COUNT * 10, *made)]


@pytest.mark.parametrize(
    ("kinds", "range_"),
    [
        ("1P", (0, 10)),
        ("P1P", (10, 20)),
        ("P211P1", (10, 40)),
        ("P1P2P", (10, 20)),
        ("31P", (10, 20)),
        ("114P", (0, 20)),
    ],
)
def test_segments_that_one_follows_that_stays_as_it_is_are_merged_to_parquet(kinds, range_):
    [(start, end, _, parquet)] = planned(segmented(kinds))
    assert (start, end, parquet) == (*range_, True)


@pytest.mark.parametrize(
    ("kinds", "how", "budget"),
    [(kinds, {}, None) for kinds in ("P", "PP", "P1112", "11", "3P", "4", "", "333")]
    + [(kinds, {}, 1000) for kinds in ("P", "11", "4", "4P1")]  # 4: it has a row that is too large
    + [("1P", {"segment_format": "log"}, None), ("333", {"segment_format": "log"}, 1000)],
)
def test_other_segments_stay_as_they_are(kinds, how, budget):
    assert planned(segmented(kinds, **how), budget) == []


def carried_out(state, budget):
    """Return the topic after all jobs, which are few: no swap is refused."""
    for _ in range(20):
        jobs = plan(state, 0, budget)
        for job in jobs:
            state = rolled(
                state, job.base_offset, job.end_offset, level=job.level, log_bytes=job.bytes, parquet=job.parquet
            )
        if not jobs:
            return state
    raise AssertionError(jobs)


# Conversion


@pytest.mark.parametrize(
    ("kinds", "range_"),
    [("3", (0, 10)), ("33", (0, 20)), ("333", (0, 20)), ("1131", (20, 30)), ("P3", (10, 20)), ("43", (10, 20))],
)
def test_the_oldest_segments_of_the_last_level_are_converted_as_many_as_fit(kinds, range_):
    assert planned(segmented(kinds), budget=250) == [(*range_, KEPT_LEVEL, True)]


def test_large_segments_of_any_level_are_converted_and_one_above_the_budget_alone():
    state = rolled(segmented("11"), 0, 10, level=2, log_bytes=LARGE)
    assert planned(state, 4 * LARGE) == [(0, 10, PARQUET_LEVEL_MAX, True)]
    assert planned(segmented("33", size=LARGE), LARGE - 1) == [(0, 10, PARQUET_LEVEL_MAX, True)]


def test_what_has_expired_is_not_merged_by_maintenance():
    kinds = "1" * (2 * MERGE_COUNT)
    state = segmented(kinds, segment_format="log", retention_bytes=100 * (MERGE_COUNT + 3))
    merged = (MERGE_COUNT - 3) * 10, (2 * MERGE_COUNT - 3) * 10
    assert [(start, end) for start, end, *_ in planned(state, 10_000)] == [merged]


def test_of_segments_that_do_not_fit_into_one_job_the_newest_are_merged_first_and_merges_come_before_conversions():
    assert planned(segmented("111P"), budget=250) == [(10, 30, 2, True)]
    assert planned(segmented("111P"), budget=99) == []
    kinds = "3" + "1" * MERGE_COUNT
    assert planned(segmented(kinds), 10_000) == [(10, 10 + MERGE_COUNT * 10, 2, False)]
    jobs = [plan(each, 0, 10_000) for each in (filled(3, flush_messages=1), segmented(kinds[1:]), segmented("3"))]
    assert [job.verb for [job] in jobs] == ["rolled", "merged", "converted to Parquet"]


@pytest.mark.parametrize(
    ("kinds", "newest"), [("1211P11P1", 10), ("P1P2P1", 10), ("3333333", 0), ("3231133211", 30), ("4313", 0)]
)
def test_in_the_end_all_but_the_newest_small_segments_are_parquet(kinds, newest):
    state = carried_out(segmented(kinds), 250)
    left = [each for each in state.partitions[0].segments if not each.is_parquet and each.level != KEPT_LEVEL]
    assert sum(each.rows for each in left) == newest


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


@pytest.mark.parametrize("settings", [{"segment_format": "log"}, {"parquet_max_lag_ms": -1}])
def test_a_topic_of_chunks_or_without_a_lag_waits_for_more_rows(settings):
    state = filled(2, retention_ms=-1, **({"segment_format": "parquet"} | settings))
    assert due(state, 100 * LAG) == []


def test_rows_above_the_high_watermark_wait():
    state = started(replicas=("A", "B"), segment_format="parquet", retention_ms=-1)
    state = after(state, commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",)), acks="1"))
    assert due(state, LAG) == [(0, 10, 1, True)]


def test_writers_do_so_in_passing_after_an_hour():
    state = trickle(0, MINUTE)
    assert due(state, INLINE_LAG_MS - 1, budget=None) == []
    assert due(state, INLINE_LAG_MS, budget=None) == [(0, 20, 1, True)]
    late = trickle(0, parquet_max_lag_ms=2 * INLINE_LAG_MS)
    assert due(late, 2 * INLINE_LAG_MS - 1, budget=None) == []
    assert due(late, 2 * INLINE_LAG_MS, budget=None) == [(0, 10, 1, True)]


def test_writers_leave_a_large_segment_to_maintenance():
    state = rolled(trickle(0, MINUTE), 0, 10, log_bytes=LARGE + 1)
    assert due(state, INLINE_LAG_MS, budget=None) == []
    assert due(state, INLINE_LAG_MS) == [(0, 20, PARQUET_LEVEL_MAX, True)]


def test_rows_below_an_offset_become_parquet_at_once():
    state = trickle(0, 0)
    assert due(state, 0, at_once=[20]) == [(0, 20, 1, True)]
    assert due(state, 0, at_once=[0]) == []
    assert due(trickle(0, parquet_max_lag_ms=-1), 0, at_once=[10]) == [(0, 10, 1, True)]
    assert due(filled(2), 0, at_once=[20]) == []
    done = rolled(state, 0, 10, parquet=True)
    assert due(done, 0, at_once=[10]) == []
    assert due(done, 0, at_once=[20]) == [(10, 20, 1, True)]


# Small Parquet segments


def small(*rows, **facts):
    """Return a topic with a small Parquet segment of each of these numbers of rows."""
    state = after(started(segment_format="parquet", retention_ms=-1), commit(None, file([(0, each) for each in rows])))
    bounds = [sum(rows[:number]) for number in range(len(rows) + 1)]
    return rolled(state, *bounds, parquet=True, **facts)


def test_so_many_small_ones_of_a_tier_are_merged():
    assert due(small(*[3] * (MERGE_COUNT - 1)), 0) == []
    assert due(small(*range(1, MERGE_COUNT)), 0) == []
    assert due(small(*[3] * MERGE_COUNT), 0) == [(0, 3 * MERGE_COUNT, 2, True)]
    assert due(small(*[16, 255] * 8), 0) == [(0, 8 * 271, 2, True)]
    assert due(small(*[300] * 3, *[3] * MERGE_COUNT), 0) == [(900, 900 + 3 * MERGE_COUNT, 2, True)]
    # Those between them are merged with them.
    assert due(small(*[20, 3] * MERGE_COUNT), 0) == [(0, 23 * MERGE_COUNT - 3, 2, True)]


def test_those_that_a_larger_one_follows_are_merged_for_they_get_no_more_neighbours():
    assert due(small(3, 300), 0) == []
    assert due(small(300, 3, 4, 20), 0) == [(300, 307, 2, True)]
    assert due(small(20, 3, 300), 0) == [(0, 23, 2, True)]
    before_one_that_stays = at(small(3, 3, 3), commit(None, file({0: 10})), 0)
    assert due(rolled(before_one_that_stays, 9, 19, parquet=True, log_bytes=LARGE), 0) == [(0, 9, 2, True)]


@pytest.mark.parametrize("facts", [{"log_bytes": LARGE}, {"level": PARQUET_LEVEL_MAX}])
def test_large_ones_and_those_that_were_often_rewritten_stay(facts):
    assert due(small(*[3] * MERGE_COUNT, **facts), 0) == []


def test_writers_merge_only_what_is_small():
    state = small(*[3] * MERGE_COUNT, log_bytes=8 * 2**20 // MERGE_COUNT)
    assert due(state, 0, budget=None) == [(0, 3 * MERGE_COUNT, 2, True)]
    state = small(*[3] * MERGE_COUNT, log_bytes=8 * 2**20 // MERGE_COUNT + 1)
    assert due(state, 0, budget=None) == []


@pytest.mark.parametrize("seed", sample(range(4), 1))
def test_a_trickle_makes_few_segments_and_rewrites_no_row_often(seed):
    chance = random.Random(seed)
    state, end, times = started(segment_format="parquet", retention_ms=-1), 0, {}
    most = written = 0
    for step in range(600):
        rows = chance.choice([1, 3, 40, chance.randrange(1, 1000)])
        now = step * LAG
        state = at(state, commit(None, file({0: rows})), now)
        end += rows
        while jobs := plan(state, now + LAG, BUDGET):
            [job] = jobs
            assert job.parquet
            written += job.end_offset - job.base_offset
            facts = {"level": job.level, "log_bytes": 100 + job.end_offset - job.base_offset, "parquet": True}
            state = rolled(state, job.base_offset, job.end_offset, **facts)
        most = max(most, len(state.partitions[0].segments))
        times[step] = len(state.partitions[0].segments)
    assert most < 50, times
    assert written < 5 * end
    assert max(each.level for each in state.partitions[0].segments) <= PARQUET_LEVEL_MAX
    assert plan(state, 10**6 * HOUR, BUDGET) == []


@pytest.mark.parametrize(("kinds", "end"), [("", 0), ("1P", 0), ("P", 10), ("PP1", 20), ("P1P", 10), ("P1PP", 10)])
def test_a_table_ends_before_the_first_segment_that_is_not_parquet(kinds, end):
    state = segmented(kinds)
    assert table_end(state.partitions[0], state.config) == end
    state = after(segmented("11"), DeleteRecords(0, 10))
    assert table_end(state.partitions[0], state.config) == 10
