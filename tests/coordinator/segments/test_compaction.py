"""What compaction does to a partition: when a fold or a merge is due, and which swaps of keyed segments fit."""

import itertools

import msgspec
import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.compaction_plan import FOLD_CHUNKS, KEYED_ROWS_MAX
from pyspark_log_coordinator.segments.roll_plan import INLINE_LAG_MS
from pyspark_log_coordinator.segments.tiers import joined
from pyspark_log_coordinator.topic import integrity
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import (
    AlterConfig,
    ApplyRetention,
    DeleteRecords,
    HoldFiles,
    MaintainSegments,
)
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


def keyed_log(*bounds, chunks=6, rows=10, **config):
    """Return a compacted topic of some chunks with keyed segments between the bounds, of 10 rows each."""
    state = filled(chunks, rows, **{**COMPACT, **config})
    for start, end in itertools.pairwise(bounds):
        state = taken(state, compacted(state, start, end, 10))
    return state


def taken(state, *swaps):
    new = after(state, MaintainSegments(swaps))
    assert new != state, "the swap was dropped"
    integrity.check_entry(state, decide(state, MaintainSegments(swaps)), new, 1)
    return new


def is_refused(state, *swaps):
    return decide(state, MaintainSegments(swaps)) == []


def due(state, now=0, budget=BUDGET, at_once=()):
    """Return the bounds of the compactions that are due, and what else they read."""
    return [
        (job.base_offset, job.end_offset, [each.base_offset for each in job.compaction.others])
        for job in roll_plan.plan(state, now, budget, at_once)
        if job.compaction is not None
    ]


# Folds


def test_a_fold_takes_all_rows_that_are_not_compacted_and_looks_into_those_that_are():
    assert due(keyed_log()) == [(0, 60, [])]
    assert due(keyed_log(0, 20)) == [(20, 60, [0])]
    assert due(rolled(keyed_log(0, 20), 20, 40)) == [(20, 60, [0])]
    state = after(keyed_log(), DeleteRecords(0, 15))
    assert (due(state), state.partitions[0].compacted_end) == ([(10, 60, [])], 15)
    assert pieces(taken(state, compacted(state, 10, 60))) == [("segment", 10, 60)]
    assert due(keyed_log(cleanup_policy="compact,delete", retention_ms=-1)) == [(0, 60, [])]
    assert due(keyed_log(cleanup_policy="delete")) == []


def test_a_fold_is_due_when_the_new_bytes_are_the_share_of_min_cleanable_dirty_ratio():
    state = filled(4, **COMPACT, min_cleanable_dirty_ratio=0.4)  # a chunk has 64 bytes
    state = taken(state, compacted(state, 0, 20, log_bytes=192))
    assert due(state) == [(20, 40, [0])]
    state = filled(4, **COMPACT, min_cleanable_dirty_ratio=0.41)
    state = taken(state, compacted(state, 0, 20, log_bytes=192))
    assert due(state) == []


def test_a_fold_is_due_when_the_oldest_row_was_written_max_compaction_lag_ms_ago():
    state = started(**COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50)
    state = at(state, commit(None, file({0: 10})), 100)
    state = taken(state, compacted(state, 0, 10))
    state = at(state, commit(None, file({0: 10})), 1000)
    assert due(state, 1049) == []
    assert due(state, 1050) == [(10, 20, [0])]


def test_rows_that_are_compacted_at_once_need_no_share_but_the_age():
    state = filled(4, **COMPACT, min_cleanable_dirty_ratio=1.0)
    state = taken(state, compacted(state, 0, 20))
    assert due(state) == []
    assert due(state, at_once=[20]) == []
    assert due(state, at_once=[21]) == [(20, 40, [0])]
    state = started(**COMPACT, min_compaction_lag_ms=50)
    batch = file({0: 10})
    (chunk,) = batch.chunks
    batch = msgspec.structs.replace(batch, chunks=(msgspec.structs.replace(chunk, max_timestamp=100_000),))
    state = at(state, commit(None, batch), 100)
    assert due(state, 149, at_once=[10]) == []


