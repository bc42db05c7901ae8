"""Rows as lines of text or JSON.

A line of text is the value, or key, separator and value. Text loses information: headers, timestamps and partitions are
not printed, a null is printed as `null` (as in Kafka's console consumer), and a value with a line break becomes two
lines. JSON lines lose nothing. They have the same form when written and when read:

    {"key": "k", "value": "v", "headers": [{"key": "h", "value": "w"}], "partition": 0, "timestamp": 1700000000000}

    value, key, a header's value    a string; null (a null value is a tombstone); {"base64": "..."} for binary data;
                                    any other JSON is stored as its text, unchanged
    partition                       the partition of the row (default: chosen by the key)
    timestamp                       milliseconds since 1970 (default: the time of the write)

Only `value` is required. Rows that are read also have `topic` and `offset`, which are ignored when written. Rows of a
typed topic have its columns in place of value, key and headers (see `typed_json`), and are not written in this form.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_log.writing import typed_json
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

US_PER_MS = 1000
TIMESTAMP_MS_MAX = 2**63 // US_PER_MS - 1
PARTITION_MAX = 2**31 - 1

NULL_TEXT = b"null"
_NULL = msgspec.Raw(b"null")
_SHOWN_MAX = 100
"""How many characters of an invalid value an error shows."""
_EXPECTED = {
    "partition": f"a whole number from 0 to {PARTITION_MAX}",
    "timestamp": f"milliseconds since 1970 (from {-TIMESTAMP_MS_MAX} to {TIMESTAMP_MS_MAX})",
    "headers": 'a list of objects such as {"key": "h", "value": "v"}',
}
"""What the fields take that are checked when a line is decoded."""
_PLAIN = {
    "Object missing required field": "it lacks the field",
    "Object contains unknown field": "it has the unknown field",
}
"""Words of msgspec, and what an error says instead."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    key: str | None
    value: msgspec.Raw = _NULL


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    key: msgspec.Raw = _NULL
    headers: list[_Header] | None = None
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)] | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=-TIMESTAMP_MS_MAX, le=TIMESTAMP_MS_MAX)] | None = None
    topic: Any = None
    offset: Any = None


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


_row = msgspec.json.Decoder(_Row)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_base64 = msgspec.json.Decoder(_Base64)


def decode_json(lines: list[bytes], first_line: int) -> pa.RecordBatch:
    """Return the rows of lines, of which the first has number `first_line` in the input. Skip blank lines.

    Raise `InvalidRecord` with the number of the line.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("key", "value", "headers", "partition", "timestamp")}
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            row = _row.decode(line.decode())
            columns["key"].append(_bytes(row.key))
            columns["value"].append(_bytes(row.value))
            columns["headers"].append(
                None
                if row.headers is None
                else [{"key": each.key, "value": _bytes(each.value)} for each in row.headers]
            )
        except RecursionError as error:
            raise InvalidRecord(
                f"line {number} is nested too deeply for JSON; pass the value as a string, or use --format text"
            ) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidRecord(
                f"line {number} is not a valid row ({_reason(line, error)}); expected a JSON object such as "
                '{"key": "k", "value": "v"}'
            ) from error
        columns["partition"].append(row.partition)
        columns["timestamp"].append(None if row.timestamp is None else row.timestamp * US_PER_MS)
    return pa.record_batch(
        {
            "key": pa.array(columns["key"], pa.binary()),
            "value": pa.array(columns["value"], pa.binary()),
            "headers": pa.array(columns["headers"], schema.HEADERS),
            "partition": pa.array(columns["partition"], pa.int32()),
            "timestamp": pa.array(columns["timestamp"], pa.int64()).cast(schema.TIMESTAMP),
        }
    )


def encode_json(record: pa.RecordBatch, topic: str, partition: int, offset: NDArray[np.int64]) -> bytes:
    """Return stored rows as lines; `offset` are those of the rows."""
    rows = zip(offset.tolist(), objects(record), strict=True)
    return typed_json.ENCODER.encode_lines(
        [{"topic": topic, "partition": partition, "offset": at} | row for at, row in rows]
    )


def objects(record: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return stored rows as objects that `typed_json.ENCODER` encodes, without their places."""
    times = np.floor_divide(np.asarray(record.column("timestamp").cast(pa.int64())), US_PER_MS).tolist()
    if schema.is_typed(record.schema):
        return [{"timestamp": time} | row for time, row in zip(times, typed_columns(record), strict=True)]
    pairs = zip(times, record.column("key").to_pylist(), record.column("value").to_pylist(), strict=True)
    rows = [{"timestamp": time, "key": _json(key), "value": _json(value)} for time, key, value in pairs]
    if "headers" in record.schema.names:
        for row, headers in zip(rows, record.column("headers").to_pylist(), strict=True):
            if headers is not None:
                row["headers"] = [{"key": each["key"], "value": _json(each["value"])} for each in headers]
    return rows


