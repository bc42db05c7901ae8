"""The newest rows: the newest row of each key of a compacted topic, as a batch frame.

Spark's own Parquet reader reads what is in Parquet segments, of them the keyed segments, and the source reads the rest.
Which of these rows are not the newest is found where the frame is made (`pyspark_log.reading.newest_rows`): each task
gets one bit for each offset.

The frame's rows are fixed when it is made, by one entry of the topic's journal. A row that deletes its key is left out,
and so is one without a key, which a topic may have from before it was compacted.
Keys are compared within a partition: after partitions were added, a key may have a row in two.
"""

from __future__ import annotations

import functools
import json
from operator import and_
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from pyspark_log.options import parse_source
from pyspark_log.options.bounds import options_between
from pyspark_log.reading import batch_read_plan, native_files, planning
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition, newest_rows_of
from pyspark_log.source.pinned_read import columns_of, union
from pyspark_log.source.row import quoted
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle

    Offsets = NDArray[np.int64]

BITMAP_ROWS_MAX = 112 * 1024 * 1024
"""Of at most so many offsets, 16 MiB, each task gets a bit; otherwise the rows that are left out are joined."""
_BITS = 7


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
        native, rest = native_files.divide(now, ranges, in_s3=parsed.native_s3, all_files=True)
        if not (native or rest):
            return spark.createDataFrame([], columns), offsets
        frame = union(spark, path, read_options, native, rest, columns)
        if rest:
            # Spark plans a load once, and else when it is used: then rows may have been compacted that are read now.
            frame._jdf.queryExecution().toRdd().getNumPartitions()  # noqa: SLF001 -- pyspark has no public way to it
        there = [each for each in ranges if each.rows]
        older = list(_older_rows(handle, there, parsed.client_rack))
        return _without(spark, frame, older).where(_sets_a_key(handle)), offsets


def _older_rows(handle: TopicHandle, ranges: list[Range], rack: str) -> Iterator[tuple[Range, Offsets]]:
    """Yield each range with the offsets, ascending, of its rows of which newer ones of their keys are there."""
    for each in ranges:
        split = planning.split_of(handle, each, rack)
        keyed = keyed_partition(handle, each.partition)
        found = newest_rows_of(handle.log.store_at, split, keyed)
        yield each, found.older(each.start, each.end)


def _without(spark: SparkSession, frame: DataFrame, older: Sequence[tuple[Range, Offsets]]) -> DataFrame:
    """Return the rows of a frame without those at some offsets."""
    if not any(len(offsets) for _, offsets in older):
        return frame
    if sum(each.end - each.start for each, _ in older) <= BITMAP_ROWS_MAX:
        return frame.where(~_is_in(older))
    partitions = np.repeat([each.partition for each, _ in older], [len(offsets) for _, offsets in older])
    places = {"partition": partitions.astype(np.int32), "offset": np.concatenate([offsets for _, offsets in older])}
    live = frame.join(spark.createDataFrame(pa.table(places)), ["partition", "offset"], "left_anti")
    return live.select(*map(quoted, frame.columns))  # a join puts the columns first by which it joins


def _is_in(wanted: Sequence[tuple[Range, Offsets]]) -> Column:
    """Return the condition that a row is at one of these offsets.

    They are a text with a bit for each offset of the ranges, seven in a character. It takes a tenth of a join's time.
    """
    firsts = np.zeros(max(each.partition for each, _ in wanted) + 1, np.int64)
    bits = []
    reached = 0
    for each, offsets in wanted:
        first, last = each.start // _BITS, (each.end - 1) // _BITS
        some = np.zeros((last - first + 1) * _BITS, bool)
        some[offsets - first * _BITS] = True
        bits.append(some.reshape(-1, _BITS))
        firsts[each.partition] = reached - first
        reached += last - first + 1
    text = np.packbits(np.pad(np.concatenate(bits), ((0, 0), (1, 0))), axis=1)
    place = f.expr(f"`offset` div {_BITS}") + f.get(f.lit(firsts), f.col("partition")) + 1
    character = f.ascii(f.substr(f.lit(text.tobytes()), place.cast("int"), f.lit(1)).cast("string"))
    return f.getbit(character, (_BITS - 1 - f.col("offset") % _BITS).cast("int")) == 1


def _sets_a_key(handle: TopicHandle) -> Column:
    """Return the condition of rows that have a key, and do not delete it."""
    config = handle.config
    has_key = functools.reduce(and_, (f.col(quoted(each)).isNotNull() for each in config.compaction_columns.keys))
    if not config.key_column:
        return has_key & f.col("value").isNotNull()
    if not config.delete_when:
        return has_key
    return has_key & ~f.coalesce(f.col(quoted(config.delete_when)), f.lit(False))
