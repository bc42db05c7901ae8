"""The plan of compaction: which rows to fold into keyed segments, and which of these to merge.

    keyed segments           dense segments and chunks
    [0, 900) [900, 2000)     [2000, 2400) [2400, 2500) ...
                        X = compacted end

A fold makes one keyed segment of the oldest dense rows: the newest row of each key, with the offsets of the rows in
earlier keyed segments that these supersede. A merge rewrites keyed segments without superseded rows, and without rows
that delete their key once delete.retention.ms has passed, unless an older row of the key is left in the segments before
them: a reader of all rows would take that for the newest. So each key has one row in all keyed segments that is not
superseded, and what a fold or a merge does follows what was written since, not what is there. With a version column the
newest row is the one with the largest version: a fold leaves out rows that are older than those of earlier segments.

As in Kafka, a fold is due when the dense rows are a share of min.cleanable.dirty.ratio of the partition's bytes, or
when the oldest of them was written max.compaction.lag.ms ago; rows younger than min.compaction.lag.ms are left out.
A keyed segment is rewritten when half of its rows, or that share if it is larger, are superseded, or of the first one
past their time, and 16 neighbours of one tier, which is the power of 16 in their rows, are merged: a row is rewritten a
few times, however long the log is. One that covers half of the offsets that a segment can have is merged no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef
from pyspark_log_coordinator.segments.tiers import TIER_MAX, joined, tier_of
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.columns.compaction_columns import CompactionColumns

KEYED_ROWS_MAX = 4_000_000
"""How many rows are folded or merged at once: a job keeps some 70 bytes of each in memory."""
REWRITTEN_SHARE = 0.5
"""A smaller share of superseded rows is not worth the rest of the segment, however often rows are folded."""
FOLD_CHUNKS = 64
FOLD_BYTES = 8 * 1024 * 1024
"""Writers fold rows when a segment has some of them, or so many chunks or bytes; see also `due`."""
_US_PER_MS = 1000


class Compaction(msgspec.Struct, frozen=True):
    """What a job that makes a keyed segment needs besides its rows."""

    others: tuple[SegmentRef, ...]
    """Of a fold the keyed segments before it, of a merge those after it."""
    at_ms: int
    """The time of the plan (ms)."""
    kept_from_ms: int
    """Rows that delete their key are dropped if they were compacted then or before (ms)."""
    columns: CompactionColumns
    """The columns that say a row's key and version, and whether it deletes its key."""
    older: tuple[SegmentRef, ...] = ()
    """Of a merge the keyed segments before it."""
    log_start: int = 0
    """A fold leaves out rows before it, which were deleted, and no version of theirs is compared."""


class Work(msgspec.Struct, frozen=True):
    """Segments and chunks to fold, or keyed segments to merge."""

    pieces: tuple[SegmentRef | ChunkRef, ...]
    others: tuple[SegmentRef, ...]
    older: tuple[SegmentRef, ...] = ()


def due(
    topic: Topic, partition: Partition, now: int, budget: int, inline_lag: int | None, at_once: int = 0
) -> Work | None:
    """Return what is to be compacted at `now` (ms), of at most `budget` bytes, or None.

    Writers, which give an `inline_lag`, fold only what is so old at least (ms): a fold takes as long as writing its
    rows did, and maintenance may come by before. Rows below the offset `at_once` are folded whatever their share of the
    partition, unless they are younger than min.compaction.lag.ms.
    """
    if not topic.config.is_compacted:
        return None
    return _fold(topic, partition, now, budget, inline_lag, at_once) or _merge(topic, partition, now, budget)


def compaction_of(
    topic: Topic,
    partition: Partition,
    others: tuple[SegmentRef, ...],
    now: int,
    older: tuple[SegmentRef, ...] = (),
) -> Compaction:
    """Return what a job of a partition needs that reads `others` and `older`, too."""
    kept_from, columns = _kept_from(topic, partition, now), topic.config.compaction_columns
    return Compaction(others, now, kept_from, columns, older, partition.log_start)


def _kept_from(topic: Topic, partition: Partition, now: int) -> int:
    """Return since when rows that delete their key are kept: those that were compacted then or before are dropped (ms).

    With a version column such a row also deletes older ones that come later. So it is kept until all rows have been
    compacted that were written before its delete.retention.ms had passed.
    """
    until = now
    if topic.config.compaction_version_column:
        dense = next(partition.pieces_from(partition.compacted_end), None)
        until = now if dense is None else min(now, _since(topic, dense))
    return until - topic.config.delete_retention_ms


