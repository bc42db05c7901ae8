"""A segment whose rows are in a Parquet file that any engine can read.

    <partition>/<base offset, 20 digits>-<born>-<nonce>.parquet      with a .parquet.index

    b"PAR1" | row group | row group | ... | page indexes | footer      see `parquet_footer`

A row group is what a chunk is in a .log: at most 8 MiB of decoded rows of one leader epoch, with a checksum; readers
read and decode one at a time. The columns are `partition` (int32), `offset` (int64), `timestamp` (microseconds, UTC),
and the other columns of the topic's newest schema. So the rows are ordinary Parquet, in the order of their offsets, and
a filter on the first three skips row groups by their statistics.

The encodings are those that measured best (design record 33): deltas for offsets and timestamps; no dictionaries for
keys and values, which our readers decode fastest that way; dictionaries for the other columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from pyspark_log_storage.files import index
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.files.row_files import NotAsParquet, SegmentFile
from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.parquet.parquet_footer import RowGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pyspark_log_storage.files.row_files import EpochStarts, KeyedCounts, SegmentPlace
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
    """Return the columns of a file with rows of a topic's schema."""
    others = [pa.field(each.name, each.type, each.nullable) for each in schema if each.name != "timestamp"]
    return pa.schema([*POSITIONS, pa.field("timestamp", TIMESTAMP, nullable=False), *others])


class ParquetRows(msgspec.Struct, frozen=True):
    """What the rows of a segment are."""

    partition: int
    schemas: tuple[pa.Schema, ...]
    """The topic's; the file has the columns of the newest."""
    compression: str
    """One of `chunk.COMPRESSIONS`."""


