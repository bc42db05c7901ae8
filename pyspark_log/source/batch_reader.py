"""Reading a batch: `spark.read.format("pyspark_log")`. One consistent cut of each topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_log.opening import open_log
from pyspark_log.source.fetch import Split, fetch
from pyspark_log.source.planning import Range, divide, split_of
from pyspark_log.source.positions import resolve, subscribed
from pyspark_log.source.row import arrow_schema, chosen_columns, rows
from pyspark_log.spark_errors import spark_entry, spark_iterator
from pyspark_log_storage.store import absolute_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions


@dataclass
class SplitPartition(InputPartition):
    """A task's share."""

    url: str
    split: Split


class BatchReader(DataSourceReader):
    """Reads the rows between two positions of each subscribed partition."""

    @spark_entry
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns = chosen_columns(schema)
        self._options = options

    @spark_entry
    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits; reads no rows, but for a position by time."""
        options = self._options
        log = open_log(options.path)
        now = subscribed(log, options.subscription, missing_is_error=True)
        fail = options.fail_on_data_loss
        start = resolve(log, now, options.starting, options.starting_no_match, ending=False, fail_on_data_loss=fail)
        end = resolve(log, now, options.ending, options.starting_no_match, ending=True, fail_on_data_loss=fail)
        ranges = [Range(*key, start[key], end[key]) for key in now.topic_partitions()]
        parts = divide(ranges, options.min_partitions, options.max_records_per_partition)
        url = absolute_url(options.path)
        return [SplitPartition(url, split_of(now.handles[part.topic], part)) for part in parts]

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows; runs in an executor's Python worker."""
        return read_split(partition, self._columns)


def read_split(partition: InputPartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows as Spark expects them; nothing for the partition that Spark makes where there is none."""
    if not isinstance(partition, SplitPartition):
        return
    split, schema = partition.split, arrow_schema(columns)
    for offset, record in fetch(open_log(partition.url).store, split):
        yield rows(record, columns, schema, split.topic, split.partition, offset)
