"""A partition: its replicas, its leader, and the segments and chunks that hold its rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import layout
from pyspark_log_storage.files.row_files import SegmentFile, StagedChunk
from pyspark_log_storage.stored_fields import Count, Int64, UInt32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NodeId = str
BEFORE_ALL_TIMES = -(2**63)
_base_offset = attrgetter("base_offset")
_end_offset = attrgetter("end_offset")
_timestamp_reached = attrgetter("timestamp_reached")


def _is_dense(segment: SegmentRef) -> bool:
    return segment.keyed is None


class Holder(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node, in one incarnation, on which a file is known to be durable."""

    node: NodeId
    incarnation: str


class ChunkRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A sequenced chunk: rows `[base_offset, base_offset + rows)` of its partition.

    `file` numbers an append file of the topic. `position` and `length` are in bytes, timestamps in microseconds
    since 1970. `timestamp_reached` is the largest timestamp of the partition up to and including this chunk. It never
    falls, so a bisection finds the first chunk that reaches a time, as in Kafka's time index.
    """

    base_offset: Count
    rows: UInt32
    file: Count
    position: Count
    length: Count
    min_timestamp: Int64
    max_timestamp: Int64
    timestamp_reached: Int64
    leader_epoch: Count
    schema_id: UInt32
    crc: UInt32

    @property
    def end_offset(self) -> int:
        """The offset after the chunk's last row."""
        return self.base_offset + self.rows

    def place(self, partition: int) -> StagedChunk:
        """Return the chunk's place in its file and what a reader must find there."""
        return StagedChunk(
            partition,
            self.position,
            self.length,
            self.rows,
            self.min_timestamp,
            self.max_timestamp,
            self.schema_id,
            self.crc,
        )


