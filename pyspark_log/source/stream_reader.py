"""Reading a stream: `spark.readStream.format("pyspark_log")`.

Spark's order of calls and its traps are in docs/spark.md. Two of them shape this class: an error in the
constructor would be buried, so options are checked in `getDefaultReadLimit`; and an idle `latestOffset` is called again
at once, so it waits a little for news itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_log.source.row import chosen_columns
from pyspark_log.source.split_reader import read_split
from pyspark_log.spark_errors import spark_entry, spark_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.source.stream_planner import StreamPlanner


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their splits in executors."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options_given = options
        self._made: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task gets of the reader: what plans stays on the driver, with all that it imports."""
        return {**self.__dict__, "_made": None}

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            from pyspark_log.options import parse_source
            from pyspark_log.source.stream_planner import StreamPlanner

            self._made = StreamPlanner(parse_source(self._options_given, streaming=True))
        return self._made

    @spark_entry
    def getDefaultReadLimit(self) -> ReadLimit:
        """Check the options, and say that there is a limit: Spark hands it back to `latestOffset`."""
        chosen_columns(self._schema)
        return ReadMaxRows(self._planner.options.max_offsets_per_trigger or 2**62)

    @spark_entry
    def initialOffset(self) -> dict[str, Any]:
        """Return the sentinel that `latestOffset` resolves."""
        from pyspark_log.source import offsets

        return offsets.INITIAL

    @spark_entry
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what is there now as the end of the query."""
        self._planner.stop_at_present()

    @spark_entry
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends, or `start` where there is nothing to read."""
        return self._planner.end(start, unlimited=isinstance(limit, ReadAllAvailable))

    @spark_entry
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets and the lag, as seen by the last `latestOffset`, for the query's progress."""
        return self._planner.latest

    @spark_entry
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of the batch between two offsets, the same for the same offsets whenever it is asked."""
        return self._planner.splits(start, end)

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows; runs in an executor's Python worker."""
        return read_split(partition, chosen_columns(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is read is recorded in Spark's checkpoint."""
