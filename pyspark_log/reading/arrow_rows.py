"""The columns of rows that are read, as Arrow batches. They need no Spark.

    records   key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
              timestampType int (always 0, CreateTime), headers array<struct<key: string, value: binary>>, null for a
              row without headers or with an empty array
    typed     topic string, partition int, offset bigint, timestamp timestamp, then the topic's columns

Only the columns that were asked for are decoded. Rows of other schemas of a typed topic become rows of the one that was
asked for: what they lack is null, and their numbers become wider.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyspark_log.reading.fetch import schemas_of
from pyspark_log_storage.columns import column_types, schema
from pyspark_log_storage.columns.column_conversion import column_of
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_log.reading.fetch import Split
    from pyspark_log_storage.columns.keys import Offsets

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": schema.TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": schema.HEADERS,
}
"""The columns of records."""
OWN = column_types.RESERVED
"""The first columns of a typed topic's rows."""
CREATE_TIME = 0
_STORED = set(schema.RECORD.names)
_KEPT_ROWS = 1024


@functools.lru_cache(maxsize=8)
def record_schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name]) for name in columns])


def typed_schema(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*(pa.field(name, COLUMNS[name]) for name in OWN), *columns])


def decoded_columns(wanted: pa.Schema, split: Split) -> tuple[str, ...] | None:
    """Return the columns of chunks to decode, always one that each has; None for all.

    Raises `InvalidInput` if a typed topic lacks a column.
    """
    newest, names = schemas_of(split)[-1], set(wanted.names) - {"topic", "partition", "offset"}
    if not schema.is_typed(newest):
        return None if names >= _STORED else tuple(sorted(names & {*_STORED, "headers"} | {"timestamp"}))
    if lacking := [name for name in wanted.names if name in names.difference(newest.names)]:
        known = ", ".join((*OWN, *newest.names[:-1]))
        raise InvalidInput(f"topic {split.topic!r}: unknown column {lacking[0]!r}; the columns are {known}")
    return tuple(sorted(names | {"timestamp"}))


def shaped(stored: pa.RecordBatch, wanted: pa.Schema, topic: str, partition: int, offset: Offsets) -> pa.RecordBatch:
    """Return stored rows with the columns `wanted`; `offset` are those of the rows, see `fetch`.

    Raises `InvalidInput` if a typed topic has evolved, and `wanted` cannot hold these rows.
    """
    is_typed, count, arrays = schema.is_typed(stored.schema), stored.num_rows, []
    try:
        for field in wanted:
            match field.name:
                case "offset":
                    arrays.append(_array(pa.int64(), count, np.ascontiguousarray(offset)))
                case "topic":
                    arrays.append(_constant(topic, count))
                case "partition":
                    arrays.append(_constant(partition, count))
                case "timestampType" if not is_typed:
                    arrays.append(_constant(CREATE_TIME, count))
                case "headers" if not is_typed:
                    arrays.append(_null_where_empty(column_of(stored, field)))
                case _:
                    arrays.append(column_of(stored, field))
    except ValueError as error:
        raise InvalidInput(
            f"topic {topic!r}, partition {partition}, from offset {offset[0]}: {error}. The topic's columns "
            "have changed since load(); load again, with a .schema() that fits or without one, and start it again"
        ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Replace empty lists by null, as Spark's Kafka source does."""
    validity, offsets = headers.buffers()[:2]
    first, count = headers.offset, len(headers)
    if count in {0, headers.null_count}:
        return headers
    bounds = np.frombuffer(offsets, np.int32)[first : first + count + 1]
    has_some = bounds[1:] > bounds[:-1]
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=first + count, bitorder="little")
        has_some &= bits[first:].astype(bool)
    if np.count_nonzero(has_some) + headers.null_count == count:
        return headers
    buffers = [pa.py_buffer(np.packbits(has_some, bitorder="little")), pa.py_buffer(bounds)]
    return pa.Array.from_buffers(headers.type, count, buffers, children=[headers.values])


def _constant(value: int | str, count: int) -> pa.Array:
    """Return `value` `count` times, as a slice of a cached column: most batches have similar sizes."""
    rows = max(_KEPT_ROWS, 1 << (count - 1).bit_length())
    return _repeated(value, rows).slice(0, count)


@functools.lru_cache(maxsize=8)
def _repeated(value: int | str, rows: int) -> pa.Array:
    if isinstance(value, str):
        data = value.encode()
        one = _array(pa.string(), 1, np.array([0, len(data)], np.int32), data)
    else:
        one = _array(pa.int32(), 1, np.array([value], np.int32))
    return pa.repeat(one[0], rows)


def _array(kind: pa.DataType, rows: int, *buffers: bytes | NDArray[Any]) -> pa.Array:
    """Return an array without nulls, from its buffers.

    `pa.array` and `pa.scalar` would import pandas, if it is installed, to check for its types. That takes a quarter of
    a second, and no other step of a reading task does it.
    """
    return pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, buffers)])
