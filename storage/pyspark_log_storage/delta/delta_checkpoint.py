"""A checkpoint of a Delta table: a Parquet file whose rows are the actions that make the table. Source: PROTOCOL.md.

Each row has one of the columns `txn`, `add`, `remove`, `metaData` and `protocol`; files that were removed are left out,
because only VACUUM would need them, and no program may run it on the table.

The footer has a CRC-32C of the whole object, for which its own place counts as zeros: Parquet itself would not notice a
flipped bit in a path or a number.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import google_crc32c
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log_storage import decoding
from pyspark_log_storage.delta.delta_actions import Action
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHECKSUM, _ZEROS = "pyspark_log.crc32c", b"0" * 8
_PLACE = re.compile(rb"pyspark_log\.crc32c.{1,2}([0-9a-f]{8})", re.DOTALL)
"""A text of 8 characters follows its name with its type, or its length, in between."""

_TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("tags", _TEXTS),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _NAMES),
                    ("createdTime", pa.int64()),
                    ("configuration", _TEXTS),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _NAMES),
                    ("writerFeatures", _NAMES),
                ]
            ),
        ),
    ]
)
_to_action: Callable[[Any], Action] = functools.partial(msgspec.convert, type=Action)


def encode(actions: Sequence[Action]) -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.Table.from_pylist([msgspec.to_builtins(each) for each in actions], _SCHEMA)
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({_CHECKSUM: _ZEROS.decode()})
    data = bytes(sink.getvalue())
    place = _place(data)
    assert place is not None
    return b"%s%08x%s" % (data[: place[0]], google_crc32c.value(data), data[place[1] :])


def decode(data: bytes, name: str) -> list[Action]:
    """Return the actions of a checkpoint, which is the object `name`. Raises `CorruptObject`.

    That of another program is refused before it is read: the table is published anew in any case.
    """
    place = _place(data)
    if place is None:
        raise CorruptObject(name, "it has no checksum: another program wrote it, or it is damaged")
    zeroed = _ZEROS.join((data[: place[0]], data[place[1] :]))
    if data[slice(*place)] != b"%08x" % google_crc32c.value(zeroed):
        raise CorruptObject(name, "its checksum is wrong")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        known = [each for each in _SCHEMA.names if each in file.schema_arrow.names]
        rows = file.read(known, use_threads=False).to_pylist(maps_as_pydicts="lossy")
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise CorruptObject(name, f"it is no checkpoint of a Delta table ({error})") from error
    return [decoding.decode(_to_action, row, name, CorruptObject) for row in rows]


def _place(data: bytes) -> tuple[int, int] | None:
    """Return where the checksum is, which is in the footer, and so the last thing that looks like it."""
    found = None
    for found in _PLACE.finditer(data):  # noqa: B007 -- the last one
        pass
    return found and found.span(1)
