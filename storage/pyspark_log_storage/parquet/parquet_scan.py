"""A scan of a Parquet segment, keyed or not: all its bytes and rows are checked, without a journal or an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.parquet.parquet_footer import MAGIC
from pyspark_log_storage.parquet.parquet_segment import POSITIONS, check_offsets
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.stores.store import Readable


def scan(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> Iterator[IndexEntry]:
    """Yield the entry of each row group of the .parquet at `key`, after checking its bytes.

    With `schemas` a row group also counts as damaged if its rows cannot be decoded, or have another partition or other
    offsets than the segment: our readers do not use these columns, but those of other engines do. Keeps one row group
    in memory. Raises `CorruptObject` at the first damaged one; if the footer is damaged that is before the first.
    """
    footer = parquet_footer.read(store, key)
    name = f"segment {store.url}/{key}"
    _check_begin(store, key, name)
    placed = [pa.schema([*POSITIONS, *each]) for each in schemas or ()]
    for entry in footer.entries:
        if schemas is None:
            row_group.read_bytes(store, key, entry.place(), f"{name} at byte {entry.position}")
        else:
            _check_positions(row_group.read_by(store, key, footer, entry, placed), entry, key, name)
        yield entry


@rereads
def _check_begin(store: Readable, key: str, name: str) -> None:
    if store.read(key, 0, len(MAGIC)) != MAGIC:
        raise CorruptObject(name, f"it does not begin with {MAGIC!r}")


def _check_positions(rows: pa.RecordBatch, entry: IndexEntry, key: str, name: str) -> None:
    """Raise `CorruptObject` unless rows have the partition in the segment's key, and the offsets of their entry."""
    partition = int(key.split("/")[-2])
    if entry.span:
        check_offsets(rows.column("offset"), entry, f"{name} at byte {entry.position}")
        wanted = {"partition": np.full(rows.num_rows, partition, np.int32)}
    else:
        offsets = np.arange(entry.base_offset, entry.end_offset, dtype=np.int64)
        wanted = {"partition": np.full(len(offsets), partition, np.int32), "offset": offsets}
    for column, values in wanted.items():
        found = rows.column(column)
        if found.null_count or not np.array_equal(np.asarray(found), values):
            raise CorruptObject(f"{name} at byte {entry.position}", f"its rows have a wrong {column}")
