"""Backfill: rows of a frame are written into a topic in order, range after range, each exactly once.

    plan      the frame is split into ranges of a column, once (`backfill_plan`)
    range n   its rows, sorted, are a batch write with txnAppId = the backfill's id and txnVersion = n

The journal's last txnVersion tells where a backfill continues after it was killed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log.history import backfill_plan, ordering
from pyspark_log.history.backfill_plan import BackfillPlan
from pyspark_log.opening import checkpoint_store
from pyspark_log.options import as_texts, parse_sink
from pyspark_log.sink import topics
from pyspark_log.spark_conf.installation import source_is_found, use_in_this_thread
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.retry import retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import InvalidInput, InvalidOption
from pyspark_log_storage.stores.addresses import absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pyspark_log.options import SinkOptions
    from pyspark_log_coordinator.log.log import TopicHandle

T = TypeVar("T")
ROWS_PER_RANGE = 1_000_000
_OWN = ("path", "topic", "txnappid", "txnversion")
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
    fields = ordering.fields_of(frame, [order_by] if isinstance(order_by, str) else order_by)
    more = as_texts(options)
    if taken := [name for name in more if name.lower() in _OWN]:
        raise InvalidOption(taken[0], f"option {taken[0]} follows from the arguments of backfill; remove it")
    given = {**more, "path": path, "topic": topic, "txnAppId": backfill_id}
    parsed = parse_sink({**given, "txnVersion": "0"}, streaming=False)

    def patiently(attempt: Callable[[], T]) -> T:
        return retry(real_environment(), parsed.retry, attempt)

    store = checkpoint_store(absolute_url(checkpoint), parsed.storage_options)
    plan = patiently(functools.partial(backfill_plan.read, store))
    handle = patiently(functools.partial(_topic, parsed, frame, is_new=plan is None))
    given["auto.create.topics.enable"] = "false"  # from here on the topic must exist
    names, columns = tuple(each.name for each in fields), frame.schema.simpleString()
    now = BackfillPlan(backfill_id, topic, handle.topic_id, names, rows_per_range, columns, parsed.key_column)
    if plan is None:
        if backfill_id in handle.state.producers:
            raise InvalidInput(
                f"topic {topic!r} has rows of a backfill (or txnAppId) {backfill_id!r}, and there is no backfill in "
                f"{checkpoint}; give the checkpoint with which it began, or choose another id"
            )
        made = msgspec.structs.replace(now, bounds=ordering.bounds_of(frame, fields[0], rows_per_range))
        plan = patiently(functools.partial(backfill_plan.create, store, made))
    plan.check(now, checkpoint)
    use_in_this_thread(frame.sparkSession)
    written, ranges = 0, len(plan.bounds) + 1
    known = patiently(handle.refresh).producers.get(backfill_id)
    with source_is_found():
        for number in range(0 if known is None else known.batch_id + 1, ranges):
            rows = ordering.rows_between(frame, fields, plan.bounds, number)
            rows.write.format("pyspark_log").mode("append").options(**given, txnVersion=str(number)).save()
            done = patiently(handle.refresh).producers.get(backfill_id)
            count = done.rows if done is not None and done.batch_id == number else 0  # without rows there is no batch
            written += count
            logs.info(
                "backfill %(producer)r of topic %(topic)r: range %(range)d of %(ranges)d is written (%(rows)d rows)",
                producer=backfill_id,
                topic=topic,
                batch=number,
                range=number + 1,
                ranges=ranges,
                rows=count,
            )
    return written


def _topic(options: SinkOptions, frame: DataFrame, *, is_new: bool) -> TopicHandle:
    """Return the topic, created for a new plan. Raises `InvalidRecord` if it cannot have the frame's columns."""
    may_create = topics.creates(options, None, streaming=False) if is_new else topics.Creates.NOTHING
    log, handle, _ = topics.prepare(options, frame.schema, may_create)
    assert handle is not None
    if options.dead_letter_topic is not None:
        topics.dead_letter_topic(log, options, may_create)
    return handle
