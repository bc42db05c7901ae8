"""A segment whose rows are in a Parquet file that any engine can read.

    <partition>/<base offset, 20 digits>-<born>-<nonce>.parquet      with a .parquet.index

    b"PAR1" | row group | row group | ... | page indexes | footer      see `parquet_footer`

A row group is what a chunk is in a .log: at most 8 MiB of decoded rows of one leader epoch, with a checksum; readers
read and decode one at a time. The columns are `partition` (int32), `offset` (int64), `timestamp` (microseconds, UTC),
and the other columns of the topic's newest schema. So the rows are ordinary Parquet, in the order of their offsets, and
a filter on the first three skips row groups by their statistics.

A keyed segment, which compaction made, has only some rows of the offsets that it covers. A row group covers the offsets
from the end of the one before to its last row, the last one up to the segment's end. The footer also says how many rows
delete their key, and whether the one row is there only because a segment has rows (`KeyedCounts`).

The encodings are those that measured best (design record 33): deltas for offsets and timestamps; no dictionaries for
keys and values, which our readers decode fastest that way; dictionaries for the other columns.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_log_storage import layout
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.columns.schema import TIMESTAMP
from pyspark_log_storage.columns.schema_evolution import nullable
from pyspark_log_storage.files import index
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.files.index import IndexEntry
from pyspark_log_storage.files.row_files import KeyedCounts, NotAsParquet
from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.parquet.parquet_footer import SegmentMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pyspark_log_storage.files.row_files import EpochStarts, SegmentFile, SegmentPlace
    from pyspark_log_storage.stores.store import ObjectWriter

ROW_GROUP_BYTES = CHUNK_BYTES
"""The decoded size of a full row group."""
ROW_BYTES_MAX = 32 * 1024 * 1024
"""Larger rows than this cannot be in a row group, which readers decode as a whole."""
_ZSTD_LEVEL = 1
_NOT_BY_DICTIONARY = {"offset", "timestamp", "key", "value"}
POSITIONS = (pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False))
"""The columns that tell where a row is."""


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file with rows of a topic's schema.

    All in a nested column may be null: below a null struct all is, whatever the schema says, and Parquet's writer takes
    no null where its schema allows none.
    """
    others = [pa.field(each.name, nullable(each.type), each.nullable) for each in schema if each.name != "timestamp"]
    return pa.schema([*POSITIONS, pa.field("timestamp", TIMESTAMP, nullable=False), *others])


class ParquetRows(msgspec.Struct, frozen=True):
    """What the rows of a segment are."""

    partition: int
    schemas: tuple[pa.Schema, ...]
    """The topic's; the file has the columns of the newest."""
    compression: str
    """One of `chunk.COMPRESSIONS`."""


