"""Backfill: rows of a frame are written into a topic in order, range after range, each exactly once.

    plan      the frame is split into ranges of a column, once (`backfill_plan`)
    range n   its rows, sorted, are a batch write with txnAppId = the backfill's id and txnVersion = n

The journal's last txnVersion tells where a backfill continues after it was killed.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyspark_log.history import backfill_plan, ordering
from pyspark_log.history.backfill_plan import BackfillPlan, BackfillSettings
from pyspark_log.options import as_texts, parse_sink
from pyspark_log.sink import topics
from pyspark_log.spark_conf.installation import source_is_found, use_in_this_thread
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.model.topic_config import UNLIMITED
from pyspark_log_coordinator.retry import retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import InvalidInput, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from pyspark_log.history.ordering import Ordering
    from pyspark_log.options import SinkOptions
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.retry import RetryPolicy

ROWS_PER_RANGE = 1_000_000
_OWN = ("path", "topic", "txnAppId", "txnVersion")
"""Options of a write that are arguments here, or follow from them."""


def backfill(  # noqa: PLR0913 -- each is a fact of its own
    frame: DataFrame,
    path: str,
    topic: str,
    *,
    backfill_id: str,
    checkpoint: str,
    order_by: str | Sequence[str],
    rows_per_range: int = ROWS_PER_RANGE,
    options: Mapping[str, object] | None = None,
) -> int:
    """Write the rows of a frame into a topic in the order of a column, each exactly once; return how many were written.

    The frame is split once into ranges of the column `order_by` (the first of several) with about `rows_per_range` rows
    (default: 1,000,000). The ranges are sorted and written in order; each is one batch of the topic. Within each
    partition the rows are in this order; rows of other writers may be between those of two ranges. Rows without a value
    come first. A range has all rows with equal values, however many.

    If a process is killed, the same call continues where it ended: the ranges that are in the topic are not computed
    again. `checkpoint` is a folder, or an address such as `s3://bucket/folder`, for this backfill only. The frame must
    have the same rows each time: use a fixed version, for example with Delta's versionAsOf. `backfill_id` is the
    txnAppId of the writes. A topic that does not exist is created.

    The frame has the columns of a write: key and value, or those of a typed topic. The timestamp of a row is its column
    `timestamp`, or else the time of the write. `options` are those of a write, such as key.column and acks.

    Raises `InvalidInput` if the arguments do not fit the frame, or if a backfill in this checkpoint or with this id
    began with others; `InvalidRecord` if the topic cannot have the frame's columns; what a batch write raises.
    """
    if rows_per_range < 1:
        raise InvalidInput(f"rows_per_range is {rows_per_range}; expected 1 or more")
    if type(frame.sparkSession).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput("backfill needs a session of this process: through Spark Connect it cannot see the log")
    order = ordering.ordering_of(frame, [order_by] if isinstance(order_by, str) else order_by)
    given = _options(as_texts(options), path, topic, backfill_id)
    parsed = parse_sink({**given, "txnVersion": "0"}, streaming=False)
    store = backfill_plan.store_at(checkpoint, parsed.storage_options)
    plan = retry(real_environment(), parsed.retry, functools.partial(backfill_plan.read, store))
    may_create = topics.creates(parsed, None, streaming=False) if plan is None else topics.Creates.NOTHING
    handle = retry(real_environment(), parsed.retry, functools.partial(_topic, parsed, frame, may_create))
    given["auto.create.topics.enable"] = "false"  # from here on the topic must exist
    names = tuple(each.name for each in order.fields)
    columns = frame.schema.simpleString()
    settings = BackfillSettings(backfill_id, topic, names, rows_per_range, columns, parsed.key_column)
    if plan is None:
        made = _plan(frame, order, settings, handle, checkpoint)
        plan = retry(real_environment(), parsed.retry, functools.partial(backfill_plan.create, store, made))
    plan.check(settings, handle.topic_id, checkpoint)
    use_in_this_thread(frame.sparkSession)
    with source_is_found():
        return _write(frame, plan, order, handle, given, parsed.retry)


def _options(options: Mapping[str, str], path: str, topic: str, backfill_id: str) -> dict[str, str]:
    """Return the options of each write. Raises `InvalidOption`."""
    for name in options:
        if name.lower() in {each.lower() for each in _OWN}:
            raise InvalidOption(name, f"option {name} follows from the arguments of backfill; remove it")
    return {**options, "path": path, "topic": topic, "txnAppId": backfill_id}


def _topic(options: SinkOptions, frame: DataFrame, may_create: topics.Creates) -> TopicHandle:
    """Return the topic, which is created if need be. Raises `InvalidRecord` if it cannot have the frame's columns."""
    log, handle, _ = topics.prepare(options, frame.schema, may_create)
    assert handle is not None
    if options.dead_letter_topic is not None:
        topics.dead_letter_topic(log, options, may_create)
    return handle


def _plan(
    frame: DataFrame, order: Ordering, settings: BackfillSettings, handle: TopicHandle, checkpoint: str
) -> BackfillPlan:
    """Return a new plan. Raises `InvalidInput` if the topic has batches of this id."""
    if settings.backfill_id in handle.state.producers:
        raise InvalidInput(
            f"topic {settings.topic!r} has rows of a backfill (or txnAppId) {settings.backfill_id!r}, and there is "
            f"no backfill in {checkpoint}; give the checkpoint with which it began, or choose another id"
        )
    times = [field.name for field in frame.schema if field.name.lower() == "timestamp"]
    oldest = [f.unix_millis(f.min(name)) for name in times[:1]]
    rows, *found = frame.agg(f.count(f.lit(1)), *oldest).head() or (0,)
    if found and found[0] is not None:
        _warn_of_retention(handle, found[0])
    bounds = ordering.bounds_of(frame, order, rows, settings.rows_per_range)
    return BackfillPlan(settings, handle.topic_id, rows, bounds)


def _warn_of_retention(handle: TopicHandle, oldest_ms: int) -> None:
    kept_ms = handle.config.retention_ms
    if kept_ms != UNLIMITED and oldest_ms < time.time_ns() // 10**6 - kept_ms:
        logs.warning(
            "topic %(topic)r: rows of the backfill are older than retention.ms (%(kept_ms)d) and will expire; to keep "
            "them, alter retention.ms to -1",
            topic=handle.name,
            kept_ms=kept_ms,
        )


def _write(
    frame: DataFrame,
    plan: BackfillPlan,
    order: Ordering,
    handle: TopicHandle,
    options: Mapping[str, str],
    policy: RetryPolicy,
) -> int:
    """Write the ranges that are not in the topic yet, and return the number of rows that this call has written."""
    name, written = plan.settings.backfill_id, 0
    known = retry(real_environment(), policy, handle.refresh).producers.get(name)
    first = 0 if known is None else known.batch_id + 1
    for number in range(first, plan.ranges):
        rows = ordering.rows_between(frame, order, plan.bounds, number)
        rows.write.format("pyspark_log").mode("append").options(**options, txnVersion=str(number)).save()
        done = retry(real_environment(), policy, handle.refresh).producers.get(name)
        count = done.rows if done is not None and done.batch_id == number else 0  # without rows there is no batch
        written += count
        logs.info(
            "backfill %(producer)r of topic %(topic)r: range %(range)d of %(ranges)d is written, with %(rows)d rows",
            producer=name,
            topic=handle.name,
            batch=number,
            range=number + 1,
            ranges=plan.ranges,
            rows=count,
        )
    return written
