"""The readers that Spark calls, of batches (`spark.read.format("pyspark_log")`) and of streams (`spark.readStream`).

On the driver a reader plans splits, and Python workers read these. Every worker imports this module, so it imports no
planning and no state machine.

Spark's order of calls and its traps are in docs/spark-calls.md. Two of them shape the reader of streams. Spark hides
an error raised in the constructor, so options are checked in `getDefaultReadLimit`. An idle `latestOffset` is called
again at once, so it waits a little for new rows.

The rows of a small micro-batch are read on the driver, by the same function: see `splits`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_log.source.splits import SmallBatch, hand_over, partitions_of, read_split
from pyspark_log.spark_calls import spark_entry, spark_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions
    from pyspark_log.reading.stream_planner import StreamPlanner


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
        from pyspark_log.reading import batch_read_plan  # tasks must not import it

        options = self._options
        return partitions_of(options, self._schema, batch_read_plan.plan(options))

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows. Runs in an executor's Python worker."""
        return read_split(partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their splits in executors."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options_given = options
        self._made: StreamPlanner | None = None
        self.rows: list[pa.RecordBatch] = []
        """Those that the driver has read and Spark takes next."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the reader for a task: without the planner, which a task must not import."""
        return {**self.__dict__, "_made": None}

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            from pyspark_log.options import parse_source
            from pyspark_log.reading.stream_planner import StreamPlanner
            from pyspark_log.source.topic_columns import check_topic

            options = parse_source(self._options_given, streaming=True)
            self._made = StreamPlanner(options, partial(check_topic, self._schema))
        return self._made

    @spark_entry
    def getDefaultReadLimit(self) -> ReadLimit:
        """Check the options. Return a limit that Spark passes on to `latestOffset`."""
        from pyspark_log.source.topic_columns import check_schema  # tasks must not import it

        check_schema(self._schema, self._planner.options)
        return ReadMaxRows(self._planner.options.max_offsets_per_trigger or 2**62)

    @spark_entry
    def initialOffset(self) -> dict[str, Any]:
        """Return the sentinel that `latestOffset` resolves."""
        from pyspark_log.reading import source_offset

        return source_offset.INITIAL

    @spark_entry
    def prepareForTriggerAvailableNow(self) -> None:
        """Make the present ends of all partitions the end of the query."""
        self._planner.stop_at_present()

    @spark_entry
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends, or `start` itself if there is nothing to read."""
        return self._planner.end(start, unlimited=isinstance(limit, ReadAllAvailable))

    @spark_entry
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets and the lag that the last `latestOffset` saw, for the query's progress."""
        return self._planner.latest

    @spark_entry
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of the batch between two offsets. The same offsets always give the same rows."""
        plan = self._planner.plan(start, end)
        found = partitions_of(self._planner.options, self._schema, plan.splits)
        if plan.is_small:
            return hand_over(self, self._schema, found)
        return found

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows. Runs in an executor's Python worker."""
        for split in partition.splits if isinstance(partition, SmallBatch) else [partition]:
            yield from read_split(split, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint records what was read."""
