"""The reader of a split, in a task of a batch or a stream.

Every Python worker of Spark imports this module, so it imports no planning and no state machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import InputPartition

from pyspark_log import opening
from pyspark_log.reading.fetch import Split, fetch, schemas_of
from pyspark_log.source.row import arrow_schema, chosen_columns, rows
from pyspark_log_storage.columns.schema import is_typed
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class SplitPartition(InputPartition):
    """A split, the address of its log, and the options of its stores."""

    url: str
    split: Split
    options: StorageOptions = NO_OPTIONS


def partitions_of(path: str, options: StorageOptions, splits: Iterable[Split]) -> list[SplitPartition]:
    """Return Spark's partitions for the splits of the log at `path`."""
    url = opening.canonical(path)
    return [SplitPartition(url, split, options) for split in splits]


def read_split(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows as Spark expects them. Yield nothing for the dummy partition of an empty plan."""
    if not isinstance(partition, SplitPartition):
        return
    split, url, options = partition.split, partition.url, partition.options
    newest = schemas_of(split)[-1]
    columns = None
    if is_typed(newest):
        # Topics of records need nothing of it.
        from pyspark_log.source import typed_row

        wanted = typed_row.wanted_fields(schema.json())
        columns = typed_row.decoded_columns(wanted, split, newest)
        split = msgspec.structs.replace(split, columns=columns)

        def rows_as_spark_expects(record: pa.RecordBatch, offset: int) -> pa.RecordBatch:
            return typed_row.rows(record, wanted, split, offset)

    else:
        names = chosen_columns(schema)
        arrow = arrow_schema(names)

        def rows_as_spark_expects(record: pa.RecordBatch, offset: int) -> pa.RecordBatch:
            return rows(record, names, arrow, split.topic, split.partition, offset)

    def find_again(offset: int) -> Split:
        from pyspark_log.reading.planning import find_again

        found = find_again(opening.open_log(url, options), split, offset)
        return msgspec.structs.replace(found, columns=columns)

    for offset, record in fetch(opening.stores_at(url, options), split, find_again):
        yield rows_as_spark_expects(record, offset)
