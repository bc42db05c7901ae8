"""A keyed segment: a Parquet segment that compaction made, with only some rows of the offsets that it covers.

The offsets of the rows are those in the column `offset`, ascending. A row group covers the offsets from the end of the
one before to its last row, the last one up to the segment's end. The footer also says how many rows delete their key,
and whether the one row is there only because a segment has rows: `pyspark_log_storage.files.row_files.KeyedCounts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_log_storage.columns.keys import keys_in
from pyspark_log_storage.parquet import row_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.columns.compaction_columns import CompactionColumns
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.parquet.parquet_footer import Footer
    from pyspark_log_storage.stores.store import Readable

    Offsets = NDArray[np.int64]

_OFFSET = pa.field("offset", pa.int64(), nullable=False)


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
