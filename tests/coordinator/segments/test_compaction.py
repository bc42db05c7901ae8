"""What compaction does to a partition: when a cleaning or a merge is due, what it makes, and which swaps fit."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments import compaction_plan, roll_plan
from pyspark_log_coordinator.segments.compaction_plan import DIRTY_ROWS_MAX, INLINE_CHUNKS, Output, Source, outputs
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.segments.roll_plan import INLINE_LAG_MS
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_coordinator.segments.tiers import joined
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.coordinator.topics import (
    after,
    at,
    commit,
    compacted,
    decide,
    file,
    filled,
    pieces,
    rolled,
    started,
    swap,
)

BUDGET = 2**30
COMPACT = {"cleanup_policy": "compact"}


def head_of(*bounds, chunks=6, rows=10, **config):
    """Return a compacted topic of some chunks, with a head of segments between the bounds, of 10 rows each."""
    state = filled(chunks, rows, **{**COMPACT, **config})
    for start, end in itertools.pairwise(bounds):
        state = taken(state, compacted(state, start, end, 10))
    return state


def taken(state, *swaps):
    new = after(state, MaintainSegments(swaps))
    assert new != state, "the swap was dropped"
    return new


def is_refused(state, *swaps):
    return decide(state, MaintainSegments(swaps)) == []


def due(state, now=0, budget=BUDGET, at_once=()):
    """Return the bounds of what is read by the compactions that are due."""
    jobs = roll_plan.plan(state, now, budget, at_once)
    return [(job.base_offset, job.end_offset) for job in jobs if job.compaction is not None]


# Cleanings


def test_a_cleaning_reads_the_head_and_all_rows_after_it():
    assert due(head_of()) == [(0, 60)]
    assert due(head_of(0, 20)) == [(0, 60)]
    assert due(head_of(0, 60)) == []
    (job,) = roll_plan.plan(rolled(head_of(0, 20), 20, 40), 0, BUDGET)
    assert [each.base_offset for each in (*job.segments, *job.chunks)] == [0, 20, 40, 50]
    state = after(head_of(), DeleteRecords(0, 15))
    assert (due(state), state.partitions[0].compacted_end) == ([(10, 60)], 15)
    assert pieces(taken(state, compacted(state, 10, 60))) == [("segment", 10, 60)]
    assert due(head_of(cleanup_policy="compact,delete", retention_ms=-1)) == [(0, 60)]
    assert due(head_of(cleanup_policy="delete")) == []


@pytest.mark.parametrize(("ratio", "jobs"), [(0.4, [(0, 40)]), (0.41, [])])
def test_a_cleaning_is_due_when_the_new_bytes_are_the_share_of_min_cleanable_dirty_ratio(ratio, jobs):
    state = filled(4, **COMPACT, min_cleanable_dirty_ratio=ratio)  # a chunk has 64 bytes
    state = taken(state, compacted(state, 0, 20, log_bytes=192))
    assert due(state) == jobs


def test_a_cleaning_is_due_when_the_oldest_row_was_written_max_compaction_lag_ms_ago():
    state = started(**COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50)
    state = at(state, commit(None, file({0: 10})), 100)
    state = taken(state, compacted(state, 0, 10))
    state = at(state, commit(None, file({0: 10})), 1000)
    assert due(state, 1049) == []
    assert due(state, 1050) == [(0, 20)]


def with_times(state, *times):
    """Return the topic with a batch of 10 rows of each of these times, in ms, at the time when it was written."""
    for timestamp, written in times:
        batch = file({0: 10})
        (chunk,) = batch.chunks
        chunk = msgspec.structs.replace(chunk, max_timestamp=timestamp * 1000)
        state = at(state, commit(None, msgspec.structs.replace(batch, chunks=(chunk,))), written)
    return state


def test_rows_that_are_compacted_at_once_need_no_share_but_the_age():
    state = filled(4, **COMPACT, min_cleanable_dirty_ratio=1.0)
    state = taken(state, compacted(state, 0, 20))
    assert due(state) == []
    assert due(state, at_once=[20]) == []
    assert due(state, at_once=[21]) == [(0, 40)]
    state = with_times(started(**COMPACT, min_compaction_lag_ms=50), (100, 100))
    assert due(state, 149, at_once=[10]) == []


def test_rows_younger_than_min_compaction_lag_ms_are_left_out():
    state = with_times(started(**COMPACT, min_compaction_lag_ms=50), (100, 100), (200, 200))
    assert [due(state, now) for now in (149, 150, 250)] == [[], [(0, 10)], [(0, 20)]]
    config = {"min_compaction_lag_ms": 50, "message_timestamp_after_max_ms": 2**62}
    future = with_times(started(**COMPACT, **config), (2**50, 100))
    assert [due(future, now) for now in (149, 150)] == [[], [(0, 10)]]  # as old as what was written with them


def test_a_cleaning_reads_segments_that_have_expired_and_are_still_there():
    state = head_of(0, 20, cleanup_policy="compact,delete", retention_ms=1)
    later = 10**15  # ms
    assert due(state, later) == [(0, 60)]
    assert due(at(state, ApplyRetention(), later), later) == [(20, 60)]


def test_a_cleaning_takes_as_many_rows_as_the_budget_and_memory_allow_whatever_the_head_has():
    assert due(head_of(0, 20), budget=3 * 64) == [(0, 50)]
    assert due(head_of(rows=DIRTY_ROWS_MAX // 2)) == [(0, DIRTY_ROWS_MAX)]
    assert due(head_of(rows=DIRTY_ROWS_MAX + 1, chunks=2)) == [(0, DIRTY_ROWS_MAX + 1)]


def test_a_writer_cleans_a_segment_or_many_chunks_that_are_an_hour_old_unless_the_head_is_large(monkeypatch):
    few, many = filled(INLINE_CHUNKS - 1, **COMPACT), filled(INLINE_CHUNKS, **COMPACT)
    assert due(few, INLINE_LAG_MS, budget=None) == []
    assert due(rolled(few, 0, 10), INLINE_LAG_MS, budget=None) == [(0, 630)]
    assert due(many, INLINE_LAG_MS, budget=None) == [(0, 640)]
    assert due(many, INLINE_LAG_MS - 1, budget=None) == []
    late = filled(INLINE_CHUNKS, **COMPACT, max_compaction_lag_ms=50)
    assert due(late, 49, budget=None) == []
    assert due(late, 50, budget=None) == [(0, 640)]
    late = taken(late, compacted(late, 0, 10, log_bytes=1000))
    monkeypatch.setattr(compaction_plan, "INLINE_HEAD_BYTES_MAX", 999)
    assert (due(late, 50, budget=None), due(late, 50)) == ([], [(0, 640)])


# Merges


def test_a_segment_is_written_alone_when_half_of_its_rows_delete_their_key_and_are_past_their_time():
    state = filled(2, **COMPACT, delete_retention_ms=100)
    few = taken(state, compacted(state, 0, 20, 5, tombstones=2, cleaned_ms=1000))
    assert due(few, 1100) == []
    state = taken(state, compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=1000))
    assert due(state, 1099) == []
    assert due(state, 1100) == [(0, 20)]
    (job,) = roll_plan.plan(state, 1100, BUDGET)
    assert (job.compaction.kept_from_ms, job.compaction.makes_one) == (1000, True)
    assert due(taken(state, compacted(state, 0, 20, 2)), 1100) == []


def test_sixteen_segments_of_one_size_become_one():
    state = head_of(*range(0, 170, 10), chunks=16)
    assert due(state) == [(0, 160)]
    assert due(head_of(*range(0, 160, 10), chunks=15)) == []
    state = after(state, AlterConfig({"cleanup.policy": "delete"}))
    assert [job for job in roll_plan.plan(state, 0, BUDGET) if job.segments] == []


@pytest.mark.parametrize(
    ("tiers", "merged"),
    [([0, 0, 1, 0], [(0, 2)]), ([1, 0, 0, 1], [(1, 3)]), ([0, 1, 0], []), ([1, 0, 0, 0, 3], [(1, 4), (0, 4)])],
)
def test_several_segments_become_one_if_a_larger_one_follows(tiers, merged):
    assert list(joined(tiers)) == merged


def test_segments_of_the_head_are_neither_rolled_nor_converted():
    state = head_of(0, 20, 40, 60, segment_format="parquet", parquet_max_lag_ms=0)
    assert roll_plan.plan(state, 10**12, BUDGET) == []
    assert is_refused(state, swap(0, 40, parquet=True, level=6))
    assert is_refused(state, swap(0, 60, level=6))


# What a compaction makes


def source(base, end, rows, *, is_changed=True, last=None):
    return Source(base, end, end - 1 if last is None else last, rows, is_changed=is_changed)


def test_a_row_stays_as_a_placeholder_if_none_stays_or_the_offsets_are_too_many_for_a_segment():
    assert outputs([source(0, 10, 0), source(10, 20, 0)], makes_one=False) == [Output(0, 20, (0, 1), 19)]
    sources = [source(0, 10, 0, last=7), source(10, 20, 1)]
    assert outputs(sources, makes_one=False, span_max=19) == [Output(0, 10, (0,), 7), Output(10, 20, (1,))]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.booleans()), min_size=1, max_size=8),
    st.integers(5, 40),
)
def test_what_is_written_covers_what_it_is_made_of_and_leaves_no_row_out(facts, span_max):
    ends = list(itertools.accumulate(span for span, _, _ in facts))
    sources = [
        Source(end - span, end, end - 1, rows, is_changed=changed or not rows)
        for end, (span, rows, changed) in zip(ends, facts, strict=True)
    ]
    found = outputs(sources, makes_one=False, span_max=span_max)
    assert found == sorted(found, key=lambda each: each.base_offset)
    written = [number for each in found for number in each.sources]
    assert sorted(set(written)) == written, "a source is written twice"
    for each in found:
        some = [sources[number] for number in each.sources]
        assert (some[0].base_offset, some[-1].end_offset) == (each.base_offset, each.end_offset)
        assert each.sources == tuple(range(each.sources[0], each.sources[-1] + 1))
        assert (each.placeholder is None) == any(one.rows for one in some)
        assert each.end_offset - each.base_offset <= span_max
    assert all(not sources[at].is_changed for at in set(range(len(sources))) - set(written))
    assert (
        sum(each.placeholder is not None for each in found) == 0
        or ends[-1] > span_max
        or not any(each.rows for each in sources)
    )


# Swaps


def test_rows_count_as_compacted_from_the_swap_on_however_long_before_it_was_planned():
    state = after(started(**COMPACT), commit(None, file({0: 20})))
    made = compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=1000)
    state = at(state, MaintainSegments((made,)), 5000)
    (segment,) = state.partitions[0].segments
    assert segment.cleaned_ms == 5000
    merge = compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=5000)
    state = at(state, MaintainSegments((merge,)), 9000)
    (merged,) = state.partitions[0].segments
    assert (merged.name, merged.cleaned_ms) == (merge.segments[0].name, 5000)  # a merge does not change it


def test_a_compaction_takes_the_place_of_its_ranges_at_once_and_the_partition_counts_it():
    state = rolled(filled(6, **COMPACT), 0, 20)
    assert state.partitions[0].compactions == 0
    state = taken(state, compacted(state, 0, 30, 7))
    one = state.partitions[0]
    assert pieces(state)[:2] == [("segment", 0, 30), ("chunk", 30, 40)]
    assert (one.compacted_end, one.compactions, one.log_end, one.high_watermark) == (30, 1, 60, 60)
    assert one.segments[0].rows == 7
    state = taken(state, compacted(state, 0, 30, 5, others=[compacted(state, 30, 50)]))
    assert (pieces(state)[:2], state.partitions[0].compactions) == ([("segment", 0, 30), ("segment", 30, 50)], 3)


def test_a_compaction_has_read_all_of_the_head_and_what_follows_it_or_neighbours_of_the_head():
    state = head_of(0, 20)
    assert is_refused(state, compacted(state, 30, 40))  # [20, 30) would be left out
    assert is_refused(state, compacted(state, 10, 40))  # [10, 20) would be compacted twice
    assert is_refused(state, msgspec.structs.replace(compacted(state, 20, 40), replaces=()))  # keys of [0, 20) stay
    state = taken(state, compacted(state, 20, 40))
    assert is_refused(state, compacted(state, 0, 30))
    assert pieces(taken(state, compacted(state, 0, 40)))[0] == ("segment", 0, 40)
    assert pieces(taken(state, compacted(state, 20, 40)))[1] == ("segment", 20, 40)


def test_what_a_suspended_process_made_of_older_segments_is_refused():
    state = rolled(filled(6, **COMPACT), 0, 20)
    cleaning, longer = compacted(state, 0, 20), compacted(state, 0, 30)
    state = taken(state, cleaning)
    assert is_refused(state, cleaning)
    assert is_refused(state, longer)
    rewritten = compacted(state, 0, 20)
    state = taken(state, rewritten)
    assert is_refused(state, rewritten)
    assert is_refused(state, msgspec.structs.replace(compacted(state, 0, 20), replaces=cleaning.replaces))
    chunks = filled(6, **COMPACT)
    first, again = compacted(chunks, 0, 20), compacted(chunks, 0, 20)
    assert is_refused(taken(chunks, first), again)
    both = head_of(0, 20, 40)
    late = compacted(both, 40, 60)
    assert is_refused(taken(both, compacted(both, 0, 40)), late)


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_compaction_is_dropped_unless_the_whole_isr_holds_all_of_its_segments(lacking):
    state = started(replicas="AB", **COMPACT)
    for _ in range(2):
        state = after(state, commit(None, file({0: 20}, on="AB")))
    state = taken(state, compacted(state, 0, 20, on="AB"))
    on = ["A" if number == lacking else "AB" for number in range(2)]
    assert is_refused(state, compacted(state, 0, 20, on=on[0], others=[compacted(state, 20, 40, on=on[1])]))
    made = compacted(state, 0, 20, on="AB", others=[compacted(state, 20, 40, on="AB")])
    assert [each.name for each in taken(state, made).partitions[0].segments] == [each.name for each in made.segments]


def test_a_compaction_is_dropped_if_with_all_its_segments_a_majority_would_lack_what_a_quorum_committed():
    state = started(replicas="ABCDE", replication_mode="quorum", **COMPACT)
    for _ in range(2):
        state = after(state, commit(None, file({0: 20}, on="ABCDE")))
    state = taken(state, compacted(state, 0, 20, on="ABCDE"))
    state = after(state, commit(None, file({0: 10}, on="ABDE"), acks="1"))
    one = msgspec.structs.replace(state.partitions[0], isr=("A", "B", "C"))
    state = msgspec.structs.replace(state, partitions=(one,))
    # C lags. D and E lack a segment each, so with both only A and B have all rows.
    assert is_refused(state, compacted(state, 0, 20, on="ABCD", others=[compacted(state, 20, 40, on="ABCE")]))
    assert not is_refused(state, compacted(state, 0, 20, on="ABCD", others=[compacted(state, 20, 40, on="ABCD")]))


# What is left


def test_retention_does_not_apply_to_a_topic_that_is_only_compacted():
    expired = {"retention_ms": 1}
    only = head_of(0, 20, **expired)
    assert topic.decide(only, ApplyRetention(), 10**6) == []
    both = head_of(0, 20, cleanup_policy="compact,delete", **expired)
    (moved,) = topic.decide(both, ApplyRetention(), 10**6)
    assert moved.log_start == 20
    (gone,) = topic_cleanup.expired_by(both, [moved])
    assert (gone.log_start, gone.rows) == (20, 10)
    state = topic.evolve(both, moved)
    assert (state.partitions[0].compacted_end, pieces(state)[0]) == (20, ("chunk", 20, 30))


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [(0, 60, 47), (5, 20, 7), (15, 20, 5), (20, 45, 25), (10, 30, 17), (30, 10, 0)],
)
def test_rows_are_counted_and_not_offsets(start, end, rows):
    state = filled(6, **COMPACT)
    state = taken(state, compacted(state, 0, 20, 7))
    assert state.partitions[0].rows_between(start, end) == rows
