"""Fetch: from a range of a partition to Arrow batches, in an executor.

Byte ranges are read straight from the store of a node that has them, and every chunk's CRC is checked before Arrow sees
it. A large chunk is a batch as it is; small ones are joined, for each batch that Spark gets has a price.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log.client.read.failover import Failover, ReadReplica
from pyspark_log.client.read.recent_chunks import RecentChunks
from pyspark_log_coordinator.model.partition import ChunkRef
from pyspark_log_storage import schema, segment
from pyspark_log_storage.append_file import read_chunk
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError
from pyspark_log_storage.staged_chunk import StagedChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_storage.index import IndexEntry
    from pyspark_log_storage.store import Store

BATCH_ROWS = 50_000
"""Chunks are joined up to so many rows: each Arrow batch has a price on its way to the JVM."""
BATCH_BYTES_MAX = 8 * 1024 * 1024

_recent = RecentChunks()


class Split(msgspec.Struct, frozen=True):
    """Rows `[start, end)` of a partition, and where to read them: segments, then unrolled chunks; not both empty."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    segments: tuple[str, ...]
    """The keys of the segments, without ending."""
    segment_ends: tuple[int, ...]
    """Where the rows of each segment end."""
    files: dict[int, str]
    """The key of each append file that a chunk names by number."""
    chunks: tuple[ChunkRef, ...]
    schemas: tuple[bytes, ...]
    nodes: tuple[ReadReplica, ...]
    """Where to read, the nearest first."""
    partly: dict[str, tuple[int, ...]]
    """Of what not all of these nodes hold: the numbers, in `nodes`, of those that do, by key."""
    rack: str = ""
    """Where the reader stands."""

    def holders(self, key: str) -> tuple[ReadReplica, ...]:
        """Return the nodes from which a segment or an append file can be read, the nearest first."""
        numbers = self.partly.get(key)
        return self.nodes if numbers is None else tuple(self.nodes[number] for number in numbers)


class Place(msgspec.Struct, frozen=True):
    """A chunk of a split: its object, where in it, and its first offset."""

    key: str
    staged: StagedChunk
    base_offset: int

    @property
    def end_offset(self) -> int:
        """The offset behind the chunk's last row."""
        return self.base_offset + self.staged.rows


