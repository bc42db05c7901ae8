"""All rows of a topic as one frame, which Spark reads by itself where they are in Parquet segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.source.replay import replay

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    path: str,
    topic: str,
    *,
    partitions: Collection[int] | None = None,
    version: int | None = None,
) -> DataFrame:
    """Return all rows that a topic has now, with their headers: `replay` without bounds.

    `partitions` are those to read (default: all). `version` reads the topic as of a version (see versionAsOf). Raises
    what `replay` raises.
    """
    return replay(spark, path, topic, partitions=partitions, version=version)
