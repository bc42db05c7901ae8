"""Parquet files in memory, read in the thread that asks.

One of Arrow's own threads may drop such a file after its rows have been returned. It needs Python's lock for that, and
where Python exits at that moment the process is aborted ("terminate called without an active exception").
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a file, or some columns of them."""
    return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(columns, use_threads=False)
