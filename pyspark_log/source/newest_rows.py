"""The newest rows: the newest row of each key of a compacted topic, as a batch frame.

    the head    has at most one row of a key: all but those whose keys the tail has
    the tail    the rows that are not compacted, and of these the newest of each key

Spark compares the keys. Its own Parquet reader reads what is in Parquet segments, which the whole head is, and the
source reads the rest. The frame's rows are fixed when it is made, by one entry of the topic's journal. A row that
deletes its key is left out, and so is one without a key, which a topic may have from before it was compacted.
Keys are compared within a partition: after partitions were added, a key may have a row in two.
"""

from __future__ import annotations

import functools
import json
from operator import and_, or_
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from pyspark_log.options import parse_source
from pyspark_log.options.bounds import options_between
from pyspark_log.reading import batch_read_plan, native_files
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition
from pyspark_log.source.pinned_read import columns_of, union
from pyspark_log.source.row import quoted
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_log.reading.newest_rows import KeyedPartition
    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle

_ROW = "number of the row among those of its key"
_NEWER = "newer "
"""How the columns of keys of the tail begin."""


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
    return latest_with_offsets(spark, path, topic, version=version, options=options)[0]


def latest_with_offsets(
    spark: SparkSession,
    path: str,
    topic: str,
    *,
    version: int | None = None,
    options: Mapping[str, object] | None = None,
) -> tuple[DataFrame, str]:
    """Return the frame of `latest`, and where each partition ended then, as a text for the option startingOffsets.

    A stream that begins there has every row that is newer than those of the frame, and no other.

        state, offsets = latest_with_offsets(spark, "/data/log", "flights")
        changes = spark.readStream.format("pyspark_log").option("startingOffsets", offsets)...

    Raises what `latest` raises.
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
        offsets = json.dumps({topic: {str(each.partition): each.end for each in ranges}})
        columns, read_options = columns_of(now, given, include_headers=parsed.include_headers)

        def frame_of(some: Iterable[Range]) -> DataFrame:
            chosen = [each for each in some if each.rows > 0]
            native, rest = native_files.divide(now, chosen, in_s3=parsed.native_s3, all_files=True)
            if not (native or rest):
                return spark.createDataFrame([], columns)
            frame = union(spark, path, read_options, native, rest, columns)
            if rest:
                # Spark plans a load once, and else when it is used: these rows may have been compacted by then.
                frame._jdf.queryExecution().toRdd().getNumPartitions()  # noqa: SLF001 -- pyspark has no public way to it
            return frame

        heads, tails = [], []
        for each in ranges:
            seam = min(max(handle.partitions[each.partition].compacted_end, each.start), each.end)
            heads.append(msgspec.structs.replace(each, end=seam))
            tails.append(msgspec.structs.replace(each, start=seam))
        keyed = {each.partition: keyed_partition(handle, each.partition) for each in ranges}
        head, tail = frame_of(heads), frame_of(tails)
        return _newest(_without_placeholders(head, keyed), tail, handle).where(_sets_a_key(handle)), offsets


def _newest(head: DataFrame, tail: DataFrame, handle: TopicHandle) -> DataFrame:
    """Return the rows of the head whose keys the tail does not have, and the newest row of each key of the tail."""
    keys = _compared(tail, handle.config.compaction_columns.keys)
    tail = tail.where(functools.reduce(and_, (each.isNotNull() for each in keys)))
    newer = tail.select(*(each.alias(f"{_NEWER}{number}") for number, each in enumerate(keys)))
    same = (key == f.col(f"`{_NEWER}{number}`") for number, key in enumerate(keys))
    older_keys = head.join(newer, functools.reduce(and_, same), "left_anti")
    number = f.row_number().over(Window.partitionBy(*keys).orderBy(f.col("offset").desc()))
    newest = tail.withColumn(_ROW, number).where(f.col(f"`{_ROW}`") == 1)
    columns = [quoted(each) for each in head.columns]
    return older_keys.unionAll(newest.select(*columns))


def _compared(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """Return what two rows of one key have in common. Texts are compared as bytes, whatever their collation is."""
    texts = {each.name for each in frame.schema if isinstance(each.dataType, StringType)}
    keys = (f.col(quoted(each)) for each in names)
    columns = [key.cast("binary") if name in texts else key for name, key in zip(names, keys, strict=True)]
    return [f.col("`partition`"), *columns]


def _without_placeholders(head: DataFrame, keyed: Mapping[int, KeyedPartition]) -> DataFrame:
    """Return the rows of the head without those that stay only because a segment needs one."""
    places = [
        (f.col("`partition`") == number) & f.col("`offset`").isin(list(each.placeholders))
        for number, each in keyed.items()
        if each.placeholders
    ]
    return head.where(~functools.reduce(or_, places)) if places else head


def _sets_a_key(handle: TopicHandle) -> Column:
    """Return the condition of rows that have a key, and do not delete it."""
    config = handle.config
    has_key = functools.reduce(and_, (f.col(quoted(each)).isNotNull() for each in config.compaction_columns.keys))
    if not config.key_column:
        return has_key & f.col("value").isNotNull()
    if not config.delete_when:
        return has_key
    return has_key & ~f.coalesce(f.col(quoted(config.delete_when)), f.lit(False))