def test_rows_younger_than_min_compaction_lag_ms_are_left_out():
    state = started(**COMPACT, min_compaction_lag_ms=50)
    for time in (100, 200):
        batch = file({0: 10})
        (chunk,) = batch.chunks
        chunk = msgspec.structs.replace(chunk, max_timestamp=time * 1000)
        state = at(state, commit(None, msgspec.structs.replace(batch, chunks=(chunk,))), time)
    assert due(state, 149) == []
    assert due(state, 150) == [(0, 10, [])]
    assert due(state, 250) == [(0, 20, [])]


def test_rows_of_the_future_are_as_old_as_what_was_written_with_them():
    state = started(**COMPACT, min_compaction_lag_ms=50, message_timestamp_after_max_ms=2**62)
    batch = file({0: 10})
    (chunk,) = batch.chunks
    chunk = msgspec.structs.replace(chunk, max_timestamp=2**60)
    state = at(state, commit(None, msgspec.structs.replace(batch, chunks=(chunk,))), 100)
    assert due(state, 149) == []
    assert due(state, 150) == [(0, 10, [])]


def test_rows_above_the_high_watermark_are_not_folded():
    state = started(replicas=("A", "B"), min_insync=2, **COMPACT)
    state = after(state, commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 10}, on=("A",)), acks="1"))
    assert state.partitions[0].high_watermark == 10
    assert due(state) == [(0, 10, [])]
    assert is_refused(state, compacted(state, 0, 20, on=("A", "B")))


def test_a_fold_looks_into_keyed_segments_that_have_expired_and_are_still_there():
    state = keyed_log(0, 20, cleanup_policy="compact,delete", retention_ms=1)
    later = 10**15  # ms
    assert due(state, later) == [(20, 60, [0])]
    assert due(at(state, ApplyRetention(), later), later) == [(20, 60, [])]


