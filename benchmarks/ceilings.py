"""Ceilings: data sources that do nothing, so that only Spark itself is measured.

    bench_batches    a source that yields prebuilt Arrow batches, more than fit the processor's cache
    bench_count      a sink that counts
    bench_stream     a stream source and sink: each micro-batch has the same prebuilt rows, which are counted

Spark's Python workers import this module. They keep the batches from one task to the next, and the garbage collector
does not see imported modules, as with the product.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_log.source.row import row_schema
from pyspark_log.spark_calls import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


@functools.lru_cache(maxsize=2)
def prebuilt(sample: str) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow file, read into memory once."""
    with pa.OSFile(sample) as data, pa.ipc.open_file(data) as file:
        return [file.get_batch(index) for index in range(file.num_record_batches)]


def share(rows: int, partitions: int, index: int) -> int:
    """Return the number of rows in the partition with this index."""
    return rows * (index + 1) // partitions - rows * index // partitions


@dataclass
class Share(InputPartition):
    """The number of rows of a task."""

    rows: int


@dataclass
class Counted(WriterCommitMessage):
    """The commit message of a counting task."""

    rows: int


class PrebuiltBatches(DataSource):
    """Options: `sample` (an Arrow file), `rows`, `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "bench_batches"

    def schema(self) -> StructType:
        return row_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader(dict(self.options))


class PrebuiltReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        freeze_imports()
        self._sample = options["sample"]
        self._rows, self._partitions = int(options["rows"]), int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        return [Share(share(self._rows, self._partitions, i)) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        freeze_imports()
        left = partition.rows
        for batch in itertools.cycle(prebuilt(self._sample)):
            if batch.num_rows >= left:
                yield batch.slice(0, left)
                return
            yield batch
            left -= batch.num_rows


class Counter(DataSource):
    """Counts rows with any columns."""

    @classmethod
    def name(cls) -> str:
        return "bench_count"

    def writer(self, schema: StructType, overwrite: bool) -> CountingWriter:
        freeze_imports()
        return CountingWriter()


def count(batches: Iterator[pa.RecordBatch]) -> Counted:
    freeze_imports()
    return Counted(sum(batch.num_rows for batch in batches))


class CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return count(iterator)


class EmptyStream(DataSource):
    """Options of the source: `sample`, `rows` (of each micro-batch), `partitions`, `batches`."""

    @classmethod
    def name(cls) -> str:
        return "bench_stream"

    def schema(self) -> StructType:
        return row_schema(include_headers=False)

    def streamReader(self, schema: StructType) -> PrebuiltStream:
        return PrebuiltStream(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CountingStreamWriter:
        freeze_imports()
        return CountingStreamWriter()


class PrebuiltStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._sample = options["sample"]
        self._rows, self._partitions = int(options["rows"]), int(options["partitions"])
        self._batches = int(options["batches"])

    def getDefaultReadLimit(self) -> ReadLimit:
        freeze_imports()
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [Share(share(self._rows, self._partitions, i)) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        freeze_imports()
        yield prebuilt(self._sample)[0].slice(0, partition.rows)


class CountingStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return count(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        freeze_imports()