def typed_columns(record: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the columns of a typed topic's rows, without their times, as objects that `typed_json` encodes."""
    return typed_json.objects(record.select(record.schema.names[:-1]))


def _reason(line: bytes, error: Exception) -> str:
    """Return what is wrong with a line: the field and its value, or the error in plain words."""
    text = str(error)
    for field, expected in _EXPECTED.items():
        if f"`$.{field}" in text:
            try:
                value = bytes(_fields.decode(line)[field]).decode()
            except (msgspec.MsgspecError, LookupError, RecursionError):
                return text  # the line is damaged behind the field, too
            return f"its {field}: {value[:_SHOWN_MAX]} is not {expected}"
    if text.startswith("Expected `object`"):
        return "it is not an object"
    for framework, plain in _PLAIN.items():
        text = text.replace(framework, plain)
    return text


def _bytes(raw: msgspec.Raw) -> bytes | None:
    """Return the bytes of a JSON value. Raise `ValueError` for invalid base64."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return _text.decode(text).encode()
    if text == b"null":
        return None
    if text.startswith(b"{") and b'"base64"' in text:
        try:
            encoded = _base64.decode(text)
        except msgspec.ValidationError:
            return text  # a user's object that has other fields too
        try:
            return base64.b64decode(encoded.base64, validate=True)
        except binascii.Error as error:
            raise ValueError(f"invalid base64: {error}") from error
    return text


def _json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def decode_text(lines: list[bytes], first_line: int, key_separator: bytes | None) -> pa.RecordBatch:
    """Return the rows of lines, of which the first has number `first_line` in the input.

    Raise `InvalidRecord` for a line without the separator.
    """
    values = pa.array(lines, pa.binary())
    if key_separator is None:
        return pa.record_batch({"value": values})
    places = pc.find_substring(values, key_separator)
    missing = pc.index(places, -1).as_py()
    if missing >= 0:
        shown = key_separator.decode(errors="replace")
        raise InvalidRecord(
            f"line {first_line + missing} has no key separator {shown!r}; correct it, or omit --key-separator"
        )
    parts = pc.split_pattern(values, key_separator, max_splits=1).flatten()
    return pa.record_batch({"key": parts[::2], "value": parts[1::2]})


def encode_text(record: pa.RecordBatch, key_separator: bytes | None) -> bytes:
    """Return stored rows as lines. Raises `InvalidInput` for a key of a typed topic's rows, which have none."""
    if schema.is_typed(record.schema):
        if key_separator is not None:
            raise InvalidInput("rows of a typed topic have no key; omit --key-separator")
        return typed_json.ENCODER.encode_lines(typed_columns(record))
    values = [NULL_TEXT if value is None else value for value in record.column("value").to_pylist()]
    if key_separator is None:
        lines = values
    else:
        keys = [NULL_TEXT if key is None else key for key in record.column("key").to_pylist()]
        lines = [key + key_separator + value for key, value in zip(keys, values, strict=True)]
    return b"\n".join([*lines, b""])
