"""A pinned read: rows of topics as one frame, of which Spark reads by itself what is in Parquet segments.

Which rows it has is settled when it is made. The rows of each partition are cut at one offset (`native_files`): Spark's
own Parquet reader reads those before it, with its filters and projections, and the source those after it. A SQL view
could not hold that cut; a function that returns the frame can.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from pyspark_log.client.read import batch_plan, native_files
from pyspark_log.options import parse_source
from pyspark_log.source.row import CREATE_TIME
from pyspark_log_storage import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_log.client.read.native_files import NativeRows
    from pyspark_log.client.read.planning import Range

_POSITIONS = {"partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType()}
_NOT_IN_FILES = {"topic", "timestampType"}
_STARTS = ("subscribe", "assign", "starting", "ending", "versionAsOf")
"""How the options begin that say which rows are read."""


def pinned(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Return the rows that a batch read with these options has now.

    Raises what the planning of a batch read raises.
    """
    now, ranges = batch_plan.ranges_of(parse_source({**options, "path": path}, streaming=False))
    native, rest = native_files.divide(now, ranges)
    if any(schema.is_typed(handle.schemas[0]) for handle in now.handles.values()):
        options = {name: value for name, value in options.items() if name != "includeHeaders"}  # its rows have none
    source = _source(spark, path, options, rest or ranges)
    if not native:
        return source
    frames = [_files(spark, topic, some, source.schema) for topic, some in _by_topic(native).items()]
    return functools.reduce(lambda one, other: one.unionAll(other), [*frames, source] if rest else frames)


def _source(spark: SparkSession, path: str, options: Mapping[str, str], ranges: Sequence[Range]) -> DataFrame:
    """Return the rows of these ranges, as the source reads them."""
    offsets: dict[str, dict[str, dict[int, int]]] = {"starting": defaultdict(dict), "ending": defaultdict(dict)}
    for each in ranges:
        offsets["starting"][each.topic][each.partition] = each.start
        offsets["ending"][each.topic][each.partition] = each.end
    chosen = {topic: sorted(numbers) for topic, numbers in offsets["starting"].items()}
    given = {name: value for name, value in options.items() if not name.startswith(_STARTS)}
    given |= {"assign": json.dumps(chosen)}
    given |= {f"{name}Offsets": json.dumps(each) for name, each in offsets.items()}
    return spark.read.format("pyspark_log").options(**given).load(path)


def _files(spark: SparkSession, topic: str, parts: Sequence[NativeRows], columns: StructType) -> DataFrame:
    """Return rows of one topic from their files, with the columns of the source."""
    stored = {name: StructField(name, kind) for name, kind in _POSITIONS.items()}
    stored |= {each.name: each for each in columns if each.name not in _NOT_IN_FILES}
    urls = [f"file://{path}" for each in parts for path in each.files]
    frame = spark.read.schema(StructType(list(stored.values()))).parquet(*urls)
    for each in parts:
        if each.is_cut:
            rows, offset = each.rows, f.col("offset")
            frame = frame.where((f.col("partition") != rows.partition) | offset.between(rows.start, rows.end - 1))
    return frame.select(*(_column(name, topic).alias(name) for name in columns.names))


def _column(name: str, topic: str) -> Column:
    match name:
        case "topic":
            return f.lit(topic)
        case "timestampType":
            return f.lit(CREATE_TIME)
        case "headers":
            return f.when(f.size("headers") > 0, f.col("headers"))  # null for none, as in Spark's Kafka source
        case _:
            return f.col(name)


def _by_topic(parts: Sequence[NativeRows]) -> dict[str, list[NativeRows]]:
    found = defaultdict(list)
    for each in parts:
        found[each.rows.topic].append(each)
    return found
