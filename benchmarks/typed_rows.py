"""The rows of the benchmarks of typed topics: ten columns, and the looks at all of them and at one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = (
    "id BIGINT, carrier STRING, origin STRING, dest STRING, tail STRING, day DATE, delay INT, distance INT,"
    " air DOUBLE, cancelled BOOLEAN"
)
_COLUMNS = (
    "id",
    "element_at(array('UA', 'AA', 'B6', 'DL', 'EV', 'MQ', 'US', 'WN'), int(pmod(hash(id, 1), 8) + 1)) AS carrier",
    "element_at(array('EWR', 'LGA', 'JFK'), cast(pmod(hash(id, 2), 3) + 1 AS int)) AS origin",
    "concat('D', pmod(hash(id, 3), 100)) AS dest",
    "concat('N', pmod(hash(id, 4), 5000)) AS tail",
    "date_add(DATE'2013-01-01', pmod(hash(id, 5), 365)) AS day",
    "pmod(hash(id, 6), 240) - 60 AS delay",
    "pmod(hash(id, 7), 5000) AS distance",
    "cast(pmod(hash(id, 8), 60000) AS double) / 100 AS air",
    "pmod(hash(id, 9), 50) = 0 AS cancelled",
)
ALL_COLUMNS = (
    "sum(id)",
    "sum(octet_length(carrier))",
    "sum(octet_length(origin))",
    "sum(octet_length(dest))",
    "sum(octet_length(tail))",
    "max(day)",
    "sum(delay)",
    "sum(distance)",
    "max(air)",
    "count_if(cancelled)",
)
ONE_COLUMN = ("sum(delay)",)


def fresh(spark: SparkSession, first: int, end: int, partitions: int) -> DataFrame:
    """Return the rows with these ids, not computed yet."""
    return spark.range(first, end, 1, partitions).selectExpr(*_COLUMNS)


def persisted(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Return rows, computed and kept in memory."""
    frame = fresh(spark, 0, count, partitions).persist(StorageLevel.MEMORY_ONLY)
    frame.count()
    return frame


def look_at(frame: DataFrame, columns: tuple[str, ...]) -> tuple[object, ...]:
    """Read columns of every row, and return what was computed of them."""
    return tuple(frame.selectExpr(*columns).collect()[0])
