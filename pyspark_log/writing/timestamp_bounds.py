"""The bounds of timestamps: a topic refuses rows whose times are too far in the future, or in the past.

One row of the year 50,000, which is a time in microseconds that was taken for milliseconds, would be the newest of its
topic for ever. The bounds are those of Kafka, `message.timestamp.after.max.ms` and `message.timestamp.before.max.ms`.
They are checked where rows come in, so that only the wrong row fails, and again when a batch is committed
(`pyspark_log_coordinator.model.timestamps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_coordinator.model import timestamps
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from pyspark_log.writing.destination import Destination


def _wrong(destination: Destination, record: pa.RecordBatch) -> pa.Array | None:
    """Return which rows have times that a topic refuses; None if none has."""
    column = record.column("timestamp").cast(pa.int64())
    lowest, highest = timestamps.bounds(destination.config, destination.now_us() // 1000)
    extremes = pc.min_max(column).as_py()
    if not record.num_rows or (lowest <= extremes["min"] and extremes["max"] <= highest):
        return None
    return pc.or_(pc.less(column, lowest), pc.greater(column, highest))


def reasons(destination: Destination, record: pa.RecordBatch) -> pa.Array | None:
    """Return why a topic refuses rows because of their times, null for those that it takes; None if it takes all."""
    if (wrong := _wrong(destination, record)) is None:
        return None
    times = record.column("timestamp").cast(pa.int64()).filter(wrong).to_pylist()
    now = destination.now_us() // 1000
    texts = pa.array([timestamps.refusal(destination.config, each, now) or None for each in times], pa.string())
    return pc.replace_with_mask(pa.nulls(record.num_rows, pa.string()), wrong, texts)


def check(destination: Destination, timestamp_us: int) -> None:
    """Raise `InvalidRecord` if a topic refuses rows of this time (microseconds)."""
    refusal = timestamps.refusal(destination.config, timestamp_us, destination.now_us() // 1000)
    if refusal:
        raise InvalidRecord(f"topic {destination.name!r}: {refusal}")


def check_all(destination: Destination, record: pa.RecordBatch) -> None:
    """Raise `InvalidRecord` if a topic refuses one of the rows because of its time."""
    if (wrong := _wrong(destination, record)) is not None:
        check(destination, record.column("timestamp").cast(pa.int64()).filter(wrong)[0].as_py())


def within(destination: Destination, record: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that say elsewhere what their times were, with the present time instead of those that are refused."""
    if (wrong := _wrong(destination, record)) is None:
        return record
    place = record.schema.get_field_index("timestamp")
    times = pc.if_else(wrong, pa.scalar(destination.now_us(), schema.TIMESTAMP), record.column(place))
    return record.set_column(place, record.schema.field(place), times)
