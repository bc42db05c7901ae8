"""A streaming query whose micro-batches are pinned reads: Spark itself reads those rows that are in Parquet segments.

Spark's own frame of a micro-batch is lazy. It is not used if some of its rows are in Parquet segments; then the
function gets a pinned read of the same rows, by the offsets in the checkpoint (`checkpoint`). The newest rows come from
the source, as in every stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log.opening import canonical
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.names import check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions
    from pyspark_log_coordinator.log.log import Log

_CHOOSE = ("path", "subscribe", "subscribepattern", "assign")


def foreach_batch(  # noqa: PLR0913 -- each is a fact of its own
    spark: SparkSession,
    path: str,
    topic: str,
    function: Callable[[DataFrame, int], object],
    *,
    checkpoint: str,
    options: Mapping[str, object] | None = None,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
) -> StreamingQuery:
    """Start a query that calls `function(frame, batch_id)` for each micro-batch of a topic, and return it.

    It is `spark.readStream.format("pyspark_log")` with Spark's `foreachBatch`, and the same checkpoint may be used with
    either. The frame has the same rows and columns; Spark's own reader reads those in Parquet segments (see
    `pinned_read`). As with `foreachBatch`, the function may get a batch again after a failure, with the same id and the
    same rows; write it with `txnAppId` and `txnVersion`, or to another sink that recognises a repeated batch.

    `options` are those of a stream, such as `startingOffsets` (default: latest), `maxOffsetsPerTrigger` and `group.id`.
    `trigger` has the arguments of Spark's `trigger`, such as `{"availableNow": True}`. `numInputRows` of the query's
    progress counts only the rows of batches without Parquet segments.

    Raises `InvalidInput` for an argument that cannot be used and for a session of Spark Connect, `SourceNotFound` if
    Spark does not find the format, and what Spark raises. Errors of the function and of batches end the query.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput(
            "foreach_batch needs the session of the driver, and this is one of Spark Connect; run it where the server"
            ' is, or use spark.readStream.format("pyspark_log") with foreachBatch'
        )
    from pyspark_log.options import as_texts

    given = as_texts(options)
    if chosen := [name for name in given if name.lower() in _CHOOSE]:
        raise InvalidInput(f"options has {chosen[0]}; give the path and the topic as arguments of foreach_batch")
    check_topic(topic)  # the option subscribe takes several, and blanks around each
    given["subscribe"] = topic
    path = canonical(path)  # Spark plans the query in another process, whose working folder may be another one
    with source_is_found():
        stream = spark.readStream.format("pyspark_log").options(**given).load(path)
        batches = _Batches(path, given, checkpoint)

        def call(frame: DataFrame, batch_id: int) -> None:
            function(batches.frame(frame, batch_id), batch_id)

        writer = stream.writeStream.foreachBatch(call).option("checkpointLocation", checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        if query_name is not None:
            writer = writer.queryName(query_name)
        return writer.start()


class _Batches:
    """The micro-batches of one query."""

    def __init__(self, path: str, options: Mapping[str, str], checkpoint: str) -> None:
        from pyspark_log.options import parse_source

        self._path, self._checkpoint = path, checkpoint
        self._options: SourceOptions = parse_source({**options, "path": path}, streaming=True)
        self._given = options
        self._log: Log | None = None

    def frame(self, frame: DataFrame, batch_id: int) -> DataFrame:
        """Return the rows of Spark's frame of a batch, or the frame itself if none is in a Parquet segment.

        Spark calls one batch after the other, but not in the thread that started the query.
        """
        from pyspark_log.options import of_batch_read
        from pyspark_log.reading import native_files
        from pyspark_log.reading.positions import Subscribed
        from pyspark_log.reading.tracking import ranges_between
        from pyspark_log.source import checkpoint
        from pyspark_log.source.pinned_read import ids_of, union

        spark, options = frame.sparkSession, self._options
        start, end = checkpoint.offsets_of(spark, self._checkpoint, batch_id)
        log = self._opened()
        end.check_cluster(log.cluster_id, self._path)
        fail = options.fail_on_data_loss
        handles, ranges = ranges_between(start, end, log.topic, fail_on_data_loss=fail)
        now = Subscribed(handles, {}, options.client_rack)
        native, rest = native_files.divide(now, ranges, in_s3=options.native_s3)
        if not native or any(_has_changed(frame.schema, handle.schemas[-1]) for handle in handles.values()):
            return frame
        given = of_batch_read(self._given) | ids_of(handles)
        return union(spark, self._path, given, native, rest, frame.schema)

    def _opened(self) -> Log:
        """Return a log of this query's own, as other threads use the one of the process."""
        from pyspark_log import opening

        if self._log is None:
            self._log = opening.own_log(self._path, self._options.storage_options)
            self._log.locate()
        self._log.open(create=False)
        return self._log


def _has_changed(columns: StructType, stored: pa.Schema) -> bool:
    """Return whether a column of a frame has another type in the topic now: its files cannot be read as the frame's.

    Spark would read integers as narrower ones without a look at their values.
    """
    from pyspark_log.source.typed_row import typed_schema

    if not schema.is_typed(stored):
        return False
    now = {each.name: each.dataType.simpleString() for each in typed_schema(schema.columns_of(stored))}
    return any(now.get(each.name) != each.dataType.simpleString() for each in columns)
