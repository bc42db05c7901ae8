"""Rows as lines of text: the value, or key, separator and value.

Text loses information: headers, timestamps and partitions are not printed, a null is printed as `null` (as in Kafka's
console consumer), and a value with a line break becomes two lines. JSON lines (`json_rows`) lose nothing.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.rows import json_rows
from pyspark_log.writing import typed_json
from pyspark_log_storage.columns.schema import is_typed
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

NULL = b"null"


def decode(lines: list[bytes], first_line: int, key_separator: bytes | None) -> pa.RecordBatch:
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


def encode(record: pa.RecordBatch, key_separator: bytes | None) -> bytes:
    """Return stored rows as lines. Raises `InvalidInput` for a key of a typed topic's rows, which have none."""
    if is_typed(record.schema):
        if key_separator is not None:
            raise InvalidInput("rows of a typed topic have no key; omit --key-separator")
        return typed_json.ENCODER.encode_lines(json_rows.typed_columns(record))
    values = [NULL if value is None else value for value in record.column("value").to_pylist()]
    if key_separator is None:
        lines = values
    else:
        keys = [NULL if key is None else key for key in record.column("key").to_pylist()]
        lines = [key + key_separator + value for key, value in zip(keys, values, strict=True)]
    return b"\n".join([*lines, b""])