def test_a_fold_is_as_large_as_the_budget_and_memory_allow():
    assert due(keyed_log(), budget=3 * 64) == [(0, 30, [])]
    assert due(keyed_log(rows=KEYED_ROWS_MAX // 2)) == [(0, KEYED_ROWS_MAX, [])]
    assert due(keyed_log(rows=KEYED_ROWS_MAX + 1, chunks=2)) == [(0, KEYED_ROWS_MAX + 1, [])]


def test_a_writer_folds_a_segment_or_many_chunks_that_are_an_hour_old():
    few, many = filled(FOLD_CHUNKS - 1, **COMPACT), filled(FOLD_CHUNKS, **COMPACT)
    assert due(few, INLINE_LAG_MS, budget=None) == []
    assert due(rolled(few, 0, 10), INLINE_LAG_MS, budget=None) == [(0, 630, [])]
    assert due(many, INLINE_LAG_MS, budget=None) == [(0, 640, [])]
    assert due(many, INLINE_LAG_MS - 1, budget=None) == []
    late = filled(FOLD_CHUNKS, **COMPACT, max_compaction_lag_ms=50)
    assert due(late, 49, budget=None) == []
    assert due(late, 50, budget=None) == [(0, 640, [])]


# Merges


def test_a_keyed_segment_is_rewritten_when_the_share_of_its_superseded_rows_is_large():
    state = keyed_log(0, 20)
    (first,) = state.partitions[0].segments
    few = taken(state, compacted(state, 20, 60, supersedes={first.name: 4}))
    assert due(few) == []
    many = taken(state, compacted(state, 20, 60, supersedes={first.name: 5}))
    assert due(many) == [(0, 20, [20])]
    rewritten = taken(many, compacted(many, 0, 20, 5))
    assert due(rewritten) == []
    assert [each.keyed.superseded for each in rewritten.partitions[0].segments] == [0, 0]
    for ratio, superseded, jobs in ((0.01, 4, []), (0.9, 8, []), (0.9, 9, [(0, 20, [20])])):
        state = keyed_log(0, 20, min_cleanable_dirty_ratio=ratio)
        (first,) = state.partitions[0].segments
        assert due(taken(state, compacted(state, 20, 60, supersedes={first.name: superseded}))) == jobs


def test_rows_that_delete_their_key_count_as_superseded_when_delete_retention_ms_has_passed():
    state = filled(2, **COMPACT, delete_retention_ms=100)
    state = taken(state, compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=1000))
    assert due(state, 1099) == []
    assert due(state, 1100) == [(0, 20, [])]
    (job,) = roll_plan.plan(state, 1100, BUDGET)
    assert job.compaction.kept_from_ms == 1000


def test_with_versions_rows_that_delete_their_key_are_kept_until_what_was_written_before_is_compacted():
    state = started(**COMPACT, delete_retention_ms=100, compaction_version_column="seq")
    state = at(state, commit(None, file({0: 10})), 500)
    state = taken(state, compacted_by(state, 0, 10, "seq"))
    state = at(state, commit(None, file({0: 10})), 1099)
    assert due(state, 10_000) == []
    state = taken(state, compacted_by(state, 10, 20, "seq"))
    (job,) = roll_plan.plan(state, 10_000, BUDGET)
    assert (job.base_offset, job.end_offset, job.compaction.kept_from_ms) == (0, 10, 9_900)
    state = at(state, commit(None, file({0: 10})), 1100)
    (job,) = roll_plan.plan(state, 10_000, BUDGET)
    assert (job.base_offset, job.end_offset, job.compaction.kept_from_ms) == (0, 10, 1000)


def compacted_by(state, start, end, column):
    """Return the swap of a keyed segment of 4 rows, of which 2 delete their key since 1000."""
    made = compacted(state, start, end, 4, tombstones=2, cleaned_ms=1000)
    return msgspec.structs.replace(made, version_column=column)


def test_rows_count_as_compacted_from_the_swap_on_however_long_before_it_was_planned():
    both = ("A", "B")
    for holders in (both, ("A",)):
        state = after(started(replicas=both, **COMPACT), commit(None, file({0: 20}, on=both)))
        made = compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=1000, on=holders)
        state = at(state, MaintainSegments((made,)), 5000)
        state = at(state, HoldFiles("B", "incarnation of B", (), ((0, made.segment.name),)), 6000)
        (segment,) = state.partitions[0].segments
        swapped_in = 5000 if holders == both else 6000
        assert segment.keyed.cleaned_ms == swapped_in
        merge = compacted(state, 0, 20, 4, tombstones=2, cleaned_ms=swapped_in, on=both)
        state = at(state, MaintainSegments((merge,)), 9000)
        (merged,) = state.partitions[0].segments
        assert (merged.name, merged.keyed.cleaned_ms) == (merge.segment.name, swapped_in)  # a merge does not change it


def test_rows_that_delete_their_key_do_not_count_where_older_rows_may_be_left():
    state = filled(4, **COMPACT, delete_retention_ms=0)
    state = taken(state, compacted(state, 0, 20, 4))
    state = taken(state, compacted(state, 20, 40, 4, tombstones=4, cleaned_ms=1000))
    assert due(state, 2000) == []  # it would be rewritten again and again
    state = after(state, DeleteRecords(0, 20))
    assert due(state, 2000) == [(20, 40, [])]


def test_sixteen_keyed_segments_of_one_size_become_one():
    state = keyed_log(*range(0, 170, 10), chunks=17)
    assert len(state.partitions[0].keyed_segments) == 16
    assert due(state, budget=BUDGET)[0] == (0, 160, [])
    assert due(keyed_log(*range(0, 160, 10), chunks=15)) == []
    state = after(state, AlterConfig({"cleanup.policy": "delete"}))
    assert [job for job in roll_plan.plan(state, 0, BUDGET) if job.segments] == []


@pytest.mark.parametrize(
    ("tiers", "merged"),
    [([0, 0, 1, 0], [(0, 2)]), ([1, 0, 0, 1], [(1, 3)]), ([0, 1, 0], []), ([1, 0, 0, 0, 3], [(1, 4), (0, 4)])],
)
def test_several_keyed_segments_become_one_if_a_larger_one_follows(tiers, merged):
    assert list(joined(tiers)) == merged


