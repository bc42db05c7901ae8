"""Archive: the rows of a topic are copied into a Delta table, each exactly once, and counted there.

    1. The rows after those that the table has are appended as one Delta batch (txnAppId, txnVersion). 2. They are
    counted in the table: each offset must be there once. Only then do its properties name them. 3. If the caller wants
    it, the log's older rows are deleted, as far as they were counted.

The table also names the leader epochs of before an append: by these the next look at the log notices that it has lost
rows which the table has, and that others may have their offsets.

A process that dies after 1 leaves rows that the next call counts. One that was suspended, and continues after another
one has appended, appends nothing: Delta knows its txnVersion.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark.sql import functions as f

from pyspark_log.history.archive_table import ArchiveState, ArchiveTable
from pyspark_log.opening import open_log
from pyspark_log.options import as_texts, parse_source
from pyspark_log.options.bounds import options_between
from pyspark_log.reading import batch_read_plan
from pyspark_log.source.pinned_read import pinned
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_log.history.archive_table import Extent
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic

T = TypeVar("T")


class _Counted(NamedTuple):
    """Rows of a partition from an offset on."""

    rows: int
    offsets: int
    """The number of different ones."""
    first: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Return whether each offset between the first and the end is there once."""
        return self.rows == self.offsets == self.end - self.first


