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

from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing
from pyspark_log_storage.files.row_files import SegmentFile, StagedChunk
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count, Int64, UInt32
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.files.row_files import KeyedCounts
    from pyspark_log_storage.stores.store import Readable

    Table = NDArray[np.void]

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
    return seal(_MAGIC, _VERSION, table_of(entries).tobytes(), layout.name_of(key))


def segment_of(key: str, entries: Sequence[IndexEntry], size: int, keyed: KeyedCounts | None = None) -> SegmentFile:
    """Return the segment at `key` with these entries, whose rows take `size` bytes."""
    name = layout.name_of(key)
    first, last = min(each.min_timestamp for each in entries), max(each.max_timestamp for each in entries)
    return SegmentFile(name, entries[0].base_offset, entries[-1].end_offset, len(entries), size, first, last, keyed)


def read(store: Readable, key: str) -> list[IndexEntry]:
    """Return all entries of the index of the segment at `key`. Raises as `table`."""
    return _entries(table(store, key))


def is_right(store: Readable, key: str, entries: Sequence[IndexEntry]) -> bool:
    """Return whether the index of the segment at `key` has exactly these entries."""
    try:
        return read(store, key) == entries
    except (CorruptObject, NewerFormat, ObjectMissing):
        return False


def between(table: Table, start: int, end: int) -> list[IndexEntry]:
    """Return the entries that have any offset of `[start, end)`."""
    first = max(0, int(np.searchsorted(table["base_offset"], start, side="right")) - 1)
    last = int(np.searchsorted(table["base_offset"], end))
    return [each for each in _entries(table[first:last]) if max(start, each.base_offset) < min(end, each.end_offset)]


def first_reaching(table: Table, timestamp: int) -> IndexEntry | None:
    """Return the first entry with a row at or after `timestamp` (microseconds), or None."""
    reaching = np.flatnonzero(table["max_timestamp"] >= timestamp)
    return _entries(table[reaching[:1]])[0] if len(reaching) else None


@rereads
def table(store: Readable, key: str) -> Table:
    """Return the entries of the index of the segment at `key`.

    Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    name = f"index {store.url}/{key}.index"
    body = unseal(_MAGIC, _VERSION, store.read(f"{key}.index"), name, layout.name_of(key))
    return decoding.decode(_decode, body, name)


def table_of(entries: Sequence[IndexEntry]) -> Table:
    return np.array([msgspec.structs.astuple(each) for each in entries], _ENTRY)


def _decode(body: bytes | msgspec.Raw) -> Table:
    return np.frombuffer(body, _ENTRY)


def _entries(table: Table) -> list[IndexEntry]:
    return [IndexEntry(*each) for each in table.tolist()]
