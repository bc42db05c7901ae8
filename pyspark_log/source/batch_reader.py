"""The batch reader that Spark calls: `spark.read.format("pyspark_log")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_log.source.split_reader import partitions_of, read_split
from pyspark_log.spark_calls import spark_entry, spark_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions


class BatchReader(DataSourceReader):
    """Reads the rows between two positions of each subscribed partition."""

    @spark_entry
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        from pyspark_log.source.topic_columns import check_schema  # tasks must not import it

        check_schema(schema, options)
        self._schema = schema
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        """Return the reader for a task: without the options, whose class a task need not import."""
        return {**self.__dict__, "_options": None}

    @spark_entry
    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits. Reads no rows, except to resolve a timestamp."""
        from pyspark_log.reading import batch_plan  # tasks must not import it

        options = self._options
        return partitions_of(options.path, options.storage_options, batch_plan.plan(options))

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows. Runs in an executor's Python worker."""
        return read_split(partition, self._schema)