def archive(  # noqa: PLR0913 -- each is a fact of its own
    spark: SparkSession,
    path: str,
    topic: str,
    table: str,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    local_retention: timedelta | None = None,
    options: Mapping[str, object] | None = None,
) -> dict[int, tuple[int, int]]:
    """Copy the rows that a topic has now and its table lacks; return the offsets of each partition that the table has.

    `table` is the path or the name of a Delta table, which is created if it does not exist. Its columns are those of
    `read`, and `columns`: SQL expressions by name, such as `{"day": "CAST(timestamp AS DATE)"}`. `partition_by` and
    `cluster_by` choose its layout when it is created; give one of them or none. Each call continues where the last one
    ended, and each row is in the table once, even if calls are killed or run at the same time.

    The rows are counted in the table before their offsets are returned. With `local_retention` (Kafka's
    local.retention.ms) older rows are then deleted from the log, as far as the table has them; `timedelta(0)` deletes
    all of these. Without it nothing is deleted. Set retention.ms=-1, so that nothing expires before it is archived.
    `options` are as in `read`.

    Raises `InvalidInput` if the table is not an archive of this topic, if rows are missing or duplicated there, or if
    it was restored to a version from before rows were archived: then nothing is deleted. Raises `DataLoss` if rows
    expired before they were archived, or if the log has lost rows that the table has, and what a batch read raises.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput("archive needs a session of this process: through Spark Connect it cannot see the log")
    if partition_by and cluster_by:
        raise InvalidInput("partition_by and cluster_by are both given; a Delta table has one of them")
    if local_retention is not None and local_retention.total_seconds() < 0:
        raise InvalidInput(f"local_retention is {local_retention}; expected 0 or more")
    given = {**as_texts(options), "path": path, "subscribe": topic}
    handle = _patiently(functools.partial(_topic, given))

    def rows(starts: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
        chosen = options_between(topic, starts, ends, None, None, options)
        with source_is_found():
            frame = _patiently(functools.partial(pinned, spark, path, chosen))
        if clash := sorted(set(columns or ()) & set(frame.columns)):
            raise InvalidInput(f"columns has {clash[0]!r}, which is a column of topic {topic!r}; choose another name")
        return frame.select("*", *(f.expr(sql).alias(name) for name, sql in (columns or {}).items()))

    into = ArchiveTable(spark, table)
    state = into.state()
    _refresh(handle)  # after the look at the table: the log has all that others have archived meanwhile
    partitions = dict(enumerate(handle.partitions))
    begins = {p: (each.log_start,) * 2 for p, each in partitions.items()}
    # Recorded before the rows are appended: so what the log loses until they are counted is noticed.
    epochs = {p: each.leader_epoch for p, each in partitions.items()}
    if state is None:
        at_end = {p: each.high_watermark for p, each in partitions.items()}
        state = ArchiveState(topic, handle.topic_id, begins, epochs)
        into.create(rows(at_end, at_end), state, partition_by, cluster_by)
    else:
        check_topic(state, handle, table)
        known = _caught_up(handle, into, state)  # with what a process that died has appended
        state = known._replace(offsets={**begins, **known.offsets}, epochs=_newest(known.epochs, epochs))
        if state != known:
            into.record(state)
    starts = {p: state.offsets[p][1] for p, each in partitions.items() if state.offsets[p][1] < each.high_watermark}
    for p, start in starts.items():
        if start < partitions[p].log_start:
            raise DataLoss(
                f"topic {topic!r}, partition {p}: offsets {start} to {partitions[p].log_start - 1} expired before they "
                f"were archived in {table}; archive the others into another table"
            )
    if starts:
        into.append(rows(starts, {p: partitions[p].high_watermark for p in starts}), state)
        before, state = state, _caught_up(handle, into, state)
        if state.offsets == before.offsets:
            raise InvalidInput(
                f"table {table} takes no more rows of topic {topic!r}: it was restored to a version from before rows "
                "were archived, and Delta leaves out what was appended once (txnVersion); archive into another table"
            )
    if local_retention is not None:
        _delete(given, handle, into, state, local_retention)
    return dict(state.offsets)


def check_topic(state: ArchiveState, handle: TopicHandle, table: str) -> None:
    """Raise `InvalidInput` unless the table is an archive of the topic, `DataLoss` if the topic has lost rows of it."""
    if state.topic_id != handle.topic_id:
        which = f"topic {state.topic!r}" if state.topic != handle.name else "a former topic of this name"
        raise InvalidInput(
            f"table {table} is the archive of {which} (id {state.topic_id}), not of topic {handle.name!r} (id "
            f"{handle.topic_id}); name another table"
        )
    for p, (_, end) in state.offsets.items():
        kept = handle.partition(p).end_of_epoch(state.epochs[p])
        if kept < end:
            raise DataLoss(
                f"topic {handle.name!r}, partition {p}: table {table} has rows of offsets {kept} to {end - 1} that the "
                "log has lost, by an unclean election or a rebuild, and other rows may be there now; name another table"
            )


def _patiently(attempt: Callable[[], T]) -> T:
    return retry(real_environment(), RetryPolicy(), attempt)


def _refresh(handle: TopicHandle) -> Topic:
    return _patiently(handle.refresh)


def _topic(given: Mapping[str, str]) -> TopicHandle:
    parsed = parse_source(given, streaming=False)
    if not parsed.fail_on_data_loss:
        raise InvalidInput("options has failOnDataLoss=false, but an archive has all offsets of a partition; remove it")
    handle = open_log(parsed.path, parsed.storage_options).topic(given["subscribe"])
    if handle.config.is_compacted or any(each.keyed_segments for each in handle.partitions):
        raise InvalidInput(
            f"topic {handle.name!r} is compacted, and an archive has every row; stream it into a table instead, or "
            "write to another topic too, with cleanup.policy=delete, and archive that one"
        )
    return handle


def _newest(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    """Return the newest leader epoch of each partition."""
    return {p: max(found[p] for found in (some, others) if p in found) for p in {**some, **others}}


def _caught_up(handle: TopicHandle, into: ArchiveTable, state: ArchiveState) -> ArchiveState:
    """Return the state with the rows that the table has after the known ones, which are counted, and recorded.

    Raises `DataLoss` if the log has lost some of them.
    """
    ends = _counted_ends(into, state, {p: end for p, (_, end) in state.offsets.items()})
    offsets = {p: (first, ends[p]) for p, (first, _) in state.offsets.items()}
    if offsets == state.offsets:
        return state
    found = into.state()  # another process may have appended them, in a later leader epoch
    done = state._replace(offsets=offsets, epochs=_newest(state.epochs, {} if found is None else found.epochs))
    _refresh(handle)
    check_topic(done, handle, into.name)
    into.record(done)
    return done


def _counted_ends(into: ArchiveTable, state: ArchiveState, since: Mapping[int, int]) -> dict[int, int]:
    """Return where the rows of each partition end in the table, of which those from `since` on are counted.

    Raises `InvalidInput` if a row from there up to the end, or up to the known end, is missing or double.
    """
    found = _count(into.rows(into.version()), since)
    ends = {}
    for p, start in since.items():
        end, counted = state.offsets[p][1], found.get(p)
        if counted is None and start >= end:
            ends[p] = end
        elif counted is None or not counted.is_whole or counted.first != start or counted.end < end:
            raise InvalidInput(_altered(into.name, state.topic, p, (start, end), counted))
        else:
            ends[p] = counted.end
    return ends


def _count(rows: DataFrame, starts: Mapping[int, int]) -> dict[int, _Counted]:
    """Return what is in a table of each partition from an offset on; partitions without such rows are left out.

    The offsets of 32,768 rows are one bitmap, so a count exchanges four KiB for these, and is exact.
    """
    if not starts:
        return {}
    chosen = rows.select("partition", "offset").where(f.col("offset") >= min(starts.values()))
    start = f.create_map(*(f.lit(each) for pair in starts.items() for each in pair))[f.col("partition")]
    chosen = chosen.where(f.col("offset") >= start.cast("bigint"))
    bitmaps = chosen.groupBy("partition", f.bitmap_bucket_number("offset").alias("bucket")).agg(
        f.count(f.lit(1)).alias("rows"),
        f.bitmap_count(f.bitmap_construct_agg(f.bitmap_bit_position("offset"))).alias("offsets"),
        f.min("offset").alias("first"),
        (f.max("offset") + 1).alias("end"),
    )
    totals = bitmaps.groupBy("partition").agg(f.sum("rows"), f.sum("offsets"), f.min("first"), f.max("end"))
    return {partition: _Counted(*numbers) for partition, *numbers in totals.collect()}


def _altered(table: str, topic: str, partition: int, wanted: Extent, counted: _Counted | None) -> str:
    has = "none" if counted is None else f"{counted.rows} rows of {counted.offsets} offsets, {counted.first} to "
    has += "" if counted is None else f"{counted.end - 1}"
    return (
        f"table {table}: of topic {topic!r}, partition {partition}, from offset {wanted[0]} on (archived up to "
        f"{wanted[1]}) it has {has}: it was altered. Nothing was deleted from the log; restore the table, or archive "
        "into another one"
    )


def _delete(
    given: Mapping[str, str],
    handle: TopicHandle,
    into: ArchiveTable,
    state: ArchiveState,
    local_retention: timedelta,
) -> None:
    """Delete the rows of the log that are archived and old enough, after all of these were counted in the table."""
    low = {p: each.log_start for p, each in enumerate(_refresh(handle).partitions) if p in state.offsets}
    check_topic(state, handle, into.name)
    before = {p: state.offsets[p][1] for p in low}
    if local_retention:
        oldest_ms = time.time_ns() // 10**6 - int(local_retention.total_seconds() * 1000)
        times = {"startingTimestamp": str(max(0, oldest_ms)), "startingOffsetsByTimestampStrategy": "latest"}
        options = parse_source({**given, **times}, streaming=False)
        planned = _patiently(functools.partial(batch_read_plan.ranges_of, options))
        young = {each.partition: each.start for each in planned[1]}
        before = {p: min(end, young[p]) for p, end in before.items()}
    before = {p: end for p, end in before.items() if low[p] < end}
    _counted_ends(into, state, {p: low[p] for p in before})
    for p, end in before.items():
        _patiently(functools.partial(handle.delete_records, p, end))
        logs.info(
            "topic %(topic)r, partition %(partition)d: rows before offset %(offset)d are in table %(table)s, and were "
            "deleted from the log",
            topic=handle.name,
            partition=p,
            offset=end,
            table=into.name,
        )
