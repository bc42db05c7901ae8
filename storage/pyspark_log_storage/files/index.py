"""The index of a segment: its chunks, for a search by offset or time that does not read their rows.

    envelope b"PLIX", version 1, place: the segment's name, body: an entry of 56 bytes for each chunk, in order

    offset  bytes  field of an entry (little-endian)
    0       8      first offset
    8       4      rows
    12      8      position in the file
    20      4      length
    24      4      leader epoch
    28      4      schema id
    32      16     smallest and largest timestamp, microseconds since 1970
    48      4      CRC-32C of the chunk
    52      4      span: how many offsets a row group of a keyed segment covers, as it lacks some rows, else zero

What a chunk is in a .log, a row group is in a .parquet. The index is read as a whole: for 1 GiB of full chunks it has
7 KB. It follows from the file with the rows, and is written again if it is missing or damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pyspark_log_storage import layout
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count, Int64, UInt32
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.stores.store import Readable

SEGMENT_ROWS_MAX = 2**32 - 1

_MAGIC = b"PLIX"
_VERSION = 1
_ENTRY = np.dtype(
    [
        ("base_offset", "<i8"),
        ("rows", "<u4"),
        ("position", "<u8"),
        ("length", "<u4"),
        ("leader_epoch", "<u4"),
        ("schema_id", "<u4"),
        ("min_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("crc", "<u4"),
        ("span", "<u4"),
    ]
)


class IndexEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One chunk, or row group, of a segment: its offsets in the partition, its position and length in the file.

    A row group of a keyed segment covers `span` offsets, of which it has `rows`. For others `span` is 0.
    """

    base_offset: Count
    rows: UInt32
    position: Count
    length: UInt32
    leader_epoch: UInt32
    schema_id: UInt32
    min_timestamp: Int64
    max_timestamp: Int64
    crc: UInt32
    span: UInt32 = 0

    @property
    def end_offset(self) -> int:
        """The offset after the last one that the chunk covers."""
        return self.base_offset + (self.span or self.rows)

    def place(self) -> StagedChunk:
        """Return the chunk's position in the .log, and its contents as a reader must find them."""
        return StagedChunk(
            0, self.position, self.length, self.rows, self.min_timestamp, self.max_timestamp, self.schema_id, self.crc
        )


def encode(key: str, entries: Sequence[IndexEntry]) -> bytes:
    """Return the index of the segment at `key`, which has at least one chunk."""
    table = np.array([msgspec.structs.astuple(each) for each in entries], _ENTRY)
    return seal(_MAGIC, _VERSION, table.tobytes(), layout.name_of(key))


def read(store: Readable, key: str) -> list[IndexEntry]:
    """Return all entries of the index of the segment at `key`. Raises as `between`."""
    return _entries(_table(store, key))


def between(store: Readable, key: str, start: int, end: int) -> list[IndexEntry]:
    """Return the entries of the index of the segment at `key` that have any offset of `[start, end)`.

    Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    table = _table(store, key)
    first = max(0, int(np.searchsorted(table["base_offset"], start, side="right")) - 1)
    last = int(np.searchsorted(table["base_offset"], end))
    return [each for each in _entries(table[first:last]) if max(start, each.base_offset) < min(end, each.end_offset)]


def first_reaching(store: Readable, key: str, timestamp: int) -> IndexEntry | None:
    """Return the first entry with a row at or after `timestamp` (microseconds), or None. Raises as `between`."""
    table = _table(store, key)
    reaching = np.flatnonzero(table["max_timestamp"] >= timestamp)
    return _entries(table[reaching[:1]])[0] if len(reaching) else None


@rereads
def _table(store: Readable, key: str) -> NDArray[np.void]:
    name = f"index {store.url}/{key}.index"
    return np.frombuffer(unseal(_MAGIC, _VERSION, store.read(f"{key}.index"), name, layout.name_of(key)), _ENTRY)


def _entries(table: NDArray[np.void]) -> list[IndexEntry]:
    return [IndexEntry(*each) for each in table.tolist()]
