"""Backfill: rows of a frame are written into a topic in order, range after range, each exactly once.

    plan      the frame is split into ranges of a column, once
    range n   its rows, sorted, are a batch write with txnAppId = the backfill's id and txnVersion = n

The plan is made once, and never changes: it tells which ranges there are, and the journal's last txnVersion which of
them are written, so where a backfill continues after it was killed.

    <checkpoint>/backfill    envelope b"PLBF", version 1, body: JSON

A range has the rows from its first value up to but not including the next range's. The first range also has the rows
without a value. All comparisons are Spark's own, so ranges of one column never share a row and never leave one out.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from pyspark_log.opening import checkpoint_store
from pyspark_log.options import as_texts, parse_sink
from pyspark_log.sink import topics
from pyspark_log.source.row import quoted
from pyspark_log.spark_conf.installation import source_is_found, use_in_this_thread
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.retry import retry
from pyspark_log_storage import decoding, logs
from pyspark_log_storage.errors import InvalidInput, InvalidOption, ObjectMissing
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stores.addresses import absolute_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    from pyspark_log.options import SinkOptions
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")
ROWS_PER_RANGE = 1_000_000
SAMPLES_PER_RANGE = 100
"""So few rows tell where ranges begin that differ in size by some tens of percent."""
KEY = "backfill"
_MAGIC = b"PLBF"
_VERSION = 1
_ARGUMENTS = ("path", "topic", "txnappid", "txnversion")
"""Options of a write that are arguments here, or follow from them."""
_KINDS = (NumericType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)


class BackfillPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which rows are in a range and where they are written, and the ranges."""

    backfill_id: str
    topic: str
    topic_id: str
    order_by: tuple[str, ...]
    rows_per_range: Annotated[int, msgspec.Meta(ge=1)]
    columns: str
    """Names and types of the frame's columns, as Spark prints them."""
    key_column: str | None = None
    bounds: tuple[str, ...] = ()
    """The first values of all ranges but the first, as text."""

    def check(self, now: BackfillPlan, place: str) -> None:
        """Raise `InvalidInput` unless the plan at `place` is that of a backfill which would begin as `now`."""
        for name in self.__struct_fields__:
            mine, given = getattr(self, name), getattr(now, name)
            if mine != given and name != "bounds":
                raise InvalidInput(
                    f"the backfill in {place} began with {name} {mine!r:.200}, and now it is {given!r:.200}; continue "
                    "with the same frame, topic and settings, or begin another one with an id and a checkpoint of its "
                    "own"
                )


_decode = msgspec.json.Decoder(BackfillPlan).decode


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
    fields = fields_of(frame, [order_by] if isinstance(order_by, str) else order_by)
    more = as_texts(options)
    if taken := [name for name in more if name.lower() in _ARGUMENTS]:
        raise InvalidOption(taken[0], f"option {taken[0]} follows from the arguments of backfill; remove it")
    given = {**more, "path": path, "topic": topic, "txnAppId": backfill_id}
    parsed = parse_sink({**given, "txnVersion": "0"}, streaming=False)

    def patiently(attempt: Callable[[], T]) -> T:
        return retry(real_environment(), parsed.retry, attempt)

    store = checkpoint_store(absolute_url(checkpoint), parsed.storage_options)
    plan = patiently(functools.partial(read_plan, store))
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
        made = msgspec.structs.replace(now, bounds=bounds_of(frame, fields[0], rows_per_range))
        plan = patiently(functools.partial(create_plan, store, made))
    plan.check(now, checkpoint)
    use_in_this_thread(frame.sparkSession)
    written, ranges = 0, len(plan.bounds) + 1
    known = patiently(handle.refresh).producers.get(backfill_id)
    with source_is_found():
        for number in range(0 if known is None else known.batch_id + 1, ranges):
            rows = rows_between(frame, fields, plan.bounds, number)
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


def encode(plan: BackfillPlan) -> bytes:
    """Return the stored bytes."""
    return seal(_MAGIC, _VERSION, msgspec.json.encode(plan))


def decode(data: bytes, name: str) -> BackfillPlan:
    """Return the plan in `data`. Raises `CorruptObject`, `NewerFormat`."""
    return decoding.decode(_decode, unseal(_MAGIC, _VERSION, data, name), name)


def read_plan(store: Store) -> BackfillPlan | None:
    """Return the plan of a checkpoint, or None if it has none. Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
    try:
        return decode(store.read(KEY), f"{store.url}/{KEY}")
    except ObjectMissing:
        return None


def create_plan(store: Store, plan: BackfillPlan) -> BackfillPlan:
    """Store a plan, and return it, or the plan that another process has stored meanwhile. Raises `StoreError`."""
    stored = plan if store.create(KEY, encode(plan)) else read_plan(store)
    assert stored is not None
    return stored


def fields_of(frame: DataFrame, names: Sequence[str]) -> list[StructField]:
    """Return the columns by which rows are ordered. The first one is cut into ranges. Raises `InvalidInput`."""
    if not names:
        raise InvalidInput("order_by is empty; name the column whose order the topic keeps")
    known = {field.name.lower(): field for field in frame.schema}
    for name in names:
        if name.lower() not in known:
            raise InvalidInput(f"order_by is {name!r}, and the frame has {', '.join(frame.columns)}; choose of these")
    fields = [known[name.lower()] for name in names]
    if not isinstance(fields[0].dataType, _KINDS):
        raise InvalidInput(
            f"order_by begins with {names[0]!r} of type {fields[0].dataType.simpleString()}; choose a column of "
            "numbers, text, binary, dates or timestamps"
        )
    return fields


def bounds_of(frame: DataFrame, field: StructField, rows_per_range: int) -> tuple[str, ...]:
    """Return the first values of the second and each later range, as text. Counts the rows, and takes a sample."""
    rows = frame.count()
    ranges = math.ceil(rows / rows_per_range)
    if ranges <= 1:
        return ()
    column = f.col(quoted(field.name))
    fraction = min(1.0, SAMPLES_PER_RANGE * ranges / rows)
    sample = frame.select(column).where(column.isNotNull()).sample(fraction=fraction, seed=0)
    values = [row[0] for row in sample.sort(column).select(_text(column, field.dataType)).collect()]
    starts = (values[len(values) * number // ranges] for number in range(1, ranges) if values)
    return tuple(dict.fromkeys(starts))


def rows_between(frame: DataFrame, fields: Sequence[StructField], bounds: Sequence[str], number: int) -> DataFrame:
    """Return the rows of a range in their order: those without a value first, as Spark does. Computes nothing."""
    column, kind = f.col(quoted(fields[0].name)), fields[0].dataType
    low, high = list(itertools.pairwise([None, *bounds, None]))[number]
    if low is not None:
        frame = frame.where(column >= _value(low, kind))
    if high is not None:
        below = column < _value(high, kind)
        frame = frame.where(below | column.isNull() if low is None else below)
    return frame.sort(*(f.col(quoted(each.name)).asc_nulls_first() for each in fields))


def _text(column: Column, kind: DataType) -> Column:
    """Return values as text, from which `_value` makes them again."""
    if isinstance(kind, TimestampType):
        return f.unix_micros(column).cast("string")  # text would depend on the session's time zone
    return f.hex(column) if isinstance(kind, BinaryType) else column.cast("string")


def _value(text: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return f.timestamp_micros(f.lit(text).cast("bigint"))
    return f.unhex(f.lit(text)) if isinstance(kind, BinaryType) else f.lit(text).cast(kind)
