"""Fetch: reads the rows of a split as Arrow batches, in a task.

Every chunk's CRC is checked before Arrow decodes it. A large chunk becomes one batch. Small chunks are joined, because
each batch has a cost on its way to the JVM.

The rows of a keyed segment, which compaction made, have gaps between their offsets. They come with a column of these,
first, until `fetch` yields them.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.reading.failover import Failover, ReadReplica
from pyspark_log_coordinator.model.partition import ChunkRef
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.errors import CorruptObject, NoCluster, ObjectMissing, StoreError
from pyspark_log_storage.files import index
from pyspark_log_storage.files.append_file import read_chunk
from pyspark_log_storage.files.row_files import StagedChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from pyspark_log_storage.columns.keys import Offsets
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.stores.store import Readable, Store

BATCH_ROWS = 50_000
"""Small chunks are joined up to this many rows."""
RECENT_BYTES_MAX = 32 * 1024 * 1024
"""How much of the chunks that the next micro-batch continues is kept."""
BATCH_BYTES_MAX = 8 * 1024 * 1024


class RecentChunks:
    """A cache of decoded chunks that the next micro-batch continues, evicted in least recently used order.

    With `maxOffsetsPerTrigger` a micro-batch may take a hundred rows of a chunk of a hundred thousand. Without the
    cache each would read and decode the whole chunk again. Safe for any number of threads.
    """

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, pa.RecordBatch] = OrderedDict()

    def take(self, chunk: Hashable) -> pa.RecordBatch | None:
        """Remove a chunk and return its rows, or None if it is not cached."""
        with self._lock:
            return self._remove(chunk)

    def keep(self, chunk: Hashable, batch: pa.RecordBatch) -> None:
        """Cache the rows of a chunk, unless they alone exceed the limit."""
        with self._lock:
            self._remove(chunk)
            if batch.nbytes > self._bytes_max:
                return
            self._kept[chunk] = batch
            self._bytes += batch.nbytes
            while self._kept and self._bytes > self._bytes_max:
                self._remove(next(iter(self._kept)))

    def _remove(self, chunk: Hashable) -> pa.RecordBatch | None:
        batch = self._kept.pop(chunk, None)
        if batch is not None:
            self._bytes -= batch.nbytes
        return batch


_recent = RecentChunks()
_OFFSET = pa.field("offset", pa.int64(), nullable=False)


class Split(msgspec.Struct, frozen=True):
    """Rows `[start, end)` of a partition, and their files: segments, then unrolled chunks, at least one of them."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    segments: tuple[str, ...]
    """The keys of the segments."""
    segment_ends: tuple[int, ...]
    """The end offset of each segment."""
    files: dict[int, str]
    """The keys of the append files, by the numbers in `chunks`."""
    chunks: tuple[ChunkRef, ...]
    schemas: tuple[bytes, ...]
    nodes: tuple[ReadReplica, ...]
    """The nodes to read from, nearest first."""
    partial_holders: dict[str, tuple[int, ...]]
    """The indexes in `nodes` of the holders, for each file that not all of the nodes hold."""
    rack: str = ""
    """The reader's rack."""
    compactions: int = 0
    """How often rows of the partition had been compacted, if the split has such rows."""
    leader_epoch: int = 0
    """That of the partition when the split was planned."""
    columns: tuple[str, ...] | None = None
    """The columns to decode, of a typed topic. None: all."""

    def holders(self, key: str) -> tuple[ReadReplica, ...]:
        """Return the nodes that hold a segment or an append file, nearest first."""
        numbers = self.partial_holders.get(key)
        return self.nodes if numbers is None else tuple(self.nodes[number] for number in numbers)


