"""Files of rows: JSON lines, as `json_rows` has them, or Parquet with the columns of a Spark read.

A file has another name until it is complete, so a file with the final name has all rows.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log.cli.rows import json_rows
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARQUET = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", schema.TIMESTAMP),
        ("headers", schema.HEADERS),
    ]
)


class Write(Protocol):
    """Writes stored rows of a partition; `offset` is the offset of the first."""

    def __call__(self, record: pa.RecordBatch, topic: str, partition: int, offset: int) -> None:
        """Write the rows."""


@contextlib.contextmanager
def open_rows(path: Path) -> Iterator[Write]:
    """Open a file of rows for writing, in the format that its ending says: .jsonl or .parquet.

    It gets its name at the end. After an error, nothing is left of it. Raises `OSError`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with _parquet(part) if path.suffix == ".parquet" else _json_lines(part) as write:
            yield write
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _json_lines(path: Path) -> Iterator[Write]:
    with path.open("wb") as file:

        def write(record: pa.RecordBatch, topic: str, partition: int, offset: int) -> None:
            file.write(json_rows.encode(record, topic, partition, offset))

        yield write


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    with path.open("wb") as file, pq.ParquetWriter(file, PARQUET, compression="zstd") as writer:

        def write(record: pa.RecordBatch, topic: str, partition: int, offset: int) -> None:
            if schema.is_typed(record.schema):
                raise InvalidInput(f"topic {topic!r} is typed; write its rows to a .jsonl file, or read it with Spark")
            rows = record.num_rows
            has_headers = "headers" in record.schema.names
            columns = [
                record.column("key"),
                record.column("value"),
                pa.repeat(topic, rows),
                pa.array(np.full(rows, partition, np.int32)),
                pa.array(np.arange(offset, offset + rows)),
                record.column("timestamp"),
                record.column("headers") if has_headers else pa.nulls(rows, schema.HEADERS),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=PARQUET))

        yield write
