"""A staged chunk: what a journal entry says of a chunk in an append file. Needs no Arrow, so decisions come without."""

from __future__ import annotations

import msgspec


class StagedChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where a chunk lies in an append file, and what a reader must know before it has read it.

    `position` and `length` in bytes, timestamps in microseconds since 1970.
    """

    partition: int
    position: int
    length: int
    rows: int
    min_timestamp: int
    max_timestamp: int
    schema_id: int
    crc: int
