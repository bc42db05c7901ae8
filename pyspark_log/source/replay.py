"""Replay: the rows of a topic between two positions, as a batch frame.

For anything else use a batch read: `spark.read.format("pyspark_log")`.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal, SupportsIndex

from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.columns.column_types import RESERVED as OWN
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bound = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""A position: earliest, latest, a time, or an offset for each partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CHOOSE = ("path", "subscribe", "assign", "starting", "ending", "versionasof")
"""How the options begin that say which rows are read."""


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
    from pyspark_log.options import as_texts

    more = as_texts(options)
    if taken := [name for name in more if name.lower().startswith(_CHOOSE)]:
        raise InvalidInput(f"options has {taken[0]}; which rows are read is said by the arguments path to version")
    start, end = _with_ints("start", start), _with_ints("end", end)
    named = {number for bound in (start, end) if isinstance(bound, Mapping) for number in bound}
    chosen = named if partitions is None else {_int("partitions", each) for each in partitions}
    given = {"includeHeaders": "true", "startingOffsetsByTimestampStrategy": "latest"} | more
    if named or partitions is not None:
        given["assign"] = json.dumps({topic: sorted(chosen)})
    else:
        given["subscribe"] = topic
    given |= _option("start", start, topic, chosen) | _option("end", end, topic, chosen)
    if version is not None:
        given["versionAsOf"] = str(version)
    with source_is_found():
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            return _by_the_server(spark, path, given)
        from pyspark_log.source.pinned_read import pinned

        return pinned(spark, path, given)


def _with_ints(name: str, bound: Bound) -> Bound:
    """Return a bound whose offsets are ints of Python; those of NumPy and pandas are none. Raises `InvalidInput`."""
    if not isinstance(bound, Mapping):
        return bound
    return {_int(name, partition): _int(name, offset) for partition, offset in bound.items()}


def _int(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} has {value!r}; expected a whole number") from None


def _by_the_server(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Return a batch read. The log is where the server is, so only the columns say whether the topic is typed."""
    given = {name: value for name, value in options.items() if name != "includeHeaders"}
    without_headers = spark.read.format("pyspark_log").options(**given).load(path)
    if without_headers.columns[0] == OWN[0]:  # its rows have none
        return without_headers
    return spark.read.format("pyspark_log").options(**options).load(path)


def _option(name: Literal["start", "end"], bound: Bound, topic: str, partitions: Collection[int]) -> dict[str, str]:
    """Return the option for a bound. Raises `InvalidInput`."""
    prefix = {"start": "starting", "end": "ending"}[name]
    natural = {"start": "earliest", "end": "latest"}[name]
    match bound:
        case str():
            if bound != natural:
                raise InvalidInput(f"{name} is {bound!r}; expected {natural!r}, a datetime, or a dict of offsets")
            return {f"{prefix}Offsets": bound}
        case datetime():
            if bound.tzinfo is None:
                raise InvalidInput(f"{name} is {bound}, which has no time zone; give it one, such as timezone.utc")
            if bound < _EPOCH:
                raise InvalidInput(f"{name} is {bound}; expected a time since 1970")
            return {f"{prefix}Timestamp": str((bound - _EPOCH) // timedelta(milliseconds=1))}
        case Mapping():
            if missing := sorted(set(partitions) ^ set(bound)):
                wrong = "has no offset for" if missing[0] in partitions else "has an offset for"
                raise InvalidInput(
                    f"{name} {wrong} partition {missing[0]}; give start and end offsets of the partitions to read"
                )
            return {f"{prefix}Offsets": json.dumps({topic: dict(sorted(bound.items()))})}
        case _:
            raise InvalidInput(f"{name} is {bound!r}; expected {natural!r}, a datetime, or a dict of offsets")
