"""The rows of the benchmarks: a key of about 10 bytes and a JSON value of about 90, the same in every run.

They are made once and kept in the JVM's memory, uncompressed. Reading them from there costs almost nothing, so that
making rows does not hide the cost of writing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 1_000_003
_KEY = f"concat('key-', pmod(hash(id), {KEYS}))"
_VALUE = """concat(
    '{"id":', id,
    ',"carrier":"', element_at(array('UA', 'AA', 'B6', 'DL', 'EV', 'MQ', 'US', 'WN'),
        cast(pmod(hash(id, 1), 8) + 1 AS int)),
    '","origin":"', element_at(array('EWR', 'LGA', 'JFK'), cast(pmod(hash(id, 2), 3) + 1 AS int)),
    '","delay":', pmod(hash(id, 3), 240) - 60,
    ',"at":"', timestamp_seconds(1356998400 + pmod(hash(id, 4), 31536000)),
    '","air":', pmod(hash(id, 5), 600) + 20, '}')"""


def fresh_rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Return `count` rows of `key` and `value` in this number of partitions, not computed yet."""
    return spark.range(0, count, 1, partitions).selectExpr(f"{_KEY} AS key", f"{_VALUE} AS value")


@dataclass(frozen=True)
class Sizes:
    """The mean length of a key and of a value, in bytes."""

    key: float
    value: float


def persisted_rows(spark: SparkSession, count: int, partitions: int) -> tuple[DataFrame, Sizes]:
    """Return the rows, computed and kept in memory, and their sizes."""
    frame = fresh_rows(spark, count, partitions).persist(StorageLevel.MEMORY_ONLY)
    sizes = frame.selectExpr("avg(length(key)) AS key", "avg(length(value)) AS value").collect()[0]
    return frame, Sizes(sizes.key, sizes.value)
