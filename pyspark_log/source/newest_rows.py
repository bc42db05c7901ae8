"""The newest rows: the newest row of each key of a compacted topic, as a batch frame.

    keyed segments     Spark's own Parquet reader, less the rows that later keyed segments supersede, and less those
                       whose keys the tail has
    the tail           the rows after them, and of these the newest of each key

The frame's rows are fixed when it is made, by one entry of the topic's journal. A row that deletes its key is left out,
and so is one without a key, which a topic may have from before it was compacted.
Keys are compared within a partition: after partitions were added, a key may have a row in two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from pyspark_log.options import parse_source
from pyspark_log.options.bounds import options_between
from pyspark_log.reading import batch_read_plan, native_files
from pyspark_log.reading.newest_rows import check_compacted, superseded_in
from pyspark_log.reading.planning import split_of
from pyspark_log.source.pinned_read import columns_of, union
from pyspark_log.source.row import quoted
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle

BROADCAST_ROWS_MAX = 2_000_000
"""A tail of at most so many rows is sent to each task; a larger one is shuffled, and so are the keyed segments."""
_OFFSET_BITS = 44
"""Below 2^44 an offset and its partition are one number, by which Spark joins fastest."""


def latest(
    spark: SparkSession,
    path: str,
    topic: str,
    *,
    version: int | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return the newest row of each key of a topic with cleanup.policy=compact, without the keys that were deleted.

    The columns are those of a batch read. The rows are fixed now, whoever writes or compacts meanwhile; `version`, the
    number of an entry of the topic's journal, reads them as of then, if they have not been compacted since. `options`
    are other options of a batch read, such as `storage_options` and `nativeS3`.

    Raises `InvalidInput` if the topic is not compacted, `DataLoss` if newer rows than those of the version have been
    compacted, and what a batch read raises: `UnknownTopic` and `UnknownVersion`, for example.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput(
            "latest needs a session of this process: through Spark Connect it cannot see the log; scan(latest=True) "
            "reads the same rows where the log is"
        )
    given = options_between(topic, "earliest", "latest", None, version, options)
    parsed = parse_source({**given, "path": path}, streaming=False)
    with source_is_found():
        now, ranges = batch_read_plan.ranges_of(parsed)
        handle = now.handles[topic]
        check_compacted(handle, ranges)
        keyed, tail = _parts(handle, ranges)
        columns, read_options = columns_of(now, given, include_headers=parsed.include_headers)
        native, rest = native_files.divide(now, keyed, in_s3=parsed.native_s3, all_files=True)
        frame = union(spark, path, read_options, native, rest, columns) if native or rest else None
        if frame is not None:
            frame = _without(spark, frame, handle, keyed)
        if tail:
            native, rest = native_files.divide(now, tail, in_s3=parsed.native_s3, all_files=True)
            newer = union(spark, path, read_options, native, rest, columns)
            frame = _with_tail(frame, newer, handle, sum(each.rows for each in tail))
        if frame is None:
            return spark.createDataFrame([], columns)
        return frame.where(f.col(quoted(_key(handle))).isNotNull() & ~_deletes(handle))


def _parts(handle: TopicHandle, ranges: list[Range]) -> tuple[list[Range], list[Range]]:
    """Return what of the ranges is in keyed segments, and what comes after them."""
    keyed, tail = [], []
    for each in ranges:
        end = handle.partitions[each.partition].compacted_end
        if each.start < end:
            keyed.append(msgspec.structs.replace(each, end=min(each.end, end)))
        if end < each.end:
            tail.append(msgspec.structs.replace(each, start=max(each.start, end)))
    return keyed, tail


def _without(spark: SparkSession, frame: DataFrame, handle: TopicHandle, keyed: list[Range]) -> DataFrame:
    """Return the rows of keyed segments that no later keyed segment supersedes."""
    store_at = handle.log.store_at
    found = {each.partition: superseded_in(store_at, split_of(handle, each), each.end) for each in keyed}
    count = sum(map(len, found.values()))
    if not count:
        return frame
    partitions = np.repeat(np.array(list(found), np.int64), list(map(len, found.values())))
    offsets = np.concatenate(list(found.values()))
    if offsets.max() < 1 << _OFFSET_BITS:
        dead = spark.createDataFrame(pa.table({"place": partitions << _OFFSET_BITS | offsets}))
        place = f.shiftleft(f.col("partition").cast("long"), _OFFSET_BITS).bitwiseOR(f.col("offset"))
        return frame.join(f.broadcast(dead), place == dead["place"], "left_anti")
    dead = spark.createDataFrame(pa.table({"partition": partitions.astype(np.int32), "offset": offsets}))
    return frame.join(f.broadcast(dead), ["partition", "offset"], "left_anti")


def _with_tail(frame: DataFrame | None, tail: DataFrame, handle: TopicHandle, rows: int) -> DataFrame:
    """Return the rows of keyed segments and the newest of the tail, which has at most so many rows."""
    key = _key(handle)
    fields = [f.col(quoted(name)).alias(name) for name in tail.columns]
    newest = (
        tail.where(f.col(quoted(key)).isNotNull())
        .groupBy("partition", quoted(key))
        .agg(f.max_by(f.struct(*fields), "offset").alias("row"))
    )
    newer = newest.select("row.*")
    if frame is None:
        return newer
    keys = tail.select("partition", quoted(key)).distinct()
    if rows <= BROADCAST_ROWS_MAX:
        keys = f.broadcast(keys)
    return frame.join(keys, ["partition", key], "left_anti").select(*fields).unionAll(newer)


def _key(handle: TopicHandle) -> str:
    return handle.config.key_column or "key"


def _deletes(handle: TopicHandle) -> Column:
    """Return the condition of rows that delete their key."""
    config = handle.config
    if not config.key_column:
        return f.col("value").isNull()
    if not config.delete_when:
        return f.lit(False)
    return f.coalesce(f.col(quoted(config.delete_when)), f.lit(False))