def test_a_merge_knows_the_keyed_segments_before_and_after_it():
    state = keyed_log(0, 20, 40)
    (_, second) = state.partitions[0].segments
    state = taken(state, compacted(state, 40, 60, supersedes={second.name: 5}))
    (rewrite,) = roll_plan.plan(state, 0, BUDGET)
    state = keyed_log(*range(0, 170, 10), chunks=17)
    of_three = sum(each.length for each in state.partitions[0].keyed_segments[:3])
    merge = roll_plan.plan(state, 0, of_three)[0]
    known = [
        [[each.base_offset for each in they] for they in (job.segments, job.compaction.others, job.compaction.older)]
        for job in (rewrite, merge)
    ]
    assert known == [[[20], [40], [0]], [[0, 10, 20], [*range(30, 160, 10)], []]]


def test_keyed_segments_are_neither_rolled_nor_converted():
    state = keyed_log(0, 20, 40, 60, segment_format="parquet", parquet_max_lag_ms=0)
    assert roll_plan.plan(state, 10**12, BUDGET) == []
    assert is_refused(state, swap(0, 40, parquet=True, level=6))
    assert is_refused(state, swap(0, 60, level=6))


# Swaps


def test_no_segment_of_a_compacted_topic_is_said_to_stay_and_no_keyed_one_of_any_topic():
    plain, folded = rolled(filled(2), 0, 20, parquet=True, level=roll_plan.PARQUET_LEVEL_MAX), keyed_log(0, 20)
    (dense,), (keyed,) = plain.partitions[0].segments, folded.partitions[0].segments
    keyed = msgspec.structs.replace(keyed, level=roll_plan.PARQUET_LEVEL_MAX)
    assert roll_plan.will_stay(dense, plain.config)
    assert not roll_plan.will_stay(dense, folded.config)
    assert not roll_plan.will_stay(keyed, plain.config)


def test_a_keyed_segment_takes_the_place_of_its_range_and_the_partition_counts_it():
    state = rolled(filled(6, **COMPACT), 0, 20)
    assert state.partitions[0].compactions == 0
    state = taken(state, compacted(state, 0, 30, 7))
    one = state.partitions[0]
    assert pieces(state)[:2] == [("segment", 0, 30), ("chunk", 30, 40)]
    assert (one.compacted_end, one.compactions, one.log_end, one.high_watermark) == (30, 1, 60, 60)
    assert one.segments[0].rows == 7


def test_a_fold_begins_where_the_keyed_segments_end_and_a_merge_takes_whole_ones():
    state = keyed_log(0, 20)
    assert is_refused(state, compacted(state, 30, 40))  # [20, 30) would be left out
    assert is_refused(state, compacted(state, 10, 40))  # [10, 20) would be folded twice
    state = taken(state, compacted(state, 20, 40))
    assert is_refused(state, compacted(state, 0, 50))
    assert is_refused(state, compacted(state, 0, 30))
    assert pieces(taken(state, compacted(state, 0, 40)))[0] == ("segment", 0, 40)


def test_what_a_suspended_process_made_of_older_segments_is_refused():
    state = rolled(filled(6, **COMPACT), 0, 20)
    fold, merge = compacted(state, 0, 20), compacted(state, 0, 30)
    state = taken(state, fold)
    assert is_refused(state, fold)
    assert is_refused(state, merge)
    rewritten = compacted(state, 0, 20)
    state = taken(state, rewritten)
    assert is_refused(state, rewritten)
    assert is_refused(state, msgspec.structs.replace(compacted(state, 0, 20), replaces=fold.replaces))


def test_of_an_older_leader_epoch_another_policy_or_another_version_column_it_is_refused():
    state = filled(6, **COMPACT)
    made = compacted(state, 0, 20)
    assert is_refused(state, msgspec.structs.replace(made, based_on=1))
    assert is_refused(after(state, AlterConfig({"cleanup.policy": "delete"})), made)
    assert not is_refused(after(state, AlterConfig({"cleanup.policy": "compact,delete"})), made)
    state = filled(6, **COMPACT, compaction_version_column="version")
    assert is_refused(state, made)
    assert not is_refused(state, msgspec.structs.replace(made, version_column="version"))