class ChunkPlace(msgspec.Struct, frozen=True):
    """A chunk of a split: the key of its file, its place in the file, and its first offset.

    A row group of a keyed segment covers `span` offsets; for others that is 0.
    """

    key: str
    staged: StagedChunk
    base_offset: int
    span: int = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last one that the chunk covers."""
        return self.base_offset + (self.span or self.staged.rows)


def fetch(
    store_at: Callable[[str], Store],
    split: Split,
    find_again: Callable[[int], Split | None] | None = None,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[tuple[Offsets, pa.RecordBatch]]:
    """Yield the split's rows in order, each batch with its offsets.

    `store_at` opens the store at an address as the cluster knows it. Small chunks are joined up to `batch_bytes_max`
    bytes. Holds one batch and one chunk in memory, besides `RecentChunks`; between two batches it holds only the
    chunk that it has read and that did not fit, if there is one. If a node fails, the next holder is read. If a file is
    missing or no holder can be read, `find_again(offset)` is called, until it finds the same files: it returns a new
    split of the rows from `offset`, which maintenance may have moved, or None if there are no more. Raises the nearest
    node's `CorruptObject`, which names topic, partition and offset, or `StoreError`.
    """
    return _grouped(_chunks(store_at, split, find_again), batch_bytes_max)


def _grouped(batches: Iterable[tuple[int, pa.RecordBatch]], bytes_max: int) -> Iterator[tuple[Offsets, pa.RecordBatch]]:
    """Yield the rows, of which each batch comes with its first offset; small batches are joined if none are between."""
    group: list[pa.RecordBatch] = []
    offset = rows = size = 0
    for begin, batch in batches:
        is_full = rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > bytes_max
        is_apart = begin != offset + rows and not _has_offsets(batch)
        if group and (is_full or is_apart or batch.schema != group[0].schema):
            yield _placed(offset, _taken(group))
            rows = size = 0
        if not group:
            offset = begin
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        del batch  # a generator that waits would keep it in memory
        if 2 * rows > BATCH_ROWS or 2 * size > bytes_max:  # another one as large would not fit
            yield _placed(offset, _taken(group))
            rows = size = 0
    if group:
        yield _placed(offset, _taken(group))


def _placed(offset: int, batch: pa.RecordBatch) -> tuple[Offsets, pa.RecordBatch]:
    """Return rows with their offsets, which are in the first column if they have gaps."""
    if not _has_offsets(batch):
        return np.arange(offset, offset + batch.num_rows), batch
    return np.asarray(batch.column(0)), batch.select(batch.schema.names[1:])


def _has_offsets(batch: pa.RecordBatch) -> bool:
    return bool(batch.schema.names[0] == _OFFSET.name)


def _taken(group: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Take the rows out of a list, as one batch. A generator that yields them keeps none of them in memory."""
    joined = group[0] if len(group) == 1 else pa.concat_batches(group)
    group.clear()
    return joined


