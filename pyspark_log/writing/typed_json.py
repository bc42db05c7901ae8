"""Rows of a typed topic as JSON objects, for users and for dead letters: one field for each column.

Binary is base64, decimals are numbers, times are ISO 8601; NaN and infinities, which JSON lacks, are the texts that
Spark's `to_json` writes and `from_json` reads: "NaN", "Infinity", "-Infinity". Only for few rows: each value becomes a
Python object.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pyarrow as pa

from pyspark_log_storage.columns.column_conversion import converted
from pyspark_log_storage.columns.column_types import children

ENCODER = msgspec.json.Encoder(decimal_format="number")


def objects(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as Python objects that `ENCODER` encodes. Bytes that should be UTF-8 and are not, become U+FFFD.

    Times that Python does not know, of the year 10000 and after, are microseconds or days since 1970.
    """
    columns = {name: _values(batch.column(place)) for place, name in enumerate(batch.schema.names)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    try:
        found = column.to_pylist()
    except (ValueError, OverflowError):
        return [_plain(value, column.type) for value in _unlike_pythons(column)]
    return [_plain(value, column.type) for value in found] if _is_unlike_json(column.type) else found


def _unlike_pythons(column: pa.Array) -> list[Any]:
    """Return values with bytes for texts, numbers for times, or both: whichever Python cannot hold."""
    found: list[Any]
    for types in (_BYTES, _NUMBERS):
        with contextlib.suppress(ValueError, OverflowError):
            found = _as(column, types).to_pylist()
            return found
    found = _as(column, _BYTES | _NUMBERS).to_pylist()
    return found


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_NUMBERS = {pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64(), pa.date32(): pa.int32()}


def _as(column: pa.Array, types: dict[pa.DataType, pa.DataType]) -> pa.Array:
    return converted(column, _replaced(column.type, types))


def _replaced(kind: pa.DataType, types: dict[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return a type with some of those inside replaced."""
    fields = [field.with_type(_replaced(field.type, types)) for field in children(kind)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_list(kind):
        return pa.list_(fields[0])
    return pa.map_(*fields) if pa.types.is_map(kind) else types.get(kind, kind)


def _is_unlike_json(kind: pa.DataType) -> bool:
    """Return whether a type has maps, or numbers that may be NaN."""
    is_it = pa.types.is_map(kind) or pa.types.is_floating(kind)
    return is_it or any(_is_unlike_json(field.type) for field in children(kind))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with dicts for maps, and text where bytes stand for it, and for numbers that JSON lacks."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_key(_plain(key, kind.key_type)): _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if kind in _BYTES and isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key(key: Any) -> str:
    """Return a map's key as the text that is a field's name in JSON."""
    return key if isinstance(key, str) else ENCODER.encode(key).decode().strip('"')
