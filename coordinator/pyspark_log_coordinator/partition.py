"""A partition: its replicas, who leads, and where its rows lie."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from pyspark_log_coordinator.tail import Tail

NodeId = str


class ChunkRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A sequenced chunk: rows `[base_offset, base_offset + rows)` of its partition.

    `file` numbers the topic's files; `position` and `length` are in bytes, timestamps in microseconds since
    1970.
    `timestamp_reached` is the largest timestamp of the partition up to and with this chunk: it never falls,
    so the first chunk that holds a time can be found by bisection, as in Kafka's time index.
    """

    base_offset: int
    rows: int
    file: int
    position: int
    length: int
    min_timestamp: int
    max_timestamp: int
    timestamp_reached: int
    leader_epoch: int
    schema_id: int
    crc: int

    @property
    def end_offset(self) -> int:
        """The offset behind the chunk's last row."""
        return self.base_offset + self.rows


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One partition's state. Offsets are row counts from the partition's start."""

    replicas: tuple[NodeId, ...]
    """AR: the assigned nodes, preferred leader first."""
    isr: tuple[NodeId, ...]
    leader: NodeId | None
    leader_epoch: int
    epoch_starts: tuple[tuple[int, int], ...]
    """(leader epoch, its first offset), oldest first: the leader-epoch-checkpoint."""
    log_start: int
    log_end: int
    """Where the next chunk goes. The sequence is one, so this is of the partition, not of a node."""
    high_watermark: int
    log_end_offsets: dict[NodeId, int]
    """LEO of each replica."""
    chunks: Tail[ChunkRef]

    def end_of_epoch(self, epoch: int) -> int:
        """Return where the rows of leader epochs up to `epoch` end (KIP-101's OffsetsForLeaderEpoch)."""
        later = [start for number, start in self.epoch_starts if number > epoch]
        return min(later, default=self.log_end)

    def chunks_between(self, start: int, end: int) -> list[ChunkRef]:
        """Return the chunks that hold any row of `[start, end)`, in order."""
        if start >= end:
            return []
        first = bisect_right(self.chunks, start, key=_end_offset)
        last = bisect_left(self.chunks, end, lo=first, key=_base_offset)
        return self.chunks[first:last]

    def first_chunk_reaching(self, timestamp: int) -> ChunkRef | None:
        """Return the first chunk with a row at or after `timestamp` (microseconds), or None."""
        index = bisect_right(self.chunks, timestamp - 1, key=_timestamp_reached)
        return self.chunks[index] if index < len(self.chunks) else None


def _base_offset(chunk: ChunkRef) -> int:
    return chunk.base_offset


def _end_offset(chunk: ChunkRef) -> int:
    return chunk.end_offset


def _timestamp_reached(chunk: ChunkRef) -> int:
    return chunk.timestamp_reached
