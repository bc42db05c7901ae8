"""The size of rows, which `max.message.bytes` limits: of whole columns at once, and not at all if no row is near it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_types import children

if TYPE_CHECKING:
    from numpy.typing import NDArray


def record_bytes(record: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each row's key, value and headers, or of its columns in a typed topic, as int64."""
    if schema.is_typed(record.schema):
        return pa.array(sum(_column_bytes(column) for column in record.columns[:-1]))
    total = None
    for name in ("key", "value"):
        lengths = pc.binary_length(record.column(name)).cast(pa.int64()).fill_null(0)
        total = lengths if total is None else pc.add(total, lengths)
    if "headers" in record.schema.names:
        total = pc.add(total, _header_bytes(record.column("headers")))
    return total


def largest_above(record: pa.RecordBatch, limit: int) -> int | None:
    """Return the bytes of the largest row if they are more than `limit`, else None."""
    # Most batches as a whole are below the limit, or have no row near it.
    if record.nbytes <= limit or _largest(record) <= limit:
        return None
    size: int = pc.max(record_bytes(record)).as_py()
    return size if size > limit else None


def _largest(record: pa.RecordBatch) -> float:
    """Return a cheap upper bound of the bytes of a row; infinity for rows with headers or nested columns."""
    if schema.is_typed(record.schema):
        return sum(_largest_value(column) for column in record.columns[:-1])
    if "headers" in record.schema.names:
        return math.inf
    return sum(pc.max(pc.binary_length(record.column(name))).as_py() or 0 for name in ("key", "value"))


def _header_bytes(headers: pa.Array) -> pa.Array:
    """Return the bytes of each row's headers, as the growth of their running total."""
    entries = headers.flatten()
    sizes = pc.add(
        pc.binary_length(entries.field("key")).cast(pa.int64()).fill_null(0),
        pc.binary_length(entries.field("value")).cast(pa.int64()).fill_null(0),
    )
    running = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    ends = pc.cumulative_sum(pc.list_value_length(headers).cast(pa.int64()).fill_null(0))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]])
    return pc.subtract(running.take(ends), running.take(starts))


def _largest_value(column: pa.Array) -> float:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return math.inf if any(children(column.type)) else _width(column.type)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of fixed length."""
    return -(-int(kind.bit_width) // 8)


def _column_bytes(column: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value. Of nested nulls those below them may count."""
    kind = column.type
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.int64)
        for place in range(kind.num_fields):
            total += _column_bytes(column.field(place))
        return total
    if pa.types.is_map(kind):
        return _between(column, _column_bytes(column.keys) + _column_bytes(column.items))
    if pa.types.is_list(kind):
        return _between(column, _column_bytes(column.values))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    return np.full(len(column), _width(kind), np.int64)


def _between(column: pa.Array, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the sizes of each list's values."""
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    total: NDArray[np.int64] = running[offsets[1:]] - running[offsets[:-1]]
    return total
