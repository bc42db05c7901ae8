"""The plan of compaction: which rows to clean, and which segments the head then has.

    head: keyed segments                 dense segments and chunks
    [0, 900) [900, 2000) [2000, 2400)    [2400, 3000) [3000, 3100) ...
                          compacted end = 2400

The head of a partition has at most one row of each key. A cleaning reads the oldest dense rows, of which the newest row
of each key becomes a segment of the head, and takes the rows of these keys out of the segments before it: those that
have any are written again, others stay as they are. It also takes out rows that delete their key, once
delete.retention.ms has passed since they were compacted: no older row of their key is left. A segment of which no row
stays is covered by the next one.

As in Kafka, a cleaning is due when the dense rows are a share of min.cleanable.dirty.ratio of the partition's bytes, or
when the oldest of them was written max.compaction.lag.ms ago; rows younger than min.compaction.lag.ms are left out. So
it writes at most what has come in, and (1 - ratio) / ratio times as much of the head, as long as the dirty rows fit in
one job (`DIRTY_ROWS_MAX`). 16 neighbours of one tier, which is the power of 16 in their rows, are merged, and a segment
is written again alone when half of its rows only delete their keys, and are past their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef
from pyspark_log_coordinator.segments.tiers import TIER_MAX, fitting, joined, tier_of
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.columns.compaction_columns import CompactionColumns

DIRTY_ROWS_MAX = 4_000_000
"""How many dirty rows are cleaned at once: a job has their keys in memory."""
PAST_SHARE = 0.5
"""A segment is written again alone when so many of its rows delete their keys, and are past their time."""
INLINE_CHUNKS = 64
INLINE_BYTES = 8 * 1024 * 1024
"""Writers clean rows when a segment has some of them, or so many chunks or bytes; see also `due`."""
INLINE_HEAD_BYTES_MAX = 256 * 1024 * 1024
"""Writers leave a larger head to maintenance: a cleaning may write all of it."""
_US_PER_MS = 1000


class Compaction(msgspec.Struct, frozen=True):
    """What a compaction needs besides its rows."""

    kept_from_ms: int
    """Rows that delete their key are dropped if they were compacted then or before (ms)."""
    columns: CompactionColumns
    """The columns that say a row's key, and whether it deletes its key."""
    log_start: int
    """Rows before it were deleted."""
    makes_one: bool
    """Whether all rows come into one segment."""
    dirty_since_ms: int = 0
    """When the first of the dense rows was written."""


Work = tuple[Sequence[SegmentRef | ChunkRef], bool]
"""The whole head and what to clean after it; or, with True, neighbours of the head that become one segment."""


def due(
    topic: Topic, partition: Partition, now: int, budget: int, inline_lag: int | None, at_once: int = 0
) -> Work | None:
    """Return what is to be compacted at `now` (ms), of at most `budget` bytes besides the head, or None.

    Writers, which give an `inline_lag`, clean only what is so old at least (ms): that takes as long as writing the rows
    did, and maintenance may come by before. Rows below the offset `at_once` are cleaned whatever their share of the
    partition, unless they are younger than min.compaction.lag.ms.
    """
    if not topic.config.is_compacted:
        return None
    return _cleaning(topic, partition, now, budget, inline_lag, at_once) or _merge(topic, partition, now, budget)


def compaction_of(topic: Topic, partition: Partition, work: Work, now: int) -> Compaction:
    """Return what the job of a partition needs."""
    pieces, makes_one = work
    kept_from = now - topic.config.delete_retention_ms
    dirty = next((each for each in pieces if isinstance(each, ChunkRef) or each.keyed is None), pieces[-1])
    return Compaction(kept_from, topic.config.compaction_columns, partition.log_start, makes_one, since(topic, dirty))


def _cleaning(
    topic: Topic, partition: Partition, now: int, budget: int, inline_lag: int | None, at_once: int
) -> Work | None:
    config, head = topic.config, partition.keyed_segments
    youngest = (now - config.min_compaction_lag_ms) * _US_PER_MS
    dirty: list[SegmentRef | ChunkRef] = []
    for piece in partition.pieces_from(partition.compacted_end):
        is_young = config.min_compaction_lag_ms > 0 and _newest(topic, piece, now) > youngest
        if piece.end_offset > partition.high_watermark or is_young:
            break
        dirty.append(piece)
    if not dirty:
        return None
    size, clean = sum(each.length for each in dirty), sum(each.length for each in head)
    written = since(topic, dirty[0])
    is_late = written + config.max_compaction_lag_ms <= now
    is_much = size >= config.min_cleanable_dirty_ratio * (size + clean)
    if inline_lag is not None:
        if clean > INLINE_HEAD_BYTES_MAX:
            return None
        budget = max(budget, min(size, INLINE_HEAD_BYTES_MAX))
        is_enough = isinstance(dirty[0], SegmentRef) or len(dirty) >= INLINE_CHUNKS or size >= INLINE_BYTES
        is_much = is_much and is_enough and written + inline_lag <= now
    if not (is_late or is_much or dirty[0].base_offset < at_once):
        return None
    return (*head, *fitting(dirty, budget, DIRTY_ROWS_MAX)), False


