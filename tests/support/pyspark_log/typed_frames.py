"""Frames that are written to typed topics as Spark writes them, and what is read back, without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.columns.column_types import to_json
from tests.support.direct import source


def struct(ddl: str) -> StructType:
    """Return the schema of a frame."""
    return StructType.fromJson(to_json(parse(ddl)))


@contextmanager
def task(batch_id: int | None = None) -> Iterator[None]:
    """Be a task of Spark's: of a micro-batch of query q, or of a batch write."""
    context = TaskContext._getOrCreate()
    before = context._partitionId, context._localProperties
    ids = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r", "streaming.sql.batchId": str(batch_id)}
    context._partitionId, context._localProperties = 0, {} if batch_id is None else ids
    yield
    context._partitionId, context._localProperties = before


def write(path: Path | str, ddl: str | StructType, *batches: list[dict[str, Any]], **options: str | int | None) -> None:
    """Write a frame of one task; `ddl` is its schema."""
    schema = struct(ddl) if isinstance(ddl, str) else ddl
    arrow = to_arrow_schema(schema, timezone="Europe/Paris")
    given = {"topic": "t"} | {name.replace("__", "."): value for name, value in options.items()}
    writer = source(path, **{name: value for name, value in given.items() if value is not None}).writer(schema, False)
    with task():
        message = writer.write(iter([pa.RecordBatch.from_pylist(batch, arrow) for batch in batches]))
    writer.commit([message])
