"""Which segments are Parquet: those that are not merged again, and in time all that a Parquet one follows."""

import pytest

from pyspark_log_coordinator.segments.roll_plan import LEVEL_MAX, MERGE_COUNT, plan
from pyspark_log_coordinator.topic.machine import MaintainSegments
from tests.coordinator.topics import after, filled, rolled, swap

HOUR = 3_600_000
LARGE = 1024**3 // MERGE_COUNT
"""Segments of this size are not merged, with the default segment.bytes."""


def segmented(kinds, segment_format="parquet", size=100):
    """Return a topic with segments of ten rows: P for Parquet, a digit for the level of one of chunks."""
    state = filled(len(kinds), segment_ms=HOUR, segment_format=segment_format)
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
    [("1P", (0, 10)), ("P1P", (10, 20)), ("P211P1", (10, 40)), ("P1P2P", (10, 20)), ("31P", (10, 20))],
)
def test_segments_that_a_parquet_segment_follows_are_merged_to_parquet(kinds, range_):
    [(start, end, _, parquet)] = planned(segmented(kinds))
    assert (start, end) == range_
    assert parquet


@pytest.mark.parametrize("kinds", ["P", "PP", "P1", "P1112", "11", "3P", ""])
def test_the_newest_segments_wait_for_more_and_the_last_level_stays(kinds):
    assert planned(segmented(kinds)) == []


def test_a_topic_whose_segments_are_of_chunks_leaves_them_before_a_parquet_segment():
    assert planned(segmented("1P", segment_format="log")) == []


def test_of_segments_that_do_not_fit_into_one_job_the_newest_are_merged_first():
    assert planned(segmented("111P"), budget=250) == [(10, 30, 2, True)]
    assert planned(segmented("111P"), budget=99) == []


def test_in_the_end_all_that_a_parquet_segment_follows_is_parquet():
    state = segmented("1211P11P1", size=100)
    for _ in range(20):
        jobs = plan(state, 0, 250)
        for job in jobs:
            made = swap(job.base_offset, job.end_offset, level=job.level, log_bytes=job.bytes, parquet=job.parquet)
            state = after(state, MaintainSegments((made,)))
    kinds = [(each.is_parquet, each.end_offset) for each in state.partitions[0].segments]
    assert [is_parquet for is_parquet, _ in kinds] == sorted((is_parquet for is_parquet, _ in kinds), reverse=True)
    assert [end for is_parquet, end in kinds if not is_parquet] == [90]
