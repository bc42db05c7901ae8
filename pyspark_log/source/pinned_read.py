"""A pinned read: rows of topics as one frame, in which Spark itself reads the rows in Parquet segments.

The frame's rows are fixed when it is made. Those of each partition are split at the offsets where Parquet segments
begin and end (`native_files`): Spark's own Parquet reader reads the segments, with its filters and projections, and the
source reads the rest. A SQL view could not store these offsets; a function that returns the frame can.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from pyspark_log.opening import canonical
from pyspark_log.options import parse_source
from pyspark_log.options.bounds import without_bounds
from pyspark_log.reading import batch_read_plan, native_files
from pyspark_log.reading.arrow_rows import CREATE_TIME, OWN
from pyspark_log.source.row import quoted, row_schema, same_columns, typed_schema
from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_log.reading.native_files import NativeRows
    from pyspark_log.reading.planning import Range
    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.log.log import TopicHandle

_POSITIONS = {"partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType()}
_AS_STORED = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "ignoredPathSegmentRegex": "",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.record-level.enabled": "false",
}
"""Options of the read, whatever the session has set: a row that cannot be read is an error, times before 1900 stay.

No segment is left out for its name. With Parquet's filters by dictionaries or of single rows `x = 0.0` would not find
-0.0, which Spark says are equal.
"""


def pinned(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Return the rows that a batch read with these options has now.

    Raises what the planning of a batch read raises.
    """
    parsed = parse_source({**options, "path": path}, streaming=False)
    now, ranges = batch_read_plan.ranges_of(parsed)
    native, rest = native_files.divide(now, ranges, in_s3=parsed.native_s3)
    columns, options = columns_of(now, options, include_headers=parsed.include_headers)
    if not native:
        return _source(spark, path, options, ranges)
    return union(spark, path, options, native, rest, columns)


def columns_of(
    now: Subscribed, options: Mapping[str, str], *, include_headers: bool
) -> tuple[StructType, dict[str, str]]:
    """Return the columns of a batch read, and the options with which the source has them and fails for other topics."""
    given = {**options, **ids_of(now.handles)}
    typed = [(name, each.schemas[-1]) for name, each in now.handles.items() if schema.is_typed(each.schemas[0])]
    if not typed:
        return row_schema(include_headers=include_headers), given
    given.pop("includeHeaders", None)  # its rows have none
    return typed_schema(same_columns([(name, schema.columns_of(each)) for name, each in typed])), given


def ids_of(handles: Mapping[str, TopicHandle]) -> dict[str, str]:
    """Return the options by which a batch read fails if topics are others by then, or their rows were compacted."""
    compacted = {
        topic: {number: each.compactions for number, each in enumerate(handle.partitions) if each.compactions}
        for topic, handle in handles.items()
    }
    ids = {topic: handle.topic_id for topic, handle in handles.items()}
    return {"topicIds": json.dumps(ids), "compactions": json.dumps(compacted)}


def union(
    spark: SparkSession,
    path: str,
    options: Mapping[str, str],
    native: Sequence[NativeRows],
    rest: Sequence[Range],
    columns: StructType,
) -> DataFrame:
    """Return the rows of files and of ranges as one frame with these columns.

    `options` are those of a batch read; which rows it reads is not taken from them.
    """
    sources = [_source(spark, path, options, each, columns) for each in _one_of_each_partition(rest)]
    files = [_files(spark, topic, some, columns) for topic, some in _by_topic(native).items()]
    return functools.reduce(lambda one, other: one.unionAll(other), [*files, *sources])


def _one_of_each_partition(ranges: Sequence[Range]) -> list[list[Range]]:
    """Return the ranges in lists, so that each list has one range of a partition at most: a read takes no more."""
    lists: list[list[Range]] = []
    seen: dict[tuple[str, int], int] = defaultdict(int)
    for each in ranges:
        number = seen[each.topic, each.partition]
        seen[each.topic, each.partition] += 1
        if number == len(lists):
            lists.append([])
        lists[number].append(each)
    return lists


def _source(
    spark: SparkSession,
    path: str,
    options: Mapping[str, str],
    ranges: Sequence[Range],
    columns: StructType | None = None,
) -> DataFrame:
    """Return the rows of these ranges, as the source reads them."""
    offsets: dict[str, dict[str, dict[int, int]]] = {"starting": defaultdict(dict), "ending": defaultdict(dict)}
    for each in ranges:
        offsets["starting"][each.topic][each.partition] = each.start
        offsets["ending"][each.topic][each.partition] = each.end
    chosen = {topic: sorted(numbers) for topic, numbers in offsets["starting"].items()}
    given = without_bounds(options) | {"assign": json.dumps(chosen)}
    given |= {f"{name}Offsets": json.dumps(each) for name, each in offsets.items()}
    read = spark.read.format("pyspark_log").options(**given)
    # Spark plans the read in another process, whose working folder may be another one.
    return (read if columns is None else read.schema(columns)).load(canonical(path))


def _files(spark: SparkSession, topic: str, parts: Sequence[NativeRows], columns: StructType) -> DataFrame:
    """Return rows of one topic from their files, with the columns of the source.

    Expressions are texts: each `Column` is some calls to the JVM, which were half of the time that a frame took.
    """
    made = _made(topic, columns)
    stored = {name: StructField(name, kind) for name, kind in _POSITIONS.items()}
    stored |= {each.name: each for each in columns if each.name not in made or each.name == "headers"}
    urls = [url for each in parts for url in each.files]
    read = spark.read.schema(StructType(list(stored.values()))).options(**_AS_STORED)
    frame = read.parquet(*urls)
    cuts = [_cut(each.rows) for each in parts if each.is_cut]
    if cuts:
        frame = frame.where(" AND ".join(cuts))
    return frame.selectExpr(*(f"{made.get(name, quoted(name))} AS {quoted(name)}" for name in columns.names))


def _cut(rows: Range) -> str:
    """Return the condition that leaves out the other rows of the files of a partition.

    The names are quoted: Spark may be set to reserve them.
    """
    return f"(`partition` <> {rows.partition} OR `offset` BETWEEN {rows.start} AND {rows.end - 1})"


def _made(topic: str, columns: StructType) -> dict[str, str]:
    """Return the expressions of columns of the source that files lack, or have in another form.

    A typed topic may have columns of its own with the names that only rows of records have.
    """
    made = {"topic": _constant(f"'{topic}'")}
    if tuple(columns.names[: len(OWN)]) != OWN:
        made["timestampType"] = _constant(str(CREATE_TIME))
        # Null for none, as in Spark's Kafka source.
        made["headers"] = "CASE WHEN size(`headers`) > 0 THEN `headers` END"
    return made


def _constant(value: str) -> str:
    """Return a column that may be null, as Spark sees it: so is the source's, and no schema tells where rows are."""
    return f"nullif({value}, NULL)"


def _by_topic(parts: Sequence[NativeRows]) -> dict[str, list[NativeRows]]:
    found = defaultdict(list)
    for each in parts:
        found[each.rows.topic].append(each)
    return found