def _chunks(
    store_at: Callable[[str], Store], split: Split, find_again: Callable[[int], Split | None] | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    reached = split.start
    while True:
        try:
            for begin, end, batch in _read(store_at, split):
                reached = end
                rows = [batch]
                del batch
                yield begin, _taken(rows)
            return
        except (CorruptObject, StoreError) as error:
            is_missing = isinstance(error, ObjectMissing)
            if find_again is None or (len(split.nodes) == 1 and not is_missing):
                raise
            try:
                found = find_again(reached)
            except (CorruptObject, NoCluster, StoreError):
                if is_missing:
                    raise
                raise error from None  # the error of the rows is of more use than that of the journal
            if found == split:
                if not isinstance(error, ObjectMissing):
                    raise
                name = f"topic {split.topic!r}, partition {split.partition}, offset {reached}"
                raise ObjectMissing(error.url, error.key, name) from error
        if found is None:
            return
        split, reached = found, max(reached, found.start)


def _read(store_at: Callable[[str], Store], split: Split) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield the rows of each chunk, with the first offset and the end of what it covers of the split."""
    schemas = schemas_of(split)
    failover = Failover(store_at, split.topic, split.partition)
    log = store_at(split.nodes[0].url).url if split.nodes else ""
    for place, nodes in _places(failover, split):
        known = (log, place, split.columns)
        batch = _recent.take(known)
        if batch is None:
            batch = read_one(failover, nodes, place, schemas, split.columns)
        if place.end_offset > split.end:  # the next micro-batch continues in the same chunk
            _recent.keep(known, batch)
        rows = [_cut(batch, place, split)]
        del batch
        if rows[0].num_rows:
            yield max(split.start, place.base_offset), min(split.end, place.end_offset), _taken(rows)


def schemas_of(split: Split) -> tuple[pa.Schema, ...]:
    """Return the schemas of a split's topic, oldest first. Raises `CorruptObject`, `NewerFormat`."""
    return _schemas(split.schemas, f"topic {split.topic!r}")


def newest_rows(split: Split, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a split, of a typed topic as those of its newest schema that the split knows."""
    if not schema.is_typed(batch.schema):
        return batch
    return as_newest(batch, schemas_of(split)[-1])


@functools.lru_cache(maxsize=8)
def _schemas(stored: tuple[bytes, ...], name: str) -> tuple[pa.Schema, ...]:
    return schema.decode_all(stored, name)


def _places(failover: Failover, split: Split) -> Iterator[tuple[ChunkPlace, tuple[ReadReplica, ...]]]:
    """Yield the split's chunks in order, with their holders. A segment's index is read when its turn comes."""
    reached = split.start
    for key, end in zip(split.segments, split.segment_ends, strict=True):
        nodes = split.holders(key)
        for entry in _entries(failover, nodes, split, key, (reached, min(end, split.end))):
            yield place_in_segment(key, entry), nodes
        reached = end
    for chunk in split.chunks:
        key = split.files[chunk.file]
        yield ChunkPlace(key, chunk.place(split.partition), chunk.base_offset), split.holders(key)


def _entries(
    failover: Failover, nodes: Sequence[ReadReplica], split: Split, key: str, rows: tuple[int, int]
) -> list[IndexEntry]:
    """Return the chunks of a segment that hold any of the rows `[first, end)`.

    Raises `CorruptObject` if the segment does not hold all of these rows.
    """

    def whole(found: list[IndexEntry]) -> list[IndexEntry]:
        reached, end = rows
        for entry in found:
            if entry.base_offset > reached:
                break
            reached = entry.end_offset
        if reached < end:
            name = f"topic {split.topic!r}, partition {split.partition}, offset {reached}"
            raise CorruptObject(name, f"segment {key} does not hold it, though the journal says so: the file was cut")
        return found

    return failover.look_up(nodes, rows[0], key, lambda table: whole(index.between(table, *rows)))


def place_in_segment(key: str, entry: IndexEntry) -> ChunkPlace:
    return ChunkPlace(layout.segment_file(key), entry.place(), entry.base_offset, entry.span)


def read_one(
    failover: Failover,
    nodes: Sequence[ReadReplica],
    place: ChunkPlace,
    schemas: tuple[pa.Schema, ...],
    columns: tuple[str, ...] | None = None,
) -> pa.RecordBatch:
    """Return the rows of one chunk, or row group, from one of these nodes. Raises `CorruptObject`, `StoreError`.

    Those of a keyed segment have their offsets in a first column, `offset`.
    """
    name = f"{failover.name}, offsets {place.base_offset} to {place.end_offset - 1}"
    if place.span:
        return failover.read(nodes, place.base_offset, lambda store: _read_keyed(store, place, schemas, name, columns))
    read = _reader_of(place.key)
    return failover.read(
        nodes, place.base_offset, lambda store: read(store, place.key, place.staged, schemas, name, columns)
    )


def _reader_of(key: str) -> Callable[..., pa.RecordBatch]:
    """Return what reads a chunk, or a row group, of the file at `key`."""
    if not layout.is_parquet(key):
        return read_chunk
    from pyspark_log_storage.parquet import row_group  # imports pyarrow.parquet, which few tasks need

    return row_group.read


def _read_keyed(
    store: Readable, place: ChunkPlace, schemas: tuple[pa.Schema, ...], name: str, columns: tuple[str, ...] | None
) -> pa.RecordBatch:
    from pyspark_log_storage.parquet import row_group  # imports pyarrow.parquet, which few tasks need

    batch = row_group.read(store, place.key, place.staged, schemas, name, columns)
    if not _has_offsets(batch):
        raise CorruptObject(name, f"the footer of {store.url}/{place.key} does not say that it is a keyed segment")
    offsets = np.asarray(batch.column(0))
    if (offsets[1:] <= offsets[:-1]).any() or not place.base_offset <= offsets[0] <= offsets[-1] < place.end_offset:
        raise CorruptObject(name, f"its rows in {store.url}/{place.key} have other offsets")
    return batch


def _cut(batch: pa.RecordBatch, place: ChunkPlace, split: Split) -> pa.RecordBatch:
    start, end = max(split.start, place.base_offset), min(split.end, place.end_offset)
    if place.span:
        start, end = np.searchsorted(np.asarray(batch.column(0)), (start, end)).tolist()
    else:
        start, end = start - place.base_offset, end - place.base_offset
    return batch if (start, end) == (0, batch.num_rows) else batch.slice(start, end - start)
