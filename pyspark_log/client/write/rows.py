"""Rows as they are written: the columns of Spark's Kafka sink, in the types that are stored.

    column       type                                     if absent or null
    value        binary or string (required column)       null: a tombstone
    key          binary or string                         null
    headers      array<struct<key: string, value: binary>>    none
    topic        string                                   the option `topic` overrides it; a null is an error
    partition    int                                      by key (see `partitioner`)
    timestamp    timestamp                                the time of the write

Other columns are ignored, as in Spark's Kafka sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage import schema
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMN_TYPES: Mapping[str, tuple[str, ...]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The accepted types of each column, by Spark's names."""


def check_columns(types: Mapping[str, str], topic_option: str | None) -> None:
    """Raise `InvalidRecord` if a frame with these columns cannot be written.

    `types` is the `simpleString` of each column's type. Extra columns are allowed.
    """
    if "value" not in types:
        raise InvalidRecord(
            f"the frame has no column 'value' (it has {', '.join(types) or 'none'}); give the payload this name, "
            'for example with selectExpr("to_json(struct(*)) AS value")'
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


class Rows(msgspec.Struct, frozen=True):
    """Rows ready to be stored, and the topics and partitions that they name.

    `record` has the columns of `schema.RECORD`, and `headers` only if a row has any. `topic` is None if the option
    `topic` is set.
    """

    record: pa.RecordBatch
    topic: pa.Array | None
    partition: pa.Array | None

    def __post_init__(self) -> None:
        """Check that no column is shorter than another: rows beyond its end would be lost."""
        for name, column in (("topic", self.topic), ("partition", self.partition)):
            assert column is None or len(column) == self.record.num_rows, f"the column {name} has {len(column)} rows"


def rows_of(batch: pa.RecordBatch, *, now_us: int, by_topic_column: bool) -> Rows:
    """Return the rows of a batch from Spark. `now_us` is the timestamp of rows without one, in microseconds.

    Raises `InvalidRecord` for a null topic, and for the key of a header that is not UTF-8.
    """
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    arrays = [
        _binary(columns.get("key"), batch.num_rows),
        _binary(columns["value"], batch.num_rows),
        _timestamps(columns.get("timestamp"), batch.num_rows, now_us),
    ]
    headers = columns.get("headers")
    record_schema = schema.RECORD
    if headers is not None and headers.null_count < len(headers):
        record_schema = schema.RECORD_WITH_HEADERS
        arrays.append(_headers(headers))
    topic = columns["topic"] if by_topic_column else None
    if topic is not None and topic.null_count > 0:
        raise InvalidRecord(
            "a row has a null topic; set the option 'topic', or fill or filter the column 'topic' before the write"
        )
    record = pa.RecordBatch.from_arrays(arrays, schema=record_schema)
    return Rows(record, topic, columns.get("partition"))


def record_bytes(record: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each row's key, value and headers together, as int64."""
    total = None
    for name in ("key", "value"):
        lengths = pc.binary_length(record.column(name)).cast(pa.int64()).fill_null(0)
        total = lengths if total is None else pc.add(total, lengths)
    if "headers" in record.schema.names:
        total = pc.add(total, _header_bytes(record.column("headers")))
    return total


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


def _binary(column: pa.Array | None, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, pa.binary())
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: pa.Array) -> pa.Array:
    """Return the headers as they are stored. Spark's strings may hold any bytes, and readers refuse invalid UTF-8."""
    stored = column.cast(schema.HEADERS)
    try:
        stored.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRecord(
            f"the key of a header is not UTF-8 ({error}); encode it before the write, or put the bytes into its value"
        ) from error
    return stored


def _timestamps(column: pa.Array | None, rows: int, now_us: int) -> pa.Array:
    now = pa.scalar(now_us, schema.TIMESTAMP)
    if column is None or pa.types.is_null(column.type):
        return pa.repeat(now, rows)
    column = column.cast(schema.TIMESTAMP)
    return column.fill_null(now) if column.null_count else column
