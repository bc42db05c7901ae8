"""A row group of a Parquet segment: read by its bytes and the segment's footer, without the rest of the file.

The bytes are checked before Arrow decodes them, as those of a chunk are, and the rows after.

Rows of a keyed segment (`parquet_segment`) come with their offsets in a first column, `offset`.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_left
from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log_storage import decoding
from pyspark_log_storage.columns.column_conversion import converted
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import batch_check
from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.parquet.parquet_segment import POSITIONS
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.parquet.parquet_footer import Footer
    from pyspark_log_storage.stores.store import Readable

_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, IndexError, OverflowError, MemoryError, KeyError, TypeError)
_FOOTERS_MAX = 32
_position = attrgetter("position")


def read(
    store: Readable,
    key: str,
    place: StagedChunk,
    schemas: Sequence[pa.Schema],
    name: str,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the rows of the row group at `place` of the .parquet at `key`, as the columns of their schema.

    With `columns` only these, in the schema's order. `name` names it in errors: topic, partition and offset. Raises
    `ObjectMissing`, and `CorruptObject` if the bytes are damaged, are another intact row group than `place` says, or
    cannot be decoded.
    """
    where = f"{name} ({store.url}/{key} at byte {place.position})"
    data = read_bytes(store, key, place, where)
    return _decode(_footer(store, key, place, where), place, data, schemas, where, columns)


def read_by(
    store: Readable,
    key: str,
    footer: Footer,
    entry: IndexEntry,
    schemas: Sequence[pa.Schema],
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the rows of an entry of a `footer` that was read before, maybe from another copy. Raises as `read`."""
    where = f"segment {store.url}/{key} at byte {entry.position}"
    data = read_bytes(store, key, entry.place(), where)
    return _decode(footer, entry.place(), data, schemas, where, columns)


def keyed_rows(
    store: Readable,
    key: str,
    footer: Footer,
    entry: IndexEntry,
    schemas: Sequence[pa.Schema],
    columns: Sequence[str] | None = None,
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """Return what `read_by` does of a keyed segment, and the offsets apart."""
    rows = read_by(store, key, footer, entry, schemas, columns)
    return rows.select(rows.schema.names[1:]), np.asarray(rows.column(0))


@rereads
def read_bytes(store: Readable, key: str, place: StagedChunk, where: str) -> bytes:
    """Return the bytes of a row group, checked. Raises `CorruptObject`, which names it as `where`."""
    data = store.read(key, place.position, place.length)
    if len(data) < place.length:
        raise CorruptObject(where, f"the file ends after {len(data)} of the row group's {place.length} bytes")
    if google_crc32c.value(data) != place.crc:
        raise CorruptObject(where, "its checksum does not match its bytes")
    return data


def pieces(
    store: Readable, key: str, footer: Footer, schemas: Sequence[pa.Schema] | None = None
) -> Iterator[tuple[IndexEntry | None, bytes]]:
    """Yield all bytes of the .parquet at `key` before its tail, checked, a row group with its entry.

    With `schemas` a row group also counts as damaged if its rows cannot be decoded. Keeps one row group in memory.
    Raises `CorruptObject` at the first damaged one.
    """
    name = f"segment {store.url}/{key}"
    yield None, _begin(store, key, name)
    for entry in footer.entries:
        where, place = f"{name} at byte {entry.position}", entry.place()
        data = read_bytes(store, key, place, where)
        if schemas is not None:
            _decode(footer, place, data, schemas, where)
        yield entry, data


@rereads
def _begin(store: Readable, key: str, name: str) -> bytes:
    """Return the first bytes of a file. Raises `CorruptObject` unless they are those of Parquet."""
    found = store.read(key, 0, len(parquet_footer.MAGIC))
    if found != parquet_footer.MAGIC:
        raise CorruptObject(name, f"it does not begin with {parquet_footer.MAGIC!r}")
    return found


def _decode(
    footer: Footer,
    place: StagedChunk,
    data: bytes,
    schemas: Sequence[pa.Schema],
    where: str,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the rows of the row group with the checked bytes `data`."""
    if place.schema_id >= len(schemas):
        raise CorruptObject(where, f"it names schema {place.schema_id}, and the topic has {len(schemas)}")
    schema, rows, position = schemas[place.schema_id], place.rows, place.position
    if columns is not None:
        schema = pa.schema([each for each in schema if each.name in columns])
    if footer.segment.keyed is not None:
        schema = pa.schema([POSITIONS[1], *schema])
    number = bisect_left(footer.entries, position, key=_position)
    try:
        # Reads ahead would be made by Arrow's threads, and one that is left over may abort the process when it ends.
        source = pa.PythonFile(_Window(position, data, footer.file_bytes), mode="r")
        file = pq.ParquetFile(source, metadata=footer.parquet, pre_buffer=False)
        batch = _as_stored(file.read_row_group(number, columns=schema.names, use_threads=False), schema)
        batch_check.check(batch)
    except _ARROW_ERRORS as error:
        raise CorruptObject(where, f"Arrow cannot read it ({decoding.reason(error)})") from error
    if batch.num_rows != rows:
        raise CorruptObject(where, f"it holds {batch.num_rows} rows where the footer says {rows}")
    return batch


def _as_stored(found: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return a table with exactly the columns of a schema, as one batch. Columns of another type are converted."""
    columns = []
    for field in schema:
        column = found.column(field.name)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        columns.append(converted(array, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Window(io.RawIOBase):
    """A file for Arrow of which only the bytes of one row group are there, which are not copied."""

    def __init__(self, begin: int, data: bytes, size: int) -> None:
        self._begin = begin
        self._data = pa.py_buffer(data)
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = 0) -> int:
        self._at = position + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return the next bytes, none outside of the row group."""
        start = self._at - self._begin
        if not 0 <= start < self._data.size:
            return pa.py_buffer(b"")
        part = self._data.slice(start, min(size, self._data.size - start))
        self._at += part.size
        return part

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size).to_pybytes())


_lock = threading.Lock()
_footers: OrderedDict[tuple[str, str], Footer] = OrderedDict()
"""Footers by store and key, least recently used first: one is read for many row groups."""


def _footer(store: Readable, key: str, place: StagedChunk, where: str) -> Footer:
    """Return the footer of a .parquet that has a row group at `place`."""
    known = (store.url, key)
    with _lock:
        footer = _footers.pop(known, None)
    if footer is None or not _has(footer, place):
        footer = parquet_footer.read(store, key)
        if not _has(footer, place):
            raise CorruptObject(where, "the footer of the file names another row group there")
    with _lock:
        _footers[known] = footer
        while len(_footers) > _FOOTERS_MAX:
            _footers.popitem(last=False)
    return footer


def _has(footer: Footer, place: StagedChunk) -> bool:
    number = bisect_left(footer.entries, place.position, key=_position)
    return number < len(footer.entries) and footer.entries[number].place() == place
