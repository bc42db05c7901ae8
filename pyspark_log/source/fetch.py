"""Fetch: from a range of a partition to Arrow batches, in an executor.

Byte ranges are read straight from the store, and every chunk's CRC is checked before Arrow sees it. A large chunk is a
batch as it is; small ones are joined, for each batch that Spark gets has a price.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log.source.recent_chunks import RecentChunks
from pyspark_log_coordinator.partition import ChunkRef
from pyspark_log_storage import schema, segment
from pyspark_log_storage.append_file import read_chunk
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.staged_chunk import StagedChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    files: dict[int, str]
    """The key of each append file that a chunk names by number."""
    chunks: tuple[ChunkRef, ...]
    schemas: tuple[bytes, ...]


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
    store: Store, split: Split, find_again: Callable[[int], Split] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the split's rows in order, each batch with its first row's offset.

    Holds one batch and a chunk in memory, and from one split to the next what `recent_chunks` keeps.
    `find_again(offset)` returns where the rows from `offset` on are now; it is asked once, where maintenance has moved
    them meanwhile. Raises `CorruptObject`, which names topic, partition and offset, and `StoreError`.
    """
    waiting: list[pa.RecordBatch] = []
    first, rows, size = split.start, 0, 0
    for batch in _chunks(store, split, find_again):
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


def _chunks(store: Store, split: Split, find_again: Callable[[int], Split] | None) -> Iterator[pa.RecordBatch]:
    reached = split.start
    try:
        for batch in _read(store, split):
            yield batch
            reached += batch.num_rows
    except ObjectMissing:
        if find_again is None:
            raise
        yield from _read(store, find_again(reached))


def _read(store: Store, split: Split) -> Iterator[pa.RecordBatch]:
    schemas = _schemas(split.schemas, f"topic {split.topic!r}")
    for place in _all_places(store, split):
        known = (store.url, place)
        batch = _recent.take(known)
        if batch is None:
            batch = read_one(store, place, schemas, split.topic, split.partition)
        if place.end_offset > split.end:  # the next micro-batch goes on in the same chunk
            _recent.keep(known, batch)
        yield _cut(batch, place, split)


@functools.lru_cache(maxsize=8)
def _schemas(stored: tuple[bytes, ...], name: str) -> tuple[pa.Schema, ...]:
    return tuple(schema.decode(data, name) for data in stored)


def _all_places(store: Store, split: Split) -> Iterator[Place]:
    """Yield the split's chunks in order. Raises `CorruptObject` where they do not hold every row of it."""
    reached = split.start
    for place in _places(store, split):
        if place.base_offset > reached:
            break
        reached = place.end_offset
        yield place
    if reached < split.end:
        name = f"topic {split.topic!r}, partition {split.partition}, offset {reached}"
        raise CorruptObject(name, "the files that the journal names do not hold it: one was cut")


def _places(store: Store, split: Split) -> Iterator[Place]:
    """Yield the split's chunks in order; of a segment, once its turn comes, by its index."""
    for key in split.segments:
        for entry in segment.entries_between(store, key, split.start, split.end):
            yield place_in_segment(key, entry)
    for chunk in split.chunks:
        yield Place(split.files[chunk.file], chunk.place(split.partition), chunk.base_offset)


def place_in_segment(key: str, entry: IndexEntry) -> Place:
    """Return a chunk of the segment at `key` (without ending)."""
    return Place(f"{key}.log", entry.place(), entry.base_offset)


def read_one(store: Store, place: Place, schemas: tuple[pa.Schema, ...], topic: str, partition: int) -> pa.RecordBatch:
    """Return the rows of one chunk. Raises `CorruptObject`, `StoreError`."""
    name = f"topic {topic!r}, partition {partition}, offsets {place.base_offset} to {place.end_offset - 1}"
    return read_chunk(store, place.key, place.staged, schemas, name)


def _cut(batch: pa.RecordBatch, place: Place, split: Split) -> pa.RecordBatch:
    start = max(split.start, place.base_offset) - place.base_offset
    end = min(split.end, place.end_offset) - place.base_offset
    return batch if (start, end) == (0, batch.num_rows) else batch.slice(start, end - start)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