@pytest.mark.parametrize(("column", "refused"), [("version", True), ("", False)])
def test_a_fold_by_versions_is_refused_if_rows_were_deleted_with_which_it_compared_its_own(column, refused):
    state = filled(6, **COMPACT, compaction_version_column=column)
    state = taken(state, msgspec.structs.replace(compacted(state, 0, 20, 10), version_column=column))
    fold = msgspec.structs.replace(compacted(state, 20, 40), version_column=column)
    assert not is_refused(state, fold)
    assert is_refused(after(state, DeleteRecords(0, 10)), fold) == refused


def test_what_is_superseded_is_counted_when_the_segment_is_swapped_in():
    state = keyed_log(0, 20, 40)
    first, second = state.partitions[0].segments
    state = taken(state, compacted(state, 40, 50, 3, supersedes={first.name: 2, second.name: 10, "gone": 5}))
    found = [(each.keyed.superseded, each.keyed.supersedes) for each in state.partitions[0].segments]
    assert found == [(2, ()), (10, ()), (0, ())]
    state = taken(state, compacted(state, 50, 60, 3, supersedes={second.name: 1}))
    assert state.partitions[0].segments[1].keyed.superseded == 10  # it has no more rows


def test_rows_stay_until_every_member_of_the_isr_holds_the_keyed_segment_or_if_the_policy_changes():
    both = ("A", "B")
    state = after(started(replicas=both, **COMPACT), commit(None, file({0: 20}, on=both)))
    made = compacted(state, 0, 20, on=("A",))
    state = after(state, MaintainSegments((made,)))
    assert (pieces(state), state.partitions[0].compactions) == ([("chunk", 0, 20)], 0)
    held = after(state, HoldFiles("B", "incarnation of B", (), ((0, made.segment.name),)))
    assert (pieces(held), held.partitions[0].compactions) == ([("segment", 0, 20)], 1)
    state = after(state, AlterConfig({"cleanup.policy": "delete"}))
    assert state.partitions[0].staged == ()
    state = after(state, AlterConfig({"cleanup.policy": "compact"}))
    held = after(state, HoldFiles("B", "incarnation of B", (), ((0, made.segment.name),)))
    assert pieces(held) == [("chunk", 0, 20)]


@pytest.mark.parametrize(("version", "stays"), [("version", False), ("", True)])
def test_a_fold_by_versions_does_not_wait_any_longer_if_rows_were_deleted_with_which_it_compared_its_own(
    version, stays
):
    both = ("A", "B")
    state = started(replicas=both, compaction_version_column=version, **COMPACT)
    for _ in range(2):
        state = after(state, commit(None, file({0: 20}, on=both)))
    versioned = {"version_column": version}
    merge = msgspec.structs.replace(compacted(state, 0, 20, on=both), **versioned)
    state = after(state, MaintainSegments((merge,)))
    fold = msgspec.structs.replace(compacted(state, 20, 40, on=("A",)), **versioned)
    state = after(state, MaintainSegments((fold,)))
    assert state.partitions[0].staged
    state = after(state, DeleteRecords(0, 10))
    assert bool(state.partitions[0].staged) == stays
    assert [each.key for each in state.pending_deletions if fold.segment.name in each.key] == []
    held = after(state, HoldFiles("B", "incarnation of B", (), ((0, fold.segment.name),)))
    assert pieces(held)[1] == ("segment" if stays else "chunk", 20, 40)


# What is left


def test_retention_does_not_apply_to_a_topic_that_is_only_compacted():
    expired = {"retention_ms": 1}
    only = keyed_log(0, 20, **expired)
    assert topic.decide(only, topic.ApplyRetention(), 10**6) == []
    both = keyed_log(0, 20, cleanup_policy="compact,delete", **expired)
    (moved,) = topic.decide(both, topic.ApplyRetention(), 10**6)
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
