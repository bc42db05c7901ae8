"""Which segments are Parquet: those that are not merged again, and in time all that a Parquet one follows.

A topic whose format was changed has segments of chunks that are not merged again, which are converted.
"""

import pytest

from pyspark_log_coordinator.segments.roll_plan import KEPT_LEVEL, LEVEL_MAX, MERGE_COUNT, plan
from tests.coordinator.topics import filled, rolled

HOUR = 3_600_000
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
    assert planned(filled(3, flush_messages=1, segment_format="parquet", segment_bytes=1024)) == [(0, 30, 1, True)]
    assert planned(filled(3, flush_messages=1, segment_bytes=1024)) == [(0, 30, 1, False)]


@pytest.mark.parametrize(
    ("level", "size", "parquet"), [(1, 100, False), (1, LARGE // MERGE_COUNT, True), (2, 100, True)]
)
def test_segments_are_merged_to_parquet_at_the_last_level_or_if_they_are_large(level, size, parquet):
    state = segmented(str(level) * MERGE_COUNT, size=size)
    assert planned(state, LARGE * MERGE_COUNT) == [(0, MERGE_COUNT * 10, level + 1, parquet)]


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
    assert (start, end) == range_
    assert parquet


@pytest.mark.parametrize("kinds", ["P", "PP", "P1", "P1112", "11", "3P", "4", ""])
def test_the_newest_segments_wait_for_more_and_the_last_level_stays(kinds):
    assert planned(segmented(kinds)) == []


def test_a_topic_whose_segments_are_of_chunks_leaves_them_before_a_parquet_segment():
    assert planned(segmented("1P", segment_format="log")) == []


def test_of_segments_that_do_not_fit_into_one_job_the_newest_are_merged_first():
    assert planned(segmented("111P"), budget=250) == [(10, 30, 2, True)]
    assert planned(segmented("111P"), budget=99) == []


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


@pytest.mark.parametrize("kinds", ["1211P11P1", "P1P2P1"])
def test_in_the_end_all_that_a_parquet_segment_follows_is_parquet(kinds):
    state = carried_out(segmented(kinds), 250)
    found = [(each.is_parquet, each.end_offset) for each in state.partitions[0].segments]
    assert [is_parquet for is_parquet, _ in found] == sorted((is_parquet for is_parquet, _ in found), reverse=True)
    assert [end for is_parquet, end in found if not is_parquet] == [len(kinds) * 10]


# Conversion


@pytest.mark.parametrize(
    ("kinds", "range_"),
    [("3", (0, 10)), ("33", (0, 20)), ("333", (0, 20)), ("1131", (20, 30)), ("P3", (10, 20)), ("43", (10, 20))],
)
def test_the_oldest_segments_of_the_last_level_are_converted_as_many_as_fit(kinds, range_):
    assert planned(segmented(kinds), budget=250) == [(*range_, KEPT_LEVEL, True)]


def test_large_segments_of_any_level_are_converted_and_one_above_the_budget_alone():
    state = rolled(segmented("11"), 0, 10, level=2, log_bytes=LARGE)
    assert planned(state, 4 * LARGE) == [(0, 10, KEPT_LEVEL, True)]
    assert planned(segmented("33", size=LARGE), LARGE - 1) == [(0, 10, KEPT_LEVEL, True)]


def test_writers_convert_nothing():
    assert planned(segmented("333")) == []


@pytest.mark.parametrize("kinds", ["P", "11", "4", "P4", "44P1"])
def test_nothing_is_converted_that_is_parquet_or_will_be_merged_or_has_a_row_too_large(kinds):
    assert planned(segmented(kinds), 1000) == []


def test_a_topic_of_chunks_keeps_its_segments():
    assert planned(segmented("333", segment_format="log"), 1000) == []


@pytest.mark.parametrize(("bytes_", "converted"), [(150, [(20, 40)]), (0, []), (-1, [(0, 40)])])
def test_what_has_expired_is_not_converted(bytes_, converted):
    state = segmented("3333", retention_bytes=bytes_)
    assert [(start, end) for start, end, *_ in planned(state, 1000)] == converted


def test_what_has_expired_is_not_merged_by_maintenance():
    kinds = "1" * (2 * MERGE_COUNT)
    state = segmented(kinds, segment_format="log", retention_bytes=100 * (MERGE_COUNT + 3))
    merged = (MERGE_COUNT - 3) * 10, (2 * MERGE_COUNT - 3) * 10
    assert [(start, end) for start, end, *_ in planned(state, 10_000)] == [merged]


def test_a_job_says_what_it_does():
    chunks, merge = filled(3, flush_messages=1), segmented("1" * MERGE_COUNT)
    jobs = [plan(each, 0, 10_000) for each in (chunks, merge, segmented("1P"), segmented("3"))]
    assert [job.verb for [job] in jobs] == ["rolled", "merged", "merged", "converted to Parquet"]


def test_what_is_merged_comes_first():
    kinds = "3" + "1" * MERGE_COUNT
    assert planned(segmented(kinds), 10_000) == [(10, 10 + MERGE_COUNT * 10, 2, False)]


@pytest.mark.parametrize(("kinds", "newest"), [("3333333", 0), ("3231133211", 30), ("4313", 0)])
def test_in_the_end_all_but_the_newest_small_segments_are_parquet(kinds, newest):
    state = carried_out(segmented(kinds), 250)
    left = [each for each in state.partitions[0].segments if not each.is_parquet and each.level != KEPT_LEVEL]
    assert sum(each.rows for each in left) == newest
