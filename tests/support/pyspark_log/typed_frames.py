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
    """Return the schema of a frame; it may have the columns `partition` and `timestamp`."""
    from pyspark.sql.types import IntegerType, StringType, StructField, TimestampType

    own = {"+partition": IntegerType(), "+timestamp": TimestampType(), "+topic": StringType()}
    columns = [each.strip() for each in ddl.split(";")]
    fields = StructType.fromJson(to_json(parse(columns[0]))).fields
    return StructType([*fields, *(StructField(each[1:], own[each]) for each in columns[1:])])


@contextmanager
def _task() -> Iterator[None]:
    context = TaskContext._getOrCreate()
    before = context._partitionId, context._localProperties
    context._partitionId, context._localProperties = 0, {}
    yield
    context._partitionId, context._localProperties = before


def write(path: Path | str, ddl: str | StructType, *batches: list[dict[str, Any]], **options: str | int | None) -> None:
    """Write a frame of one task; `ddl` is its schema, with `; +partition` for a column of the sink's own."""
    schema = struct(ddl) if isinstance(ddl, str) else ddl
    arrow = to_arrow_schema(schema, timezone="Europe/Paris")
    given = {"topic": "t"} | {name.replace("__", "."): value for name, value in options.items()}
    writer = source(path, **{name: value for name, value in given.items() if value is not None}).writer(schema, False)
    with _task():
        message = writer.write(iter([pa.RecordBatch.from_pylist(batch, arrow) for batch in batches]))
    writer.commit([message])
