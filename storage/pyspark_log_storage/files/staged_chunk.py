"""A staged chunk: the description of a chunk of an append file in a journal entry. Does not import pyarrow."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count, Int64, UInt32


class StagedChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The position of a chunk in an append file, and its contents as a reader must find them.

    `position` and `length` in bytes, timestamps in microseconds since 1970.
    """

    partition: Count
    position: Count
    length: Count
    rows: UInt32
    min_timestamp: Int64
    max_timestamp: Int64
    schema_id: UInt32
    crc: UInt32
