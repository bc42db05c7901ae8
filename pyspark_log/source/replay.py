"""Replay: the rows of a topic between two positions, as a batch frame.

For anything else use a batch read: `spark.read.format("pyspark_log")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.options.bounds import options_between
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.columns.column_types import RESERVED as OWN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_log.options.bounds import Bound


def replay(  # noqa: PLR0913 -- each is a fact of its own
    spark: SparkSession,
    path: str,
    topic: str,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    partitions: Collection[int] | None = None,
    version: int | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return the rows of a topic from `start` up to but not including `end`, with their headers.

    A time, which needs a time zone, means the first row of each partition with this timestamp or a later one, as in
    Kafka; if there is none, the end. It is rounded down to milliseconds. Only the chunks from the one with the start to
    the one with the end are read. Offsets are a dict by partition: `{0: 120, 1: 98}`. `partitions` are those to read
    (default: those with offsets, else all). `version` reads the topic as of a version (see versionAsOf). `options` are
    other options of a batch read, such as `storage_options`, `nativeS3` and `failOnDataLoss`.

    The rows of the frame are fixed now, and Spark's own reader reads those in Parquet segments (see `pinned_read`).
    With Spark Connect the rows are fixed when they are read, and the source reads all of them.

    The call writes nothing and belongs to no group. Raises `InvalidInput` for an argument that cannot be used,
    `SourceNotFound` if Spark does not find the format, and what a batch read raises: `UnknownTopic` and `DataLoss`, for
    example.
    """
    given = options_between(topic, start, end, partitions, version, options)
    with source_is_found():
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            return _by_the_server(spark, path, given)
        from pyspark_log.source.pinned_read import pinned

        return pinned(spark, path, given)


def _by_the_server(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Return a batch read. The log is where the server is, so only the columns say whether the topic is typed."""
    given = {name: value for name, value in options.items() if name != "includeHeaders"}
    without_headers = spark.read.format("pyspark_log").options(**given).load(path)
    if without_headers.columns[0] == OWN[0]:  # its rows have none
        return without_headers
    return spark.read.format("pyspark_log").options(**options).load(path)