class ParquetSegmentWriter:
    """Writes a segment: its .parquet row group by row group, then its index."""

    def __init__(
        self,
        store: SegmentPlace,
        folder: str,
        name: str,
        base_offset: int,
        epochs: EpochStarts,
        kind: ParquetRows,
    ) -> None:
        """`folder` ends with "/". `epochs` are the leader epochs of the rows, with their first offsets.

        Raises `NotAsParquet`, `StoreError`.
        """
        assert layout.is_parquet(name)
        if any(map(_is_empty, kind.schemas[-1])):
            raise NotAsParquet
        self._store, self._key, self._name = store, f"{folder}{name}", name
        self._base_offset, self._epochs = base_offset, epochs
        self._partition, self._schemas, self._compression = kind.partition, kind.schemas, kind.compression
        self._columns = file_schema(kind.schemas[-1])
        self._may_hide_nulls = any(_has_required(each.type) for each in self._columns)
        self._groups: list[RowGroup] = []
        self._rows: list[pa.RecordBatch] = []
        self._size = 0
        self._kind = (0, 0)
        self._times = (0, 0)
        self.end_offset = base_offset
        """The offset after the last row that was given."""
        self._output = store.open_write(self._key)
        self._sink = _Sink(self._output)
        self._stream = pa.PythonFile(self._sink, mode="w")
        """What Arrow writes to. It counts its bytes: what goes past it shifts the page indexes that it writes."""
        self._parquet: pq.ParquetWriter | None = None

    def append(self, batch: pa.RecordBatch, schema_id: int, leader_epoch: int) -> None:
        """Append the rows of a chunk. Raises `NotAsParquet`, `StoreError`."""
        self._append(as_newest(batch, self._schemas[-1]), schema_id, leader_epoch)

    def _append(self, batch: pa.RecordBatch, schema_id: int, leader_epoch: int) -> None:
        """Append rows with the columns of the newest schema, and maybe more."""
        if self._may_hide_nulls:
            batch = _without_hidden_nulls(batch)
        if self._rows and leader_epoch != self._kind[1]:
            self._flush()
        for rows in _pieces(batch):
            if self._rows and self._size + rows.nbytes > ROW_GROUP_BYTES:
                self._flush()
            times = np.asarray(rows.column("timestamp").view(pa.int64()))
            low, high = int(times.min()), int(times.max())
            if self._rows:
                schema_id, low, high = (
                    max(schema_id, self._kind[0]),
                    min(low, self._times[0]),
                    max(high, self._times[1]),
                )
            self._kind, self._times = (schema_id, leader_epoch), (low, high)
            self._rows.append(rows)
            self._size += rows.nbytes
            self.end_offset += rows.num_rows

    def close(self) -> SegmentFile:
        """Publish both files, durably, the .parquet last: a segment whose rows exist is complete.

        Raises `NotAsParquet`, `StoreError`.
        """
        self._flush()
        return self._close(None)

    def _close(self, keyed: KeyedCounts | None) -> SegmentFile:
        assert self._parquet is not None, "a segment has rows"
        position = self._sink.position
        metadata = parquet_footer.new_metadata(self._key, self._base_offset, self._epochs, self._groups, keyed)
        self._parquet.add_key_value_metadata(parquet_footer.encode_metadata(metadata, position))
        self._sink.hold()
        self._parquet.close()
        tail = parquet_footer.sealed(self._sink.held())
        if len(tail) > parquet_footer.TAIL_BYTES_MAX:
            raise NotAsParquet
        self._output.write(tail)
        entries = metadata.entries()
        size = position + len(tail)
        self._store.create(f"{self._key}.index", index.encode(self._name, entries))
        self._output.close()
        return SegmentFile(
            self._name,
            self._base_offset,
            self.end_offset,
            len(entries),
            size,
            min(each.min_timestamp for each in entries),
            max(each.max_timestamp for each in entries),
            keyed,
        )

    def discard(self) -> None:
        """Remove the unfinished segment."""
        self._sink.hold()  # the Parquet writer writes its end when it is forgotten
        self._output.discard()

    def _flush(self) -> None:
        """Write the collected rows as one row group."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows.clear()
        count = rows.num_rows
        offsets, span = self._offsets_of(rows)
        placed = {"partition": pa.array(np.full(count, self._partition, np.int32)), "offset": offsets}
        columns = [placed[each.name] if each.name in placed else rows.column(each.name) for each in self._columns]
        table = pa.Table.from_arrays(columns, schema=self._columns)
        if self._parquet is None:
            self._parquet = self._opened(table)
        start = self._sink.position
        self._sink.begin()
        self._parquet.write_table(table, row_group_size=count)
        schema_id, epoch = self._kind
        self._groups.append(
            RowGroup(
                count,
                self._sink.position - start,
                epoch,
                self._readable_as(schema_id),
                *self._times,
                self._sink.crc,
                span,
            )
        )
        self._size = 0

    def _offsets_of(self, rows: pa.Table) -> tuple[pa.Array, int]:
        """Return the offsets of the rows of the next row group, and how many it covers; 0 for one of each row."""
        begin = self.end_offset_written
        return pa.array(np.arange(begin, begin + rows.num_rows, dtype=np.int64)), 0

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

    @property
    def end_offset_written(self) -> int:
        """The offset after the last row of a row group."""
        return self._base_offset + sum(each.span or each.rows for each in self._groups)

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


def _without_hidden_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as Parquet's writer takes them: what is not null in its schema has no nulls, also below a null.

    A null struct has nulls in all of its fields, whatever the schema says of these. Raises `NotAsParquet` for a null in
    a struct that is not null itself.
    """
    present = np.ones(batch.num_rows, bool)
    columns = [
        _filled(column, field, present) if _has_required(field.type) else column
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _has_required(kind: pa.DataType) -> bool:
    """Return whether something in a nested type is not null. The keys of maps never are, and do not count."""
    is_map = pa.types.is_map(kind)
    return any(
        _has_required(each.type) or not (each.nullable or (is_map and not number))
        for number, each in enumerate(children(kind))
    )


def _filled(column: pa.Array, field: pa.Field, present: NDArray[np.bool_]) -> pa.Array:
    """Return the values of a field, with some value for each null that must not be one.

    `present` are those that are not below a null. Raises `NotAsParquet` for such a null among them.
    """
    kind, is_valid = column.type, np.asarray(column.is_valid())
    if not field.nullable and not is_valid[present].all():
        raise NotAsParquet
    validity = column.buffers()[0] if field.nullable else None
    if pa.types.is_struct(kind):
        present = present & is_valid
        parts = [_filled(column.field(number), part, present) for number, part in enumerate(kind)]
        mask = pa.array(~is_valid) if field.nullable and column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        every = np.ones(len(column.keys), bool)
        parts = [_filled(part, each, every) for part, each in zip((column.keys, column.items), fields, strict=True)]
        values = pa.StructArray.from_arrays(parts, fields=fields)
    elif pa.types.is_list(kind):
        values = _filled(column.values, kind.value_field, np.ones(len(column.values), bool))
    else:
        return pa.Array.from_buffers(kind, len(column), [validity, *column.buffers()[1:]], offset=column.offset)
    return pa.Array.from_buffers(
        kind, len(column), [validity, column.buffers()[1]], offset=column.offset, children=[values]
    )


def _is_empty(field: pa.Field) -> bool:
    """Return whether a struct in a column has no fields, which Spark allows and Parquet does not."""
    if pa.types.is_struct(field.type) and field.type.num_fields == 0:
        return True
    return any(map(_is_empty, children(field.type)))


class _Sink:
    """A file for Parquet's writer: passes bytes on, and computes the checksum of a row group."""

    closed = False

    def __init__(self, output: ObjectWriter) -> None:
        self._output = output
        self._held: list[bytes] | None = None
        self.position = 0
        self.crc = 0

    def begin(self) -> None:
        """Begin a row group."""
        self.crc = 0

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._held = []

    def held(self) -> bytes:
        assert self._held is not None
        return b"".join(self._held)

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:
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

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