def fetch(
    store_at: Callable[[str], Store], split: Split, find_again: Callable[[int], Split] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the split's rows in order, each batch with its first row's offset.

    `store_at` opens the store at an address as the cluster knows it. Holds one batch and a chunk in memory, and from
    one split to the next what `recent_chunks` keeps. What one node does not give is read from the next that has it.
    `find_again(offset)` returns where the rows from `offset` on are now; it is asked once, where maintenance has moved
    them meanwhile, or no node gives them. Raises `CorruptObject`, which names topic, partition and offset, and
    `StoreError`: those of the nearest node.
    """
    waiting: list[pa.RecordBatch] = []
    first, rows, size = split.start, 0, 0
    for batch in _chunks(store_at, split, find_again):
        if waiting and (
            rows + batch.num_rows > BATCH_ROWS
            or size + batch.nbytes > BATCH_BYTES_MAX
            or batch.schema != waiting[0].schema
        ):
            yield first, _joined(waiting)
            first, waiting, rows, size = first + rows, [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if 2 * rows > BATCH_ROWS or 2 * size > BATCH_BYTES_MAX:  # another like it would be too much
            yield first, _joined(waiting)
            first, waiting, rows, size = first + rows, [], 0, 0
    if waiting:
        yield first, _joined(waiting)


def _chunks(
    store_at: Callable[[str], Store], split: Split, find_again: Callable[[int], Split] | None
) -> Iterator[pa.RecordBatch]:
    reached = split.start
    try:
        for batch in _read(store_at, split):
            yield batch
            reached += batch.num_rows
        return
    except (CorruptObject, StoreError) as error:
        is_missing = isinstance(error, ObjectMissing)
        if find_again is None or (len(split.nodes) == 1 and not is_missing):
            raise
        try:
            again = find_again(reached)
        except StoreError:
            if is_missing:
                raise
            raise error from None  # where the rows are now nobody can say either
    try:
        for batch in _read(store_at, again):
            yield batch
            reached += batch.num_rows
    except ObjectMissing as error:
        rows = f"topic {split.topic!r}, partition {split.partition}, offset {reached}"
        raise ObjectMissing(error.url, error.key, rows) from error


def _read(store_at: Callable[[str], Store], split: Split) -> Iterator[pa.RecordBatch]:
    schemas = _schemas(split.schemas, f"topic {split.topic!r}")
    failover = Failover(store_at, split.topic, split.partition)
    log = store_at(split.nodes[0].url).url if split.nodes else ""
    for place, nodes in _places(failover, split):
        known = (log, place)
        batch = _recent.take(known)
        if batch is None:
            batch = read_one(failover, nodes, place, schemas)
        if place.end_offset > split.end:  # the next micro-batch goes on in the same chunk
            _recent.keep(known, batch)
        yield _cut(batch, place, split)


@functools.lru_cache(maxsize=8)
def _schemas(stored: tuple[bytes, ...], name: str) -> tuple[pa.Schema, ...]:
    return tuple(schema.decode_records(data, name) for data in stored)


def _places(failover: Failover, split: Split) -> Iterator[tuple[Place, tuple[ReadReplica, ...]]]:
    """Yield the split's chunks in order, and who holds each; of a segment, once its turn comes, by its index."""
    reached = split.start
    for key, end in zip(split.segments, split.segment_ends, strict=True):
        nodes = split.holders(key)
        for entry in _entries(failover, nodes, split, key, (reached, min(end, split.end))):
            yield place_in_segment(key, entry), nodes
        reached = end
    for chunk in split.chunks:
        key = split.files[chunk.file]
        yield Place(key, chunk.place(split.partition), chunk.base_offset), split.holders(key)


def _entries(
    failover: Failover, nodes: Sequence[ReadReplica], split: Split, key: str, rows: tuple[int, int]
) -> list[IndexEntry]:
    """Return the chunks of a segment that hold any of the rows `[first, end)`, which are all in it.

    Raises `CorruptObject` where the segment does not hold every row of these.
    """

    def whole(found: list[IndexEntry]) -> list[IndexEntry]:
        reached, end = rows
        for entry in found:
            if entry.base_offset > reached:
                break
            reached = entry.end_offset
        if reached < end:
            name = f"topic {split.topic!r}, partition {split.partition}, offset {reached}"
            raise CorruptObject(name, f"segment {key}, which the journal names, does not hold it: it was cut")
        return found

    return failover.look_up(
        nodes,
        rows[0],
        lambda store: whole(segment.indexed_between(store, key, *rows)),
        lambda store: whole(segment.scanned_between(store, key, *rows)),
    )


def place_in_segment(key: str, entry: IndexEntry) -> Place:
    """Return a chunk of the segment at `key` (without ending)."""
    return Place(f"{key}.log", entry.place(), entry.base_offset)


def read_one(
    failover: Failover, nodes: Sequence[ReadReplica], place: Place, schemas: tuple[pa.Schema, ...]
) -> pa.RecordBatch:
    """Return the rows of one chunk, from one of these nodes. Raises `CorruptObject`, `StoreError`."""
    name = f"{failover.name}, offsets {place.base_offset} to {place.end_offset - 1}"
    return failover.read(
        nodes, place.base_offset, lambda store: read_chunk(store, place.key, place.staged, schemas, name)
    )


def _cut(batch: pa.RecordBatch, place: Place, split: Split) -> pa.RecordBatch:
    start = max(split.start, place.base_offset) - place.base_offset
    end = min(split.end, place.end_offset) - place.base_offset
    return batch if (start, end) == (0, batch.num_rows) else batch.slice(start, end - start)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
