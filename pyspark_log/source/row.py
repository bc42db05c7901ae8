"""The rows of the source: the columns of Spark's Kafka source.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int (always 0, CreateTime), and with includeHeaders
    headers array<struct<key: string, value: binary>>, null for a row without headers or with an empty array

A user's `.schema()` selects columns, in any order.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_log_storage.columns import schema as stored
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), stored.TIMESTAMP),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (_HEADERS, stored.HEADERS),
}
"""Each column's type in Spark and in Arrow."""

CREATE_TIME = 0
_KEPT_ROWS = 1024


def row_schema(*, include_headers: bool) -> StructType:
    """Return the schema. Every column is nullable, as in Spark's Kafka source."""
    names = [name for name in COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, COLUMNS[name][0]) for name in names])


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """Return the selected columns. Raises `InvalidInput` for an unknown column or another type."""
    for field in schema:
        if field.name not in COLUMNS:
            raise InvalidInput(f"unknown column {field.name!r}; the columns are {', '.join(COLUMNS)}")
        expected = COLUMNS[field.name][0]
        if field.dataType != expected:
            raise InvalidInput(
                f"column '{field.name}' has type {expected.simpleString()}, not {field.dataType.simpleString()}; "
                "remove .schema(), and cast after the read"
            )
        if not field.nullable:
            raise InvalidInput(f"column '{field.name}' is nullable; declare it as nullable, or remove .schema()")
    return tuple(schema.fieldNames())


def rows(
    record: pa.RecordBatch, columns: Sequence[str], arrow_schema: pa.Schema, topic: str, partition: int, offset: int
) -> pa.RecordBatch:
    """Return stored rows with the selected columns; `offset` is the first row's."""
    count = record.num_rows
    arrays = []
    for name in columns:
        if name in record.schema.names:
            column = record.column(name)
            arrays.append(_null_where_empty(column) if name == "headers" else column)
        elif name == "offset":
            arrays.append(offsets(offset, count))
        elif name == "topic":
            arrays.append(constant(topic, count))
        elif name == "partition":
            arrays.append(constant(partition, count))
        elif name == "timestampType":
            arrays.append(constant(CREATE_TIME, count))
        else:
            arrays.append(pa.nulls(count, COLUMNS[name][1]))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


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


def offsets(first: int, count: int) -> pa.Array:
    """Return `count` offsets from `first`."""
    return _array(pa.int64(), count, np.arange(first, first + count, dtype=np.int64))


def constant(value: int | str, count: int) -> pa.Array:
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


@functools.lru_cache(maxsize=8)
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in columns])


def quoted(name: str) -> str:
    """Return a name so that no character of it has a meaning, such as the dot of a nested field."""
    return "`" + name.replace("`", "``") + "`"
