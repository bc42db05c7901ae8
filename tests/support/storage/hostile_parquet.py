"""Parquet segments with right checksums whose rows no writer of this product would write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.parquet.parquet_footer import MAGIC, RowGroup
from pyspark_log_storage.parquet.parquet_segment import _Sink
from tests.support.memory_store import MemoryStore

KEY = "t/0/00000000000000001000-00000000000000000007-abc.parquet"
BASE = 1000


def forged(table: pa.Table, **options: Any) -> MemoryStore:
    """Return a store with a segment of one row group, which has the columns of a table as pyarrow writes them."""
    store = MemoryStore()
    output = store.open_write(KEY)
    sink = _Sink(output)
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), table.schema, store_schema=False, **options) as writer:
        sink.begin()
        writer.write_table(table, row_group_size=len(table))
        group = RowGroup(len(table), sink.position - len(MAGIC), 0, 0, 0, 0, sink.crc)
        metadata = parquet_footer.new_metadata(KEY, BASE, ((0, BASE),), [group])
        writer.add_key_value_metadata(parquet_footer.encode_metadata(metadata, sink.position))
        sink.hold()
    output.write(parquet_footer.sealed(sink.held()))
    output.close()
    return store
