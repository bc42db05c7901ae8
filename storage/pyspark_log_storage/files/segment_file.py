"""What is known of a segment's file, whatever its format, and where segments are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import ObjectWriter

EpochStarts = tuple[tuple[int, int], ...]
"""Leader epochs with their first offsets, oldest first."""
BASE_OFFSET_MAX = 2**62
"""Even with the rows of a segment added, offsets stay below 2**63."""
LEADER_EPOCHS_MAX = 2**20
"""How many leader epochs a segment may name (16 MiB in the header of a .log)."""


class SegmentFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A finished segment: rows `[base_offset, end_offset)`, timestamps in microseconds, sizes in bytes."""

    name: str
    base_offset: int
    end_offset: int
    chunks: int
    """How many chunks, or row groups, it has."""
    log_bytes: int
    """The length of the .log, or of the .parquet."""
    min_timestamp: int
    max_timestamp: int


class NotAsParquet(Exception):
    """Rows cannot be in a Parquet file. Caught where segments are rolled.

    One is too large for a row group, which readers decode as a whole, or a struct has no fields.
    """


class SegmentPlace(Protocol):
    """The store, or the stores, to which a segment is written."""

    def open_write(self, key: str) -> ObjectWriter:
        """Open the file with the rows; see `Store`."""

    def create(self, key: str, data: bytes) -> bool:
        """Create the index, after the last byte of the rows and before their file is closed."""
