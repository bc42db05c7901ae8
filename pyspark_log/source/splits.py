"""Splits as Spark's partitions: what a task gets, and the function that reads it, for tasks and for the driver.

Every worker imports this module, so it imports no planning and no state machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_log import opening
from pyspark_log.reading.arrow_rows import record_schema
from pyspark_log.reading.fetch import Split, schemas_of
from pyspark_log.reading.rows import LogAt, Lost, read_rows
from pyspark_log.source.row import chosen_columns
from pyspark_log_storage.columns.schema import is_typed
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions


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
    newest = schemas_of(partition.split)[-1]
    if is_typed(newest):
        # Topics of records need nothing of it.
        from pyspark_log.source import typed_row

        wanted = typed_row.wanted_fields(schema.json())
    else:
        wanted = record_schema(chosen_columns(schema))

    at = LogAt(opening.stores_at(url, options), partial(opening.open_log, url, options))
    lost = Lost.ERROR if partition.fail_on_data_loss else Lost.LEFT_OUT
    yield from map(itemgetter(1), read_rows(partition.split, at, wanted, lost=lost))
