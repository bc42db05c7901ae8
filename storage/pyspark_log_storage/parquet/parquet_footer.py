"""The end of a Parquet segment: page indexes and Parquet's footer, with a checksum of their own.

    row groups | page indexes | footer | length of the footer (u32) | b"PAR1"
               |<-------------------- the tail --------------------------->|

The footer is Parquet's own. Its key-value metadata has two entries of ours, which other readers ignore:

    pyspark-log.segment    JSON: what the header of a .log has, and what an index has (`SegmentMetadata`)
    pyspark-log.tail       "tail of version 1 at <position, 20 digits>, crc32c <8 hexadecimal digits>", the last entry

The CRC-32C covers the whole tail, with eight "0" in the place of its own digits. So every byte of the file is covered:
the first four are b"PAR1", a row group has a checksum in `pyspark-log.segment`, and the tail has this one. A file can
be checked, copied and indexed without a journal. The tail is checked before Arrow sees it.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files.index import IndexEntry
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.stored_fields import Count
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Readable

MAGIC = b"PAR1"
SEGMENT_KEY = "pyspark-log.segment"
TAIL_KEY = "pyspark-log.tail"
TAIL_BYTES_MAX = 256 * 1024 * 1024
"""A tail has some 100 bytes for each column of each row group. A larger one is neither written nor read."""

_VERSION = 1
_GUESSED_BYTES = 64 * 1024
"""How much is read at once from the end of a file: most tails are smaller."""
_MARK = re.compile(rb"tail of version ([0-9]+) at ([0-9]{20}), crc32c ([0-9a-f]{8})")
_CRC_DIGITS = 8
_LENGTH = struct.Struct("<I")
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, IndexError, OverflowError, MemoryError, KeyError)


class SegmentMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `pyspark-log.segment` has."""

    name: str
    """The segment's, as in the header of a .log."""
    leader_epochs: tuple[tuple[Count, Count], ...]
    """Leader epochs with their first offsets, as in the header of a .log."""
    entries: tuple[IndexEntry, ...]
    """What the segment's index has. The row groups begin at byte 4, and have no gaps between them."""
    keyed: KeyedCounts | None = None
    """Of a keyed segment."""


_decoder = msgspec.json.Decoder(SegmentMetadata)


class Footer(msgspec.Struct, frozen=True):
    """The footer of a Parquet segment, checked."""

    segment: SegmentMetadata
    parquet: pq.FileMetaData
    tail_position: int
    tail_crc: int
    file_bytes: int
    """The length of the file."""

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """What the segment's index has."""
        return self.segment.entries


def encode_metadata(segment: SegmentMetadata, tail_position: int) -> dict[str, str]:
    """Return the key-value metadata of the footer. `sealed` has to write the checksum in it."""
    mark = f"tail of version {_VERSION} at {tail_position:020d}, crc32c {'0' * _CRC_DIGITS}"
    return {SEGMENT_KEY: msgspec.json.encode(segment).decode(), TAIL_KEY: mark}


def sealed(tail: bytes) -> bytes:
    """Return a tail with the checksum of its bytes."""
    *_, mark = _MARK.finditer(tail)
    start, end = mark.span(3)
    return tail[:start] + b"%08x" % _checksum(tail, start) + tail[end:]


@rereads
def read(store: Readable, key: str) -> Footer:
    """Return the footer of the .parquet at `key`. Reads its tail, in one or two reads.

    Raises `CorruptObject`, also if it is another segment's, `NewerFormat`, `StoreError`.
    """
    name = f"segment {store.url}/{key}"
    size = store.size(key)
    begin = max(0, size - _GUESSED_BYTES)
    data = store.read(key, begin, size - begin)
    position = _tail_position(data, size, name)
    if position < begin:
        data = store.read(key, position, begin - position) + data
        begin = position
    tail = data[position - begin :]
    if len(tail) != size - position:
        raise CorruptObject(name, "it changed its length while it was read")
    found = decode(tail, position, name)
    if found.segment.name != layout.name_of(key):
        raise CorruptObject(name, "it does not belong here: it was written as " + found.segment.name)
    return found


def read_tail(store: Readable, key: str, footer: Footer) -> bytes:
    """Return the bytes of a tail that was read before. Raises `CorruptObject` if they have changed."""
    data = store.read(key, footer.tail_position)
    if google_crc32c.value(data) != footer.tail_crc:
        raise CorruptObject(f"segment {store.url}/{key}", "its footer changed while it was read")
    return data


def decode(tail: bytes, position: int, name: str) -> Footer:
    """Return the footer in the tail that begins at byte `position` of the segment `name`.

    Raises `CorruptObject`, `NewerFormat`.
    """
    mark = _mark(tail, name)
    start, _ = mark.span(3)
    if int(mark[2]) != position or int(mark[3], 16) != _checksum(tail, start):
        raise CorruptObject(name, "the checksum of its footer does not match")
    if int(mark[1]) > _VERSION:
        raise NewerFormat(name, f"format {int(mark[1])} of Parquet segments, this version reads up to {_VERSION}")
    try:
        parquet = pq.read_metadata(pa.BufferReader(MAGIC + tail))
        stored = (parquet.metadata or {})[SEGMENT_KEY.encode()]
    except _ARROW_ERRORS as error:
        raise CorruptObject(name, f"its Parquet footer cannot be read ({decoding.reason(error)})") from error
    segment = decoding.decode(_decoder.decode, stored, name, CorruptObject)
    return Footer(segment, parquet, position, google_crc32c.value(tail), position + len(tail))


def _tail_position(data: bytes, size: int, name: str) -> int:
    """Return where the tail of a file of `size` bytes begins that ends with `data`."""
    if data[-len(MAGIC) :] != MAGIC or size < len(MAGIC) + _LENGTH.size:
        raise CorruptObject(name, f"it does not end with {MAGIC!r}, as a Parquet file does")
    position = int(_mark(data, name)[2])
    if not len(MAGIC) < position < size or size - position > TAIL_BYTES_MAX:
        raise CorruptObject(name, f"its footer says that its row groups end at byte {position} of {size}")
    return position


def _mark(data: bytes, name: str) -> re.Match[bytes]:
    """Return the last mark in a tail: names of columns, which may look like one, come before it."""
    marks = list(_MARK.finditer(data))
    if not marks:
        raise CorruptObject(name, "its footer has no checksum: pyspark-log did not write it, or it is damaged")
    return marks[-1]


def _checksum(tail: bytes, start: int) -> int:
    """Return the CRC-32C of a tail with zeros in the place of its own, which begins at byte `start`."""
    view = memoryview(tail)
    crc: int = google_crc32c.value(bytes(view[:start]))
    for part in (b"0" * _CRC_DIGITS, bytes(view[start + _CRC_DIGITS :])):
        crc = google_crc32c.extend(crc, part)
    return crc
