"""The data source's readers, called as Spark calls them, but without Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_log import DefaultSource
from pyspark_log.reading.arrow_rows import record_schema


def source(path: Path | str, **options: str | int) -> DefaultSource:
    """The data source, as `format("pyspark_log").options(...).load(path)` makes it."""
    given = {name.lower(): str(value) for name, value in options.items()}
    return DefaultSource(CaseInsensitiveDict({**given, "path": str(path)}))  # type: ignore[no-untyped-call]


def read(path: Path | str, schema: StructType | None = None, **options: str | int) -> list[dict[str, Any]]:
    """The rows of a batch read."""
    made = source(path, **options)
    reader = made.reader(schema or made.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def values(rows: list[dict[str, Any]]) -> dict[int, list[bytes]]:
    """The values of rows by partition."""
    found: dict[int, list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        found.setdefault(row["partition"], []).append(row["value"])
    return found


class DirectSpark:
    """The part of a Spark session that `pyspark_log.read` uses. It reads at once, and without Spark."""

    def __init__(self, frame: Callable[[list[dict[str, Any]]], Any] = list) -> None:
        self.read = self
        self.given: dict[str, str] = {}
        self._frame = frame

    def format(self, name: str) -> "DirectSpark":
        assert name == "pyspark_log"
        return self

    def options(self, **options: str) -> "DirectSpark":
        self.given = options
        return self

    def load(self, path: str) -> Any:
        return self._frame(read(path, **self.given))


class Stream:
    """A streaming query's source side: `batch` plans and reads one micro-batch."""

    def __init__(self, path: Path | str, start: dict[str, Any] | None = None, **options: str | int) -> None:
        """`start` is where an earlier run ended; without it the query is new."""
        made = source(path, **options)
        self.reader = made.streamReader(made.schema())
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        self.start = self.reader.initialOffset() if start is None else start
        self.ends: list[dict[str, Any]] = []

    def batch(self) -> list[dict[str, Any]] | None:
        """The rows of the next micro-batch, or None where there is none."""
        end = self.reader.latestOffset(self.start, self.limit)
        if end == self.start:
            return None
        rows = self.between(self.start, end)
        self.start = json.loads(json.dumps(end))
        self.ends.append(self.start)
        return rows

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows of the micro-batch between two offsets. Those that the driver has read are those that tasks read."""
        batches = [batch for split in self.reader.partitions(start, end) for batch in self.reader.read(split)]
        found = pa.Table.from_batches(batches, schema=self.schema)
        if (handed := self.handed_over(start, end)) is not None:
            assert handed.equals(found)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def handed_over(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table | None:
        """What Spark takes after `partitions`, as it does: the rows that the driver has read, or None."""
        if not isinstance(self.reader, _SimpleStreamReaderWrapper):
            return None
        return pa.Table.from_batches(self.reader.getCache(start, end), schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        return record_schema(tuple(self.reader._schema.fieldNames()))
