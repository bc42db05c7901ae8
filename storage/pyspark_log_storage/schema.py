"""The columns of stored rows. A topic stores its schemas once, and each chunk refers to one by its number.

A topic of Kafka records has two: without headers, which most rows do not have, and with them.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_log_storage.errors import CorruptObject, NewerFormat

TIMESTAMP = pa.timestamp("us", "UTC")
# The parts of an array have Spark's names, so that the column needs no cast.
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

RECORD = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", TIMESTAMP)])
RECORD_WITH_HEADERS = RECORD.append(pa.field("headers", HEADERS))

RECORD_ID = 0
RECORD_WITH_HEADERS_ID = 1
RECORD_SCHEMAS = (RECORD, RECORD_WITH_HEADERS)
_SHOWN = 200
"""How many characters of an unknown schema an error shows."""


def encode(schema: pa.Schema) -> bytes:
    """Return the schema's stored bytes: the Arrow IPC schema message."""
    return bytes(schema.serialize())


def decode(data: bytes, name: str) -> pa.Schema:
    """Return the schema in `data`, which is in the object `name`. Raises `CorruptObject`."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:
        raise CorruptObject(name, f"its schema cannot be read ({error})") from error


def decode_records(data: bytes, name: str) -> pa.Schema:
    """Return the schema in `data` if it is one of `RECORD_SCHEMAS`.

    Raises `CorruptObject`, and `NewerFormat` for any other schema.
    """
    found = decode(data, name)
    for known in RECORD_SCHEMAS:
        if found.equals(known, check_metadata=True):
            return known
    raise NewerFormat(name, f"its rows have the columns {', '.join(map(str, found))[:_SHOWN]}")
