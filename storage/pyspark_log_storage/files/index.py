"""The index of a segment: the position of each chunk, for a binary search by offset or time.

    offset  bytes  field (little-endian)
    0       4      magic b"PLIX"
    4       2      version, 1
    6       2      zero
    8       8      base offset of the segment
    16      8      offset after its last row
    24      8      `layout.identity_of` the segment
    32      4      number of entries
    36      24     zero
    60      4      CRC-32C of the 60 bytes before
    64      4096   blocks of 78 entries, the last one with fewer

    A block: the largest timestamp of all chunks before it (i64), entries of 52 bytes, zeros, and in its last 4
    bytes a CRC-32C. An entry is one chunk, or one row group of a .parquet: offset
    relative to the base u32, rows u32, position in the file u64, length u32, leader epoch u32, schema id u32, smallest
    and largest timestamp i64 (microseconds), CRC-32C of the chunk or of the row group u32, and a u32: how many
    offsets a row group of a keyed segment covers, as it lacks some rows, else zero.

    A block's CRC-32C covers the header's CRC-32C (u32), the number of the block from 0 (u32), and the bytes of the
    block before it: so a block of another position or index is noticed, too.

Entries are in order, so a reader of one row reads the header and a few blocks; a reader of many rows reads adjacent
blocks together. The index follows from the file with the rows, and is written again if it is missing or damaged.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import numpy as np

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.stores.failover import reread, rereads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.stores.store import Readable

HEADER_BYTES = 64
BLOCK_BYTES = 4096
BLOCK_ENTRIES = 78
READ_BLOCKS_MAX = 16
"""How many adjacent blocks are read at once: 64 KiB."""
SEGMENT_ROWS_MAX = 2**32 - 1
BEFORE_ALL_TIMES = -(2**63)

_MAGIC = b"PLIX"
_VERSION = 1
_FIELDS = struct.Struct("<4sHHqqQI24x")
_REACHED = struct.Struct("<q")
_CRC = struct.Struct("<I")
_PLACE = struct.Struct("<II")
_ENTRY = np.dtype(
    [
        ("relative_offset", "<u4"),
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
assert _REACHED.size + BLOCK_ENTRIES * _ENTRY.itemsize + _CRC.size <= BLOCK_BYTES


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """One chunk, or row group, of a segment: its offsets in the partition, its position and length in the file.

    A row group of a keyed segment covers `span` offsets, of which it has `rows`. For others `span` is 0.
    """

    base_offset: int
    rows: int
    position: int
    length: int
    leader_epoch: int
    schema_id: int
    min_timestamp: int
    max_timestamp: int
    crc: int
    span: int = 0

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
    base_offset, end_offset = entries[0].base_offset, entries[-1].end_offset
    fields = _FIELDS.pack(_MAGIC, _VERSION, 0, base_offset, end_offset, layout.identity_of(key), len(entries))
    header_crc = google_crc32c.value(fields)
    parts = [fields, _CRC.pack(header_crc)]
    reached = BEFORE_ALL_TIMES
    for first in range(0, len(entries), BLOCK_ENTRIES):
        block = entries[first : first + BLOCK_ENTRIES]
        table = np.array(
            [
                (entry.base_offset - base_offset, *msgspec.structs.astuple(entry)[1:])  # the fields of _ENTRY
                for entry in block
            ],
            _ENTRY,
        )
        body = (_REACHED.pack(reached) + table.tobytes()).ljust(BLOCK_BYTES - _CRC.size, b"\0")
        parts += [body, _CRC.pack(_block_crc(header_crc, first // BLOCK_ENTRIES, body))]
        reached = max(reached, int(table["max_timestamp"].max()))
    return b"".join(parts)


class Index:
    """An index on a store. Blocks are read when they are needed, and kept.

    Every method may raise `ObjectMissing`, `CorruptObject` and `NewerFormat`.
    """

    def __init__(self, store: Readable, key: str) -> None:
        self._store = store
        self._key = key
        self._name = f"index {store.url}/{key}"
        fields = _header_fields(store, key, self._name)
        self._header_crc = google_crc32c.value(fields)
        magic, version, _, self.base_offset, self.end_offset, identity, self.entries = _FIELDS.unpack(fields)
        if magic != _MAGIC:
            raise CorruptObject(self._name, f"it begins with {magic!r} where {_MAGIC!r} is expected")
        if version > _VERSION:
            raise NewerFormat(self._name, f"index format {version}, this version reads up to {_VERSION}")
        if identity != layout.identity_of(key):
            raise CorruptObject(self._name, "it is the index of another segment")
        self._blocks: dict[int, tuple[int, NDArray[np.void]]] = {}

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-int(self.entries) // BLOCK_ENTRIES)

    def find_offset(self, offset: int) -> int:
        """Return the number of the entry of the chunk with `offset`, which must be in the segment."""
        assert self.base_offset <= offset < self.end_offset
        if offset in {self.base_offset, self.end_offset - 1}:
            return 0 if offset == self.base_offset else int(self.entries) - 1  # no search to read all
        relative = offset - self.base_offset
        low, high = 0, self.blocks - 1
        while low < high:
            middle = (low + high + 1) // 2
            if int(self._block(middle)[1]["relative_offset"][0]) <= relative:
                low = middle
            else:
                high = middle - 1
        within = int(np.searchsorted(self._block(low)[1]["relative_offset"], relative, side="right")) - 1
        return low * BLOCK_ENTRIES + within

    def find_time(self, timestamp: int) -> int | None:
        """Return the number of the first entry with a row at or after `timestamp` (microseconds), or None."""
        low, high = 0, self.blocks - 1
        # Find the last block before which all chunks are older.
        while low < high:
            middle = (low + high + 1) // 2
            if self._block(middle)[0] < timestamp:
                low = middle
            else:
                high = middle - 1
        reaching = np.flatnonzero(self._block(low)[1]["max_timestamp"] >= timestamp)
        return low * BLOCK_ENTRIES + int(reaching[0]) if len(reaching) else None

    def read(self, first: int, last: int) -> list[IndexEntry]:
        """Return the entries from `first` to `last` inclusive. Reads missing blocks, up to 64 KiB at once."""
        self._load(first // BLOCK_ENTRIES, last // BLOCK_ENTRIES)
        found = []
        for number in range(first // BLOCK_ENTRIES, last // BLOCK_ENTRIES + 1):
            _, table = self._block(number)
            start = max(0, first - number * BLOCK_ENTRIES)
            end = min(len(table), last + 1 - number * BLOCK_ENTRIES)
            for relative, *rest in table[start:end].tolist():
                found.append(IndexEntry(self.base_offset + relative, *rest))
        return found

    def _block(self, number: int) -> tuple[int, NDArray[np.void]]:
        """Return the largest timestamp before block `number`, and its entries."""
        self._load(number, number)
        return self._blocks[number]

    def _load(self, first: int, last: int) -> None:
        """Read the blocks from `first` to `last` inclusive that have not been read, adjacent ones together."""
        missing = (number for number in range(first, last + 1) if number not in self._blocks)
        for number, run in _runs(missing, READ_BLOCKS_MAX):
            self._blocks.update(reread(self._store, functools.partial(self._read_blocks, number, run)))

    def _read_blocks(self, first: int, count: int) -> dict[int, tuple[int, NDArray[np.void]]]:
        data = self._store.read(self._key, HEADER_BYTES + first * BLOCK_BYTES, count * BLOCK_BYTES)
        blocks = (data[position * BLOCK_BYTES : (position + 1) * BLOCK_BYTES] for position in range(count))
        return {number: self._decode(number, block) for number, block in enumerate(blocks, first)}

    def _decode(self, number: int, data: bytes) -> tuple[int, NDArray[np.void]]:
        if len(data) < BLOCK_BYTES:
            raise CorruptObject(self._name, f"it ends inside block {number}")
        body = data[: -_CRC.size]
        if _block_crc(self._header_crc, number, body) != _CRC.unpack_from(data, len(body))[0]:
            raise CorruptObject(self._name, f"the checksum of block {number} does not match")
        count = min(BLOCK_ENTRIES, self.entries - number * BLOCK_ENTRIES)
        table = np.frombuffer(body, _ENTRY, count, _REACHED.size)
        return _REACHED.unpack_from(body)[0], table


@rereads
def _header_fields(store: Readable, key: str, name: str) -> bytes:
    """Return the bytes of an index's header that its checksum covers, checked."""
    data = store.read(key, 0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        raise CorruptObject(name, f"it ends after {len(data)} bytes, inside its header")
    fields = data[: _FIELDS.size]
    if google_crc32c.value(fields) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        raise CorruptObject(name, "the checksum of its header does not match")
    return fields


def _block_crc(header_crc: int, number: int, body: bytes) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(_PLACE.pack(header_crc, number)), body)
    return crc


def _runs(numbers: Iterable[int], length_max: int) -> Iterator[tuple[int, int]]:
    """Yield first number and length of each run of adjacent `numbers`, which ascend. Consumes one number ahead."""
    first = length = 0
    for number in numbers:
        if length and number == first + length and length < length_max:
            length += 1
            continue
        if length:
            yield first, length
        first, length = number, 1
    if length:
        yield first, length
