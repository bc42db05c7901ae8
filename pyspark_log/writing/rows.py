"""Rows as they are written: the columns of Spark's Kafka sink, in the types that are stored.

    column       type                                     if absent or null
    value        binary or string (required column)       null: a tombstone
    key          binary or string                         null
    headers      array<struct<key: string, value: binary>>    none
    topic        string                                   the option `topic` overrides it; a null is an error
    partition    int                                      by key (see `partitioner`)
    timestamp    timestamp                                the time of the write

Other columns are ignored, as in Spark's Kafka sink. The size of rows, which `max.message.bytes` limits, is that of
whole columns at once, and is not computed at all if no row is near the limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

COLUMN_TYPES: Mapping[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The accepted types of each column, by Spark's names."""

NULL_TOPIC = "a row has a null topic; set the option 'topic', or fill or filter the column 'topic' before the write"
WRONG_TOPIC = "a row names a topic that is not UTF-8; set the option 'topic', or correct the column 'topic'"
NULL_HEADER = "a row has a header that is null, with neither key nor value; filter the array 'headers' before the write"
KEYLESS_HEADER = "a row has a header whose key is null; fill it, or filter the array 'headers' before the write"


def check_columns(types: Mapping[str, str], topic_option: str | None) -> None:
    """Raise `InvalidRecord` if a frame with these columns cannot be written.

    `types` is the `simpleString` of each column's type. Extra columns are allowed.
    """
    if "value" not in types:
        raise InvalidRecord(
            f"the frame has no column 'value' (it has {', '.join(types) or 'none'}); give the payload this name in "
            'lower case, for example with selectExpr("to_json(struct(*)) AS value"), or set schema=columns to create a '
            "topic with the frame's columns"
        )
    if topic_option is None and "topic" not in types:
        raise InvalidRecord("no topic is given: set the option 'topic', or add a column 'topic' to the frame")
    for column, accepted in COLUMN_TYPES.items():
        found = types.get(column)
        if found is None or (column == "topic" and topic_option is not None):
            continue
        if not any(found == kind or found.startswith(f"{kind} collate") for kind in accepted):
            raise InvalidRecord(
                f"column '{column}' has type {found}, expected {' or '.join(accepted)}; cast it before the write"
            )


class TypedSchema(msgspec.Struct, frozen=True):
    """One of a typed topic's schemas: its number, and its stored bytes."""

    schema_id: int
    stored: bytes


class Rows(msgspec.Struct, frozen=True):
    """Rows ready to be stored, and the topics and partitions that they name.

    `record` has the columns of `schema.RECORD`, and `headers` only if a row has any; or those of a typed topic. `topic`
    is None if the option `topic` is set.
    """

    record: pa.RecordBatch
    topic: pa.Array | None
    partition: pa.Array | None
    typed: TypedSchema | None = None
    """The schema of `record` in its typed topic; None for records."""
    keys: pa.Array | None = None
    """The bytes that choose the partitions of rows of a typed topic. Of records it is the column `key`."""

    def __post_init__(self) -> None:
        """Check that no column is shorter than another: rows beyond its end would be lost."""
        for name in ("topic", "partition", "keys"):
            column = getattr(self, name)
            assert column is None or len(column) == self.record.num_rows, f"the column {name} has {len(column)} rows"

    def filter(self, chosen: pa.Array) -> Rows:
        columns = (self.topic, self.partition, self.keys)
        topic, partition, keys = (None if each is None else each.filter(chosen) for each in columns)
        return Rows(self.record.filter(chosen), topic, partition, self.typed, keys)

    def hashed(self) -> pa.Array:
        """Return the bytes that choose the rows' partitions; nulls if there are none."""
        if self.typed is None:
            return self.record.column("key")
        return pa.nulls(self.record.num_rows) if self.keys is None else self.keys


def rows_of(batch: pa.RecordBatch, *, now_us: int, by_topic_column: bool) -> Rows:
    """Return the rows of a batch from Spark. `now_us` is the timestamp of rows without one, in microseconds.

    Raises `InvalidRecord` for a topic that is null or not UTF-8, for a header that is null, and for the key of a header
    that is null or not UTF-8.
    """
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    arrays = [
        binary(columns.get("key"), batch.num_rows),
        binary(columns["value"], batch.num_rows),
        timestamps_of(columns.get("timestamp"), batch.num_rows, now_us),
    ]
    headers = columns.get("headers")
    record_schema = schema.RECORD
    if headers is not None and headers.null_count < len(headers):
        record_schema = schema.RECORD_WITH_HEADERS
        headers = headers.cast(schema.HEADERS)
        _check_headers(headers)
        arrays.append(headers)
    topic = columns["topic"] if by_topic_column else None
    if topic is not None:
        if topic.null_count:
            raise InvalidRecord(NULL_TOPIC)
        if why_not_utf8(topic) is not None:
            raise InvalidRecord(WRONG_TOPIC)
    record = pa.RecordBatch.from_arrays(arrays, schema=record_schema)
    return Rows(record, topic, columns.get("partition"))


def binary(column: pa.Array | None, rows: int) -> pa.Array:
    """Return the bytes of a column of text or bytes; nulls if there is none."""
    if column is None:
        return pa.nulls(rows, pa.binary())
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _check_headers(headers: pa.Array) -> None:
    entries = headers.flatten()  # a null array may have entries, which are left out
    if entries.null_count:
        raise InvalidRecord(NULL_HEADER)
    if entries.field("key").null_count:
        raise InvalidRecord(KEYLESS_HEADER)
    if (why := why_not_utf8(headers)) is not None:
        raise InvalidRecord(
            f"the key of a header is not UTF-8 ({why}); encode it before the write, or put the bytes into its value"
        )


def why_not_utf8(column: pa.Array) -> str | None:
    """Return what is wrong with text that is not UTF-8, as Spark's may be, or None. Readers refuse such text."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def timestamps_of(column: pa.Array | None, rows: int, now_us: int) -> pa.Array:
    """Return the times of rows: those of the column `timestamp`, and `now_us` (microseconds) without one.

    Raises `InvalidRecord` for whole numbers, which may be seconds, milliseconds or others.
    """
    now = pa.scalar(now_us, schema.TIMESTAMP)
    if column is None or pa.types.is_null(column.type):
        return pa.repeat(now, rows)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(kind):
        raise InvalidRecord(
            f"column 'timestamp' is {kind}, a number of an unknown unit; cast it to a timestamp before the write"
        )
    column = column.cast(schema.TIMESTAMP)
    return column.fill_null(now) if column.null_count else column


def record_bytes(record: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of each row: of its key, value and headers, or of its columns in a typed topic."""
    total: NDArray[np.int64] = sum(map(_column_bytes, _sized(record)), np.zeros(record.num_rows, np.int64))
    return total


def largest_above(record: pa.RecordBatch, limit: int) -> int | None:
    """Return the bytes of the largest row if they are more than `limit`, else None."""
    # Most batches as a whole are below the limit, or have no row near it.
    if record.nbytes <= limit or sum(map(_largest_value, _sized(record))) <= limit:
        return None
    size = int(record_bytes(record).max())
    return size if size > limit else None


def _sized(record: pa.RecordBatch) -> list[pa.Array]:
    """Return the columns that count for the size of a row."""
    return [record.column(place) for place, name in enumerate(record.schema.names) if name != "timestamp"]


def _largest_value(column: pa.Array) -> float:
    """Return a cheap upper bound of the bytes of a value; infinity for nested columns."""
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
