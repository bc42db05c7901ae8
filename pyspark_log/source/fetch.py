"""Fetch: from a range of a partition to Arrow batches, in an executor.

Byte ranges are read straight from the store, the next ones while the present one is decoded. Every chunk's CRC is
checked before Arrow sees it. Small chunks are joined, for each batch that Spark gets has a price.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.partition import ChunkRef
from pyspark_log_storage import schema
from pyspark_log_storage.append_file import read_chunk
from pyspark_log_storage.staged_chunk import StagedChunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_storage.store import Store

BATCH_ROWS = 10_000
"""Chunks are joined up to so many rows, which is Spark's own size of an Arrow batch."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
PREFETCH_CHUNKS = 4


class Split(msgspec.Struct, frozen=True):
    """Rows `[start, end)` of a partition, and where to read them. `chunks` is never empty."""

    topic: str
    partition: int
    start: int
    end: int
    files: dict[int, str]
    """The key of each file that a chunk names by number."""
    chunks: tuple[ChunkRef, ...]
    schemas: tuple[bytes, ...]


def fetch(store: Store, split: Split) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the split's rows in order, each batch with its first row's offset.

    Holds `PREFETCH_CHUNKS` chunks and one batch in memory. Raises `CorruptObject`, which names topic, partition and
    offset, and `StoreError`.
    """
    waiting: list[pa.RecordBatch] = []
    first, rows, size = split.start, 0, 0
    for batch in _chunks(store, split):
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
    if waiting:
        yield first, _joined(waiting)


def _chunks(store: Store, split: Split) -> Iterator[pa.RecordBatch]:
    name = f"topic {split.topic!r}"
    schemas = tuple(schema.decode(data, name) for data in split.schemas)

    def read(chunk: ChunkRef) -> pa.RecordBatch:
        return read_one(store, split.files[chunk.file], chunk, schemas, split.topic, split.partition)

    if len(split.chunks) == 1:
        yield _cut(read(split.chunks[0]), split.chunks[0], split)
        return
    with ThreadPoolExecutor(1) as reader:
        ahead = deque((chunk, reader.submit(read, chunk)) for chunk in split.chunks[:PREFETCH_CHUNKS])
        rest = iter(split.chunks[PREFETCH_CHUNKS:])
        while ahead:
            chunk, pending = ahead.popleft()
            batch = pending.result()
            if (following := next(rest, None)) is not None:
                ahead.append((following, reader.submit(read, following)))
            yield _cut(batch, chunk, split)


def read_one(
    store: Store, key: str, chunk: ChunkRef, schemas: tuple[pa.Schema, ...], topic: str, partition: int
) -> pa.RecordBatch:
    """Return the rows of one chunk. Raises `CorruptObject`, `StoreError`."""
    place = StagedChunk(
        partition,
        chunk.position,
        chunk.length,
        chunk.rows,
        chunk.min_timestamp,
        chunk.max_timestamp,
        chunk.schema_id,
        chunk.crc,
    )
    name = f"topic {topic!r}, partition {partition}, offsets {chunk.base_offset} to {chunk.end_offset - 1}"
    return read_chunk(store, key, place, schemas, name)


def _cut(batch: pa.RecordBatch, chunk: ChunkRef, split: Split) -> pa.RecordBatch:
    start = max(split.start, chunk.base_offset) - chunk.base_offset
    end = min(split.end, chunk.end_offset) - chunk.base_offset
    return batch if (start, end) == (0, chunk.rows) else batch.slice(start, end - start)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
