"""A keyed segment: a Parquet segment that compaction made, with only some rows of the offsets that it covers.

The offsets of the rows are those in the column `offset`, ascending. A row group covers the offsets from the end of the
one before to its last row, the last one up to the segment's end. The footer also says how many rows delete their key,
and whether the one row is there only because a segment has rows: `pyspark_log_storage.files.row_files.KeyedCounts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.keys import keys_in
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.parquet import row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetSegmentWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.columns.compaction_columns import CompactionColumns
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import SegmentFile
    from pyspark_log_storage.parquet.parquet_footer import Footer
    from pyspark_log_storage.stores.store import Readable

    Offsets = NDArray[np.int64]

_OFFSET = pa.field("offset", pa.int64(), nullable=False)


class KeyedSegmentWriter(ParquetSegmentWriter):
    """Writes a keyed segment, as `ParquetSegmentWriter` writes others."""

    def append_at(self, batch: pa.RecordBatch, offsets: Offsets, schema_id: int, leader_epoch: int) -> None:
        """Append rows with these offsets, which ascend. Raises `NotAsParquet`, `StoreError`."""
        newest = as_newest(batch, self._schemas[-1])
        placed = newest.append_column(_OFFSET, pa.array(offsets, pa.int64()))
        self._append(placed, schema_id, leader_epoch)

    def close_at(self, end_offset: int, tombstones: int, *, placeholder: int | None = None) -> SegmentFile:
        """Publish both files, durably, as `close` does. The segment covers the offsets up to `end_offset`.

        `tombstones` is how many rows delete their key; `placeholder` as in `KeyedCounts`. Raises `NotAsParquet`,
        `StoreError`.
        """
        self._flush()
        last = self._groups[-1]
        more = end_offset - self.end_offset_written
        assert more >= 0, "a row is beyond the end"
        self._groups[-1] = msgspec.structs.replace(last, span=last.span + more)
        self.end_offset = end_offset
        return self._close(KeyedCounts(sum(each.rows for each in self._groups), tombstones, placeholder))

    def _offsets_of(self, rows: pa.Table) -> tuple[pa.Array, int]:
        offsets = rows.column("offset")
        return offsets, offsets[-1].as_py() + 1 - self.end_offset_written


def read_rows(
    store: Readable,
    key: str,
    footer: Footer,
    entry: IndexEntry,
    schemas: Sequence[pa.Schema],
    columns: Sequence[str] | None = None,
) -> tuple[pa.RecordBatch, Offsets]:
    """Return the rows of a row group, with the columns of its schema, and their offsets.

    With `columns` only those of them. `footer` may be that of another copy. Raises `CorruptObject`, `ObjectMissing`,
    `StoreError`.
    """
    placed = [
        pa.schema([_OFFSET, *(field for field in each if columns is None or field.name in columns)]) for each in schemas
    ]
    rows = row_group.read_by(store, key, footer, entry, placed)
    return rows.select(rows.schema.names[1:]), np.asarray(rows.column(0))


def read_keys(
    store: Readable,
    key: str,
    footer: Footer,
    entry: IndexEntry,
    schemas: Sequence[pa.Schema],
    columns: CompactionColumns,
) -> tuple[pa.Array, Offsets]:
    """Return the keys of the rows of a row group, as `keys_in` does, and their offsets. Raises as `read_rows`."""
    rows, offsets = read_rows(store, key, footer, entry, schemas, columns.keys)
    return keys_in(rows, columns), offsets
