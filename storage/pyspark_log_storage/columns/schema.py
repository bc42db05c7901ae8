"""The columns of stored rows. A topic stores its schemas once, and each chunk refers to one by its number.

    a topic of Kafka records    has two: without headers, which most rows do not have, and with them
    a typed topic               has one for each step of its evolution, the newest last: the user's columns, then
                                `timestamp`, the row's time, which is never null

Whether a topic is typed follows from its first schema. Offsets are not stored: they follow from a chunk's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_storage.columns import column_types
from pyspark_log_storage.errors import CorruptObject, InvalidRecord, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMESTAMP = pa.timestamp("us", "UTC")
# The parts of an array have Spark's names, so that the column needs no cast.
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

RECORD = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", TIMESTAMP)])
RECORD_WITH_HEADERS = RECORD.append(pa.field("headers", HEADERS))

RECORD_ID = 0
RECORD_WITH_HEADERS_ID = 1
RECORD_SCHEMAS = (RECORD, RECORD_WITH_HEADERS)
ROW_TIME = pa.field("timestamp", TIMESTAMP, nullable=False)
"""The last column of a typed topic's stored schemas."""
SCHEMAS_MAX = 10_000
"""How many schemas a topic may have."""
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


def typed(columns: pa.Schema) -> pa.Schema:
    """Return the stored schema of a typed topic with these columns. Raises `InvalidRecord`."""
    column_types.check(columns)
    return pa.schema([*columns, ROW_TIME])


def first_schemas(columns: pa.Schema | None) -> tuple[pa.Schema, ...]:
    """Return the schemas of a new topic: a typed one with these columns, or one of records. Raises `InvalidRecord`."""
    return RECORD_SCHEMAS if columns is None else (typed(columns),)


def is_typed(schema: pa.Schema) -> bool:
    """Return whether this is a typed topic's schema. That of records has a `timestamp` that may be null."""
    return len(schema) > 0 and schema.field(len(schema) - 1).equals(ROW_TIME)


def columns_of(schema: pa.Schema) -> pa.Schema:
    assert is_typed(schema)
    return pa.schema(list(schema)[:-1])


def decode_all(stored: Sequence[bytes], name: str) -> tuple[pa.Schema, ...]:
    """Return the schemas of a topic. Raises `CorruptObject`, and `NewerFormat` for schemas of neither kind."""
    found = tuple(decode(data, name) for data in stored)
    if found and is_typed(found[0]):
        for each in found:
            _check_typed(each, name)
        return found
    return tuple(_record_schema(each, name) for each in found)


def _record_schema(found: pa.Schema, name: str) -> pa.Schema:
    for known in RECORD_SCHEMAS:
        if found.equals(known, check_metadata=True):
            return known
    raise NewerFormat(name, f"its rows have the columns {', '.join(map(str, found))[:_SHOWN]}")


def _check_typed(found: pa.Schema, name: str) -> None:
    """Raise `NewerFormat` unless this version writes such a schema."""
    try:
        if not is_typed(found):
            raise InvalidRecord(f"column {ROW_TIME} is not its last")
        column_types.check(columns_of(found))
    except InvalidRecord as error:
        raise NewerFormat(name, f"a schema of its rows: {error}") from error
