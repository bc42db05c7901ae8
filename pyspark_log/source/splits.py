"""Splits as Spark's partitions: what a task gets, and the function that reads it, for tasks and for the driver.

The driver reads the rows of a small micro-batch as it plans: one task has them all, and needs no Python. Spark takes
rows together with a partition from readers of a private class, the one that wraps `SimpleDataSourceStreamReader`. The
JVM keeps them as a block, and a task that does not find it calls `read`. Spark asks such a reader less than others, so
a `StreamReader` is one only between two calls, `partitions` and `getCache`. These facts are in docs/spark-calls.md.

Every worker imports this module, so it imports no planning and no state machine.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import ArrayType, MapType, StructType

from pyspark_log import opening
from pyspark_log.reading.fetch import Split, schemas_of
from pyspark_log.reading.rows import LogAt, Lost, read_rows
from pyspark_log.source.row import COLUMNS, wanted_fields
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader

    from pyspark_log.options import SourceOptions

BYTES_MAX = 8 * 1024 * 1024
"""How large the rows may be in the driver's memory."""
REQUESTS = 16
"""How many splits are read at once from an object store."""


@dataclass
class SplitPartition(InputPartition):
    """A split, the address of its log, and the options of its stores."""

    url: str
    split: Split
    options: StorageOptions = NO_OPTIONS
    fail_on_data_loss: bool = True


@dataclass
class SmallBatch(InputPartition):
    """The splits of a micro-batch of few rows. A task reads them if it finds no rows that the driver has read."""

    splits: list[SplitPartition]


def partitions_of(options: SourceOptions, schema: StructType, planned: Iterable[Split]) -> list[SplitPartition]:
    """Return Spark's partitions for the splits of a read. Raises `InvalidInput` if `schema` does not fit a topic."""
    from pyspark_log.source.topic_columns import check_topic  # tasks must not import it

    url, fail = opening.canonical(options.path), options.fail_on_data_loss
    found = [SplitPartition(url, split, options.storage_options, fail) for split in planned]
    for topic, split in {each.split.topic: each.split for each in found}.items():
        check_topic(schema, topic, schemas_of(split))
    return found


def read_split(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows as Spark expects them. Yield nothing for the dummy partition of an empty plan."""
    if not isinstance(partition, SplitPartition):
        return
    url, options = partition.url, partition.options
    at = LogAt(opening.stores_at(url, options), partial(opening.open_log, url, options))
    lost = Lost.ERROR if partition.fail_on_data_loss else Lost.LEFT_OUT
    yield from map(itemgetter(1), read_rows(partition.split, at, wanted_fields(schema.json()), lost=lost))


class _TooLargeError(Exception):
    """The rows need more than `BYTES_MAX`."""


def hand_over(reader: Any, schema: StructType, splits: list[SplitPartition]) -> Sequence[InputPartition]:
    """Return the splits as one partition, whose rows `reader` has for Spark, or as they are, for tasks to read.

    Tasks read what is too large, what Spark does not take, and what cannot be read: their errors name the partition.
    """
    kind: type[DataSourceStreamReader] = type(reader)
    handing_over = _handing_over(kind)
    if handing_over is None or not _is_taken(schema):
        return splits
    try:
        reader.rows = _rows(splits, schema)
    except (LogError, MemoryError, _TooLargeError):
        return splits
    reader.__class__ = handing_over
    return [SmallBatch(splits)]


@cache
def _handing_over(kind: type[DataSourceStreamReader]) -> type[DataSourceStreamReader] | None:
    """Return the class of a reader of this kind until Spark has taken the rows. None: this Spark takes none."""
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
    except ImportError:
        return None

    class HandingOver(kind, _SimpleStreamReaderWrapper):  # type: ignore[misc, valid-type]
        rows: list[pa.RecordBatch]

        def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
            del start, end
            self.__class__ = kind  # type: ignore[assignment]
            rows, self.rows = self.rows, []
            return iter(rows)

    return HandingOver


def _is_taken(schema: StructType) -> bool:
    """Return whether Spark takes rows with these columns. It fails at a null in an array or a map."""
    nested = [each.dataType for each in schema if isinstance(each.dataType, (ArrayType, MapType, StructType))]
    return all(kind == COLUMNS["headers"] for kind in nested) and not any(each.metadata for each in schema)


def _rows(splits: list[SplitPartition], schema: StructType) -> list[pa.RecordBatch]:
    """Return the rows of the splits, in their order, as one batch, or none if there are no rows any more."""
    size = 0

    def read(split: SplitPartition) -> list[pa.RecordBatch]:
        nonlocal size
        found = []
        for batch in read_split(split, schema):
            size += batch.nbytes
            if size > BYTES_MAX:
                raise _TooLargeError
            found.append(batch)
        return found

    first = splits[0]
    stores = {opening.stores_at(first.url, first.options)(node.url) for each in splits for node in each.split.nodes}
    if len(splits) > 1 and any(is_object_store(store) for store in stores):
        with ThreadPoolExecutor(REQUESTS) as pool:
            batches = [*itertools.chain.from_iterable(pool.map(read, splits))]
    else:
        batches = [*itertools.chain.from_iterable(map(read, splits))]
    return [pa.concat_batches(batches)] if batches else []