def _newest(topic: Topic, piece: SegmentRef | ChunkRef, now: int) -> int:
    """Return the time of the newest row (microseconds); if that is to come, when the last row was written."""
    if piece.max_timestamp <= now * _US_PER_MS:
        return piece.max_timestamp
    written = piece.until_ms if isinstance(piece, SegmentRef) else topic.file(piece.file).sequenced_ms
    return written * _US_PER_MS


def since(topic: Topic, piece: SegmentRef | ChunkRef) -> int:
    """Return when the first row was written (ms)."""
    return piece.since_ms if isinstance(piece, SegmentRef) else topic.file(piece.file).sequenced_ms


def _merge(topic: Topic, partition: Partition, now: int, budget: int) -> Work | None:
    config, head = topic.config, partition.keyed_segments
    kept_from = now - config.delete_retention_ms
    for each in head:
        past = past_rows(each, kept_from)
        if past and past >= max(PAST_SHARE, config.min_cleanable_dirty_ratio) * each.rows and each.rows > 1:
            return (each,), True
    is_long = [each.span > SEGMENT_ROWS_MAX // 2 for each in head]
    tiers = [TIER_MAX if long else tier_of(each.rows) for each, long in zip(head, is_long, strict=True)]
    for start, end in joined(tiers):
        taken = fitting(head[start:end], min(budget, config.segment_bytes), DIRTY_ROWS_MAX)
        if len(taken) > 1:
            return taken, True
    return None


def past_rows(segment: SegmentRef, kept_from: int) -> int:
    """Return how many rows of a segment of the head delete their key and were compacted at `kept_from` or before (ms).

    That is as far as the journal knows: they were counted by the delete.when of then.
    """
    assert segment.keyed is not None
    return segment.keyed.tombstones if segment.cleaned_ms <= kept_from else 0


class Source(msgspec.Struct, frozen=True):
    """A segment of the head, or all dense rows, as a compaction finds them."""

    base_offset: int
    end_offset: int
    last: int
    """The offset of the last row that there is."""
    rows: int
    """How many rows stay."""
    is_changed: bool
    """Whether others do not, or it is not of the head."""


class Output(msgspec.Struct, frozen=True):
    """A segment to write, for the offsets of some sources, which are given by number."""

    base_offset: int
    end_offset: int
    sources: tuple[int, ...]
    placeholder: int | None = None
    """The offset of its only row if none of the sources has one that stays."""


def outputs(sources: Sequence[Source], *, makes_one: bool, span_max: int = SEGMENT_ROWS_MAX) -> list[Output]:
    """Return the segments to write, in order. Sources that none of them names stay as they are.

    A source of which no row stays is covered by the next one, the last by the one before it. If there is none, or the
    offsets were too many for a segment, a row stays as a placeholder.
    """
    if makes_one:
        return [_output(sources, range(len(sources)))]
    found: list[Output] = []
    begin = 0
    for number, each in enumerate(sources):
        if number > begin and each.end_offset - sources[begin].base_offset > span_max:
            found.append(_output(sources, range(begin, number)))
            begin = number
        if each.rows:
            if each.is_changed or number > begin:
                found.append(_output(sources, range(begin, number + 1)))
            begin = number + 1
    if begin == len(sources):
        return found
    before = begin - 1
    if found and found[-1].sources[-1] == before:
        before = found[-1].sources[0]
    if before >= 0 and sources[-1].end_offset - sources[before].base_offset <= span_max:
        found = [each for each in found if each.sources[0] < before]
        begin = before
    return [*found, _output(sources, range(begin, len(sources)))]


def _output(sources: Sequence[Source], numbers: range) -> Output:
    some = [sources[each] for each in numbers]
    placeholder = None if any(each.rows for each in some) else some[-1].last
    return Output(some[0].base_offset, some[-1].end_offset, tuple(numbers), placeholder)