class SegmentRef(SegmentFile, frozen=True, gc=False):
    """A rolled segment: rows `[base_offset, end_offset)` of its partition. Sizes in bytes, timestamps in microseconds.

    `level` counts how often its rows were rewritten since the append file; nothing rewrites one of level 4, as one of
    chunks is with a row too large for Parquet. `timestamp_reached` is as in `ChunkRef`. `since_ms` is when the first
    row was sequenced (ms, the log's clock), and `until_ms` when the last one was, 0 if that is not known. A keyed
    segment, which compaction made, has only some of the rows; `cleaned_ms` is when the last of its range was compacted
    for the first time (ms, the log's clock): when that segment was swapped in.
    """

    holders: tuple[Holder, ...]
    level: Count
    timestamp_reached: Int64
    since_ms: Int64 = 0
    until_ms: Int64 = 0
    cleaned_ms: Int64 = 0

    @property
    def span(self) -> int:
        """The number of offsets."""
        return self.end_offset - self.base_offset

    @property
    def rows(self) -> int:
        return self.span if self.keyed is None else self.keyed.rows

    @property
    def is_parquet(self) -> bool:
        """Whether the rows are in a .parquet, which the name says."""
        return layout.is_parquet(self.name)

    @property
    def length(self) -> int:
        """The size in bytes, as that of a chunk."""
        return self.log_bytes

    @property
    def born(self) -> int:
        """The number of the newest journal entry that its writer knew."""
        return layout.born_of(self.name)


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One partition's state. Offsets are row counts from the partition's start."""

    replicas: tuple[NodeId, ...]
    """AR: the assigned nodes, preferred leader first."""
    isr: tuple[NodeId, ...]
    leader: NodeId | None
    leader_epoch: Count
    epoch_starts: tuple[tuple[Count, Count], ...]
    """(leader epoch, its first offset), oldest first: the leader-epoch-checkpoint."""
    log_start: Count
    log_end: Count
    """The offset of the next chunk. There is one sequence, so this belongs to the partition, not to a node."""
    high_watermark: Count
    log_end_offsets: dict[NodeId, Count]
    """LEO of each replica: it holds all rows from the log start to there."""
    segments: tuple[SegmentRef, ...]
    """The rolled part of the log, oldest first."""
    chunks: tuple[ChunkRef, ...]
    """The unrolled part, which begins at the end of the segments."""
    adding: tuple[NodeId, ...] = ()
    """Replicas that a reassignment adds. Those in `removing` leave when all of these are in the ISR (KIP-455)."""
    removing: tuple[NodeId, ...] = ()
    before: tuple[NodeId, ...] = ()
    """The replicas before the current reassignment, preferred leader first: cancelling it restores these."""
    compactions: Count = 0
    """How often rows were compacted: a batch of rows below the compacted end is the same while this is."""

    @property
    def leader_end(self) -> int:
        """The leader's LEO, or the log end if there is no leader."""
        return self.log_end if self.leader is None else self.log_end_offsets[self.leader]

    @property
    def epoch_start(self) -> int:
        """The first offset of the current leader epoch."""
        return self.epoch_starts[-1][1]

    @property
    def rolled_end(self) -> int:
        """The offset at which the segments end and the unrolled chunks begin."""
        if self.segments:
            return self.segments[-1].end_offset
        return self.chunks[0].base_offset if self.chunks else self.log_end

    @property
    def keyed_segments(self) -> tuple[SegmentRef, ...]:
        """The keyed segments, with which a compacted partition begins, oldest first."""
        return self.segments[: bisect_left(self.segments, True, key=_is_dense)]

    @property
    def compacted_end(self) -> int:
        """The offset at which the keyed segments end. From there on the log has every row."""
        keyed = self.keyed_segments
        return keyed[-1].end_offset if keyed else self.log_start

    @property
    def timestamp_reached(self) -> int:
        """The largest timestamp of the partition (microseconds)."""
        newest = self.chunks or self.segments
        return newest[-1].timestamp_reached if newest else BEFORE_ALL_TIMES

    def end_of_epoch(self, epoch: int) -> int:
        """Return the end of the rows of leader epochs up to `epoch` (KIP-101's OffsetsForLeaderEpoch)."""
        later = [start for number, start in self.epoch_starts if number > epoch]
        return min(later, default=self.log_end)

    def chunks_between(self, start: int, end: int) -> tuple[ChunkRef, ...]:
        """Return the unrolled chunks that hold any row of `[start, end)`, in order."""
        return self.chunks[_between(self.chunks, start, end)]

    def chunks_ending_by(self, offset: int) -> int:
        """Return the number of unrolled chunks that end at or before `offset`."""
        return bisect_right(self.chunks, offset, key=_end_offset)

    def segments_between(self, start: int, end: int) -> tuple[SegmentRef, ...]:
        """Return the segments that hold any row of `[start, end)`, in order."""
        return self.segments[_between(self.segments, start, end)]

    def pieces_between(self, start: int, end: int) -> list[SegmentRef | ChunkRef]:
        """Return the segments and the unrolled chunks that hold any row of `[start, end)`, in order."""
        return [*self.segments_between(start, end), *self.chunks_between(start, end)]

    def pieces_from(self, offset: int) -> Iterator[SegmentRef | ChunkRef]:
        """Yield the segments and the unrolled chunks with a row at or after `offset`, in order and lazily."""
        for pieces in (self.segments, self.chunks):
            for number in range(bisect_right(pieces, offset, key=_end_offset), len(pieces)):
                yield pieces[number]

    def rows_between(self, start: int, end: int) -> int:
        """Return how many rows `[start, end)` has, at most; exactly, if no keyed segment has only a part of it."""
        rows = 0
        for segment in self.segments_between(start, min(end, self.compacted_end)):
            within = min(end, segment.end_offset) - max(start, segment.base_offset)
            rows += min(within, segment.rows) if segment.keyed is not None else within
        return rows + max(0, end - max(start, self.compacted_end))

    def segments_reaching(self, timestamp: int) -> list[SegmentRef]:
        """Return the segments with a row at or after `timestamp` (microseconds), in order."""
        first = bisect_right(self.segments, timestamp - 1, key=_timestamp_reached)
        return [segment for segment in self.segments[first:] if segment.max_timestamp >= timestamp]

    def chunks_reaching(self, timestamp: int) -> list[ChunkRef]:
        """Return the unrolled chunks with a row at or after `timestamp` (microseconds), in order."""
        first = bisect_right(self.chunks, timestamp - 1, key=_timestamp_reached)
        return [chunk for chunk in self.chunks[first:] if chunk.max_timestamp >= timestamp]


def empty(nodes: tuple[NodeId, ...], in_sync: tuple[NodeId, ...]) -> Partition:
    """Return a partition without rows on `nodes`, preferred leader first; the first of `in_sync` leads."""
    return Partition(
        replicas=nodes,
        isr=in_sync,
        leader=in_sync[0] if in_sync else None,
        leader_epoch=0,
        epoch_starts=((0, 0),),
        log_start=0,
        log_end=0,
        high_watermark=0,
        log_end_offsets=dict.fromkeys(nodes, 0),
        segments=(),
        chunks=(),
    )


def _between(pieces: Sequence[ChunkRef | SegmentRef], start: int, end: int) -> slice:
    """Return the slice of those of the pieces, in order, that hold any row of `[start, end)`."""
    if start >= end:
        return slice(0)
    first = bisect_right(pieces, start, key=_end_offset)
    return slice(first, bisect_left(pieces, end, lo=first, key=_base_offset))


def by_number(node: NodeId) -> tuple[bool, int, str]:
    """Return the sort key of a node."""
    plain = node.isascii() and node.isdigit()
    return (not plain, int(node) if plain else 0, node)


def named(nodes: Iterable[NodeId]) -> str:
    """Return the sorted nodes as a comma-separated list for messages, "none" if there are none."""
    return ", ".join(sorted(nodes, key=by_number)) or "none"