class ParquetSegmentWriter:
    """Writes a segment: its .parquet row group by row group, then its index.

    All of its rows are given with their offsets, and it is a keyed segment, or none are.
    """

    def __init__(self, store: SegmentPlace, key: str, epochs: EpochStarts, kind: ParquetRows) -> None:
        """`epochs` are the leader epochs of the rows, with their first offsets.

        Raises `NotAsParquet`, `StoreError`.
        """
        assert layout.is_parquet(key)
        if any(map(_is_empty, kind.schemas[-1])):
            raise NotAsParquet
        self._store, self._key, self._epochs = store, key, epochs
        self._partition, self._schemas, self._compression = kind.partition, kind.schemas, kind.compression
        self._columns = file_schema(kind.schemas[-1])
        self._given = pa.schema([pa.field(each.name, nullable(each.type), each.nullable) for each in kind.schemas[-1]])
        self._entries: list[IndexEntry] = []
        self._rows: list[pa.RecordBatch] = []
        self._offsets: list[NDArray[np.int64]] = []
        """Those of the rows that are not written."""
        self._size = self._schema_id = self._leader_epoch = 0
        self._is_keyed = False
        self.end_offset = layout.base_offset_of(key)
        """The offset after the last row that was given."""
        self._output = store.open_write(self._key)
        self._sink = _Sink(self._output)
        self._stream = pa.PythonFile(self._sink, mode="w")
        """What Arrow writes to. It counts its bytes: what goes past it shifts the page indexes that it writes."""
        self._parquet: pq.ParquetWriter | None = None

    def append(
        self, batch: pa.RecordBatch, schema_id: int, leader_epoch: int, offsets: NDArray[np.int64] | None = None
    ) -> None:
        """Append rows; those of a keyed segment with their `offsets`, which ascend.

        Raises `NotAsParquet`, `StoreError`.
        """
        if leader_epoch != self._leader_epoch:
            self._flush()
        self._leader_epoch, self._is_keyed = leader_epoch, offsets is not None
        if offsets is None:
            offsets = np.arange(self.end_offset, self.end_offset + batch.num_rows)
        for rows in _pieces(as_newest(batch, self._given)):
            if self._rows and self._size + rows.nbytes > ROW_GROUP_BYTES:
                self._flush()
            self._schema_id = max(self._schema_id, schema_id)
            self._rows.append(rows)
            self._size += rows.nbytes
            self._offsets.append(offsets[: rows.num_rows])
            self.end_offset = int(offsets[rows.num_rows - 1]) + 1
            offsets = offsets[rows.num_rows :]

    def close(self, end_offset: int | None = None, tombstones: int = 0, placeholder: int | None = None) -> SegmentFile:
        """Publish both files, durably, the .parquet last: a segment whose rows exist is complete.

        A keyed segment covers the offsets up to `end_offset`, and `tombstones` of its rows delete their key;
        `placeholder` as in `KeyedCounts`. Raises `NotAsParquet`, `StoreError`.
        """
        self._flush()
        assert self._parquet is not None, "a segment has rows"
        keyed = None
        if end_offset is not None:
            assert end_offset >= self.end_offset, "a row is beyond the end"
            last = self._entries[-1]
            self._entries[-1] = msgspec.structs.replace(last, span=end_offset - last.base_offset)
            self.end_offset = end_offset
            keyed = KeyedCounts(sum(each.rows for each in self._entries), tombstones, placeholder)
        position = self._sink.position
        metadata = SegmentMetadata(layout.name_of(self._key), self._epochs, tuple(self._entries), keyed)
        self._parquet.add_key_value_metadata(parquet_footer.encode_metadata(metadata, position))
        self._sink.hold()
        self._parquet.close()
        tail = parquet_footer.sealed(self._sink.held())
        if len(tail) > parquet_footer.TAIL_BYTES_MAX:
            raise NotAsParquet
        self._output.write(tail)
        self._store.create(f"{self._key}.index", index.encode(self._key, self._entries))
        self._output.close()
        return index.segment_of(self._key, self._entries, position + len(tail), keyed)

    def discard(self) -> None:
        self._sink.hold()  # the Parquet writer writes its end when it is forgotten
        self._output.discard()

    def _flush(self) -> None:
        """Write the collected rows as one row group."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        begin = self._entries[-1].end_offset if self._entries else layout.base_offset_of(self._key)
        count = rows.num_rows
        offsets = np.concatenate(self._offsets)
        span = self.end_offset - begin if self._is_keyed else 0
        placed = {"partition": pa.array(np.full(count, self._partition, np.int32)), "offset": pa.array(offsets)}
        columns = [placed[each.name] if each.name in placed else rows.column(each.name) for each in self._columns]
        table = pa.Table.from_arrays(columns, schema=self._columns)
        if self._parquet is None:
            self._parquet = self._opened(table)
        position = self._sink.position
        self._sink.crc = 0
        self._parquet.write_table(table, row_group_size=count)
        length = self._sink.position - position
        times = np.concatenate([np.asarray(each.column("timestamp").view(pa.int64())) for each in self._rows])
        kind = self._leader_epoch, self._readable_as(self._schema_id), int(times.min()), int(times.max())
        self._entries.append(IndexEntry(begin, count, position, length, *kind, self._sink.crc, span))
        self._rows.clear()
        self._offsets.clear()
        self._size = self._schema_id = 0

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        """Return the writer of the file. The rows of its first row group tell which columns get dictionaries."""
        return pq.ParquetWriter(
            self._stream,
            self._columns,
            version="2.6",
            compression=self._compression,
            compression_level=_ZSTD_LEVEL if self._compression == "zstd" else None,
            use_dictionary=[each.name for each in self._columns if _repeats(each.name, first.column(each.name))],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            write_statistics=[each.name for each in self._columns if _has_statistics(each.type)],
            write_page_index=True,
            store_schema=False,
        )

    def _readable_as(self, schema_id: int) -> int:
        """Return the schema as which rows are read: their own, if it is a part of the file's, else the newest."""
        known = self._schemas[-1]
        own = self._schemas[schema_id]
        same = all(each.name in known.names and known.field(each.name).type == each.type for each in own)
        return schema_id if same else len(self._schemas) - 1


def _repeats(name: str, values: pa.ChunkedArray) -> bool:
    """Return whether a column gets a dictionary: it must not be longer than the values themselves."""
    if name in _NOT_BY_DICTIONARY or pa.types.is_nested(values.type):
        return False
    distinct: int = pc.count_distinct(values).as_py()
    return 2 * distinct <= len(values)


def _has_statistics(kind: pa.DataType) -> bool:
    """Return whether smallest and largest values are of use: of bytes they are long, and of no use in a filter.

    Arrow leaves NaN out of them. Engines for which NaN is larger than each number, such as Spark, would skip rows.
    """
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return not (pa.types.is_nested(kind) or is_bytes or pa.types.is_floating(kind))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that fit into a row group, or of one row. Raises `NotAsParquet`."""
    if batch.nbytes <= ROW_GROUP_BYTES:
        yield batch
    elif batch.num_rows == 1:
        if batch.nbytes > ROW_BYTES_MAX:
            raise NotAsParquet
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))


def _is_empty(field: pa.Field) -> bool:
    """Return whether a struct in a column has no fields, which Spark allows and Parquet does not."""
    if pa.types.is_struct(field.type) and field.type.num_fields == 0:
        return True
    return any(map(_is_empty, children(field.type)))


class _Sink(io.RawIOBase):
    """A file for Parquet's writer: passes bytes on, and computes the checksum of a row group."""

    def __init__(self, output: ObjectWriter) -> None:
        self._output = output
        self._held: list[bytes] | None = None
        self.position = 0
        self.crc = 0

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = []

    def held(self) -> bytes:
        assert self._held is not None
        return b"".join(self._held)

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        data = bytes(piece)
        if self._held is not None:
            self._held.append(data)
        else:
            self._output.write(data)
            self.crc = google_crc32c.extend(self.crc, data)
            self.position += len(data)
        return len(data)

    def tell(self) -> int:
        return self.position + sum(map(len, self._held or ()))
