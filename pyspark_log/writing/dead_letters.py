"""Dead letters: rows that cannot be written, as rows of another topic, with the reason in their headers.

A dead letter has the row's key, value, headers and timestamp; the present time if its topic refuses that one. Four
headers follow, which are those of Kafka Connect's dead letter queue (KIP-298) with another prefix:

    __dlq.errors.topic                     the topic of the row; null if the row names none
    __dlq.errors.partition                 the partition that the row names, as text; null if it names none
    __dlq.errors.exception.class.name      the error without a dead letter topic, such as InvalidRecord
    __dlq.errors.exception.message         what is wrong with the row, and what to do

That of a typed topic has no columns: its value is the row as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing import timestamp_bounds
from pyspark_log.writing.destination import lacking_a_key
from pyspark_log.writing.partitioner import are_partitions, has_only
from pyspark_log.writing.row_bytes import bytes_if_above
from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log.writing.destination import Destination
    from pyspark_log.writing.rows import Rows

PREFIX = "__dlq.errors."
HEADERS = tuple(PREFIX + name for name in ("topic", "partition", "exception.class.name", "exception.message"))
LETTERS_ROWS = 10_000
"""How many dead letters are made at once: their headers may take more memory than the rows."""


class Refused(msgspec.Struct, frozen=True):
    """Rows that cannot be written, and why. A text is that of all rows."""

    record: pa.RecordBatch
    topic: pa.StringArray | str
    """The topic of each row, null if it names none."""
    partition: pa.Array | None
    """The explicit partitions, if rows name any."""
    error: str
    reason: pa.StringArray | str

    def letters(self) -> Iterator[pa.RecordBatch]:
        """Yield the dead letters, in order, some rows at a time."""
        for first in range(0, self.record.num_rows, LETTERS_ROWS):
            record = self.record.slice(first, LETTERS_ROWS)
            columns = (self.topic, self.partition, self.error, self.reason)
            yield _with_headers(record, [_texts(column, first, record.num_rows) for column in columns])


def _texts(column: pa.Array | str | None, first: int, rows: int) -> pa.BinaryArray:
    """Return some rows of a column as the values of headers. None: nulls; a text: in each row."""
    if column is None:
        return pa.nulls(rows, pa.binary())
    part = pa.repeat(column, rows) if isinstance(column, str) else column.slice(first, rows)
    return part.cast(pa.string()).cast(pa.binary())


def reasons_against(destination: Destination, record: pa.RecordBatch, explicit: pa.Array | None) -> pa.Array | None:
    """Return why each row cannot be written to a topic, null for a row that can; None if all can."""
    partitions, message_bytes_max = destination.partitions, destination.max_message_bytes
    reasons = None
    if (are_keyless := lacking_a_key(destination, record)) is not None:
        reasons = _where(are_keyless, pa.scalar(destination.keyless))
    sizes = bytes_if_above(record, message_bytes_max)
    if sizes is not None:
        end = f" bytes is larger than max.message.bytes ({message_bytes_max}); raise it for the topic and for the write"
        text = _around(sizes, "a row of ", f"{end}, or write smaller rows")
        large = _where(pc.greater(sizes, message_bytes_max), text)
        reasons = large if reasons is None else pc.coalesce(reasons, large)
    if explicit is not None and not are_partitions(explicit, partitions):
        text = _around(explicit, "a row names partition ", has_only(partitions))
        outside = _where(pc.or_(pc.less(explicit, 0), pc.greater_equal(explicit, partitions)), text)
        reasons = outside if reasons is None else pc.coalesce(reasons, outside)
    if (wrong := timestamp_bounds.reasons(destination, record)) is not None:
        reasons = wrong if reasons is None else pc.coalesce(reasons, wrong)
    return reasons


def _around(numbers: pa.Array, before: str, after: str) -> pa.Array:
    """Return each number as text between two others."""
    return pc.binary_join_element_wise(before, numbers.cast(pa.string()), after, "")


def _where(chosen: pa.Array, text: pa.Array) -> pa.Array:
    """Return the text in the rows for which `chosen` is true, else null."""
    return pc.if_else(chosen, text, pa.scalar(None, pa.string()))


def _with_headers(record: pa.RecordBatch, values: Sequence[pa.BinaryArray]) -> pa.RecordBatch:
    """Return the rows with `HEADERS` and their values behind their own headers."""
    rows, added = record.num_rows, len(HEADERS)
    has_headers = "headers" in record.schema.names
    own = record.column("headers") if has_headers else pa.nulls(rows, schema.HEADERS)
    lengths = np.asarray(pc.list_value_length(own).fill_null(0)).astype(np.int64)
    ends = np.cumsum(lengths + added)
    # The place of each added header among the headers of all rows; the rows' own are in the other places.
    places = (ends[:, None] - added + np.arange(added)).ravel()
    entry = schema.HEADERS.value_type
    by_header = pa.concat_arrays(values)
    new = pa.StructArray.from_arrays(
        [
            pa.array(HEADERS).take(pa.array(np.tile(np.arange(added), rows))),
            by_header.take(pa.array(np.arange(added * rows).reshape(added, rows).T.ravel())),
        ],
        fields=[entry.field(index) for index in range(entry.num_fields)],
    )
    old = own.flatten()
    order = np.empty(len(old) + len(new), np.int64)
    is_new = np.zeros(len(order), bool)
    is_new[places] = True
    order[is_new] = np.arange(len(old), len(order))
    order[~is_new] = np.arange(len(old))
    headers = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], ends]).astype(np.int32)),
        pa.concat_arrays([old, new]).take(pa.array(order)),
        type=schema.HEADERS,
    )
    columns = [record.column(name) for name in schema.RECORD.names]
    return pa.RecordBatch.from_arrays([*columns, headers], schema=schema.RECORD_WITH_HEADERS)


def as_records(rows: Rows) -> pa.RecordBatch:
    """Return rows as records: the columns of a typed topic's rows become JSON."""
    if rows.typed is None:
        return rows.record
    return json_records(rows.record.select(rows.record.schema.names[:-1]), rows.keys, rows.record.column("timestamp"))


def json_records(columns: pa.RecordBatch, keys: pa.Array | None, timestamps: pa.Array) -> pa.RecordBatch:
    """Return rows with any columns as records with these keys and times."""
    from pyspark_log.writing import typed_json

    values = pa.array([typed_json.ENCODER.encode(row) for row in typed_json.objects(columns)], pa.binary())
    keys = pa.nulls(len(values), pa.binary()) if keys is None else keys.cast(pa.binary())
    return pa.RecordBatch.from_arrays([keys, values, timestamps.cast(schema.TIMESTAMP)], schema=schema.RECORD)