def _fold(
    topic: Topic, partition: Partition, now: int, budget: int, inline_lag: int | None, at_once: int
) -> Work | None:
    config, keyed = topic.config, partition.keyed_segments
    youngest = (now - config.min_compaction_lag_ms) * _US_PER_MS
    dirty: list[SegmentRef | ChunkRef] = []
    for piece in partition.pieces_from(partition.compacted_end):
        is_young = config.min_compaction_lag_ms > 0 and _newest(topic, piece, now) > youngest
        if piece.end_offset > partition.high_watermark or is_young:
            break
        dirty.append(piece)
    if not dirty:
        return None
    size = sum(each.length for each in dirty)
    since = _since(topic, dirty[0])
    is_late = since + config.max_compaction_lag_ms <= now
    is_much = size >= config.min_cleanable_dirty_ratio * (size + sum(each.length for each in keyed))
    if inline_lag is not None:
        is_enough = isinstance(dirty[0], SegmentRef) or len(dirty) >= FOLD_CHUNKS or size >= FOLD_BYTES
        is_much = is_much and is_enough and since + inline_lag <= now
    if not (is_late or is_much or dirty[0].base_offset < at_once):
        return None
    return Work(_as_many_as_fit(dirty, budget), keyed)


def _newest(topic: Topic, piece: SegmentRef | ChunkRef, now: int) -> int:
    """Return the time of the newest row (microseconds); if that is to come, when the last row was written."""
    if piece.max_timestamp <= now * _US_PER_MS:
        return piece.max_timestamp
    written = piece.until_ms if isinstance(piece, SegmentRef) else topic.file(piece.file).sequenced_ms
    return written * _US_PER_MS


def _since(topic: Topic, piece: SegmentRef | ChunkRef) -> int:
    """Return when the first row was written (ms)."""
    return piece.since_ms if isinstance(piece, SegmentRef) else topic.file(piece.file).sequenced_ms


def _as_many_as_fit(pieces: Sequence[SegmentRef | ChunkRef], budget: int) -> tuple[SegmentRef | ChunkRef, ...]:
    """Return the first of the pieces, one at least."""
    taken: list[SegmentRef | ChunkRef] = []
    size = rows = 0
    for each in pieces:
        size, rows = size + each.length, rows + each.rows
        is_too_long = each.end_offset - pieces[0].base_offset > SEGMENT_ROWS_MAX
        if taken and (size > budget or rows > KEYED_ROWS_MAX or is_too_long):
            break
        taken.append(each)
    return tuple(taken)


def _merge(topic: Topic, partition: Partition, now: int, budget: int) -> Work | None:
    config, keyed = topic.config, partition.keyed_segments
    kept_from = _kept_from(topic, partition, now)
    left = [each.rows - dead_rows(each, kept_from, is_first=not number) for number, each in enumerate(keyed)]
    for number, each in enumerate(keyed):
        dead = each.rows - left[number]
        if dead >= max(REWRITTEN_SHARE, config.min_cleanable_dirty_ratio) * each.rows and each.rows > 1:
            return Work((each,), keyed[number + 1 :], keyed[:number])
    is_long = [each.span > SEGMENT_ROWS_MAX // 2 for each in keyed]
    tiers = [TIER_MAX if long else tier_of(rows) for rows, long in zip(left, is_long, strict=True)]
    for start, end in joined(tiers):
        taken = _as_many_as_fit(keyed[start:end], min(budget, config.segment_bytes))
        if len(taken) > 1:
            return Work(taken, keyed[start + len(taken) :], keyed[:start])
    return None


def dead_rows(segment: SegmentRef, kept_from: int, *, is_first: bool) -> int:
    """Return how many rows of a keyed segment a merge would leave out, as far as the journal knows.

    It drops rows that delete their key if they were compacted at `kept_from` (ms) or before. The journal knows that
    only for the first segment: after others older rows may be left.
    """
    keyed = segment.keyed
    assert keyed is not None
    is_past = is_first and keyed.cleaned_ms <= kept_from
    return min(keyed.rows, keyed.superseded + (keyed.tombstones if is_past else 0))
