"""The files with rows as journals and options describe them: chunks of append files, and segments of either format.

This module does not import pyarrow, unlike those that read and write the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from pyspark_log_storage.stored_fields import Count, Int64, SegmentName, UInt32

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import ObjectWriter

Compression = Literal["none", "lz4", "zstd"]
"""How the rows of a chunk are compressed."""
EpochStarts = tuple[tuple[int, int], ...]
"""Leader epochs with their first offsets, oldest first."""


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


class KeyedCounts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How many rows a keyed segment has, and how many of them delete their key.

    `placeholder` is the offset of the one row if it is not the newest of a key: it is there only because a segment has
    rows.
    """

    rows: UInt32
    tombstones: UInt32
    placeholder: Count | None = None


class SegmentFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A finished segment: rows `[base_offset, end_offset)`, timestamps in microseconds, sizes in bytes."""

    name: SegmentName
    base_offset: Count
    end_offset: Count
    chunks: Count
    """How many chunks, or row groups, it has."""
    log_bytes: Count
    """The length of the .log, or of the .parquet."""
    min_timestamp: Int64
    max_timestamp: Int64
    keyed: KeyedCounts | None
    """Of a keyed segment, which has only some rows of its range."""


class NotAsParquet(Exception):
    """Rows cannot be in a Parquet file. Caught where segments are rolled.

    One is too large for a row group, which readers decode as a whole; a struct has no fields; or there are so many, of
    so many columns, that no reader takes the footer.
    """


class SegmentPlace(Protocol):
    """The store, or the stores, to which a segment is written."""

    def open_write(self, key: str) -> ObjectWriter:
        """Open the file with the rows; see `Store`."""

    def create(self, key: str, data: bytes) -> bool:
        """Create the index, after the last byte of the rows and before their file is closed."""
