"""A staged chunk: what a journal entry says of a chunk in an append file. Needs no Arrow, so decisions come without."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count, Int64, UInt32


class StagedChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where a chunk lies in an append file, and what a reader must know before it has read it.

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
