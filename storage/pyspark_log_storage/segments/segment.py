"""A segment: many chunks of one partition in one file that can be read without a journal.

    <partition>/<base offset, 20 digits>-<born>-<nonce>.log      with an .index of the same name

    .log    offset  bytes  field (little-endian)
            0       4      magic b"PLSG"
            4       2      version, 1
            6       2      zero
            8       4      length of this header, a multiple of 64
            12      4      number of leader epochs
            16      8      base offset
            24      8      `layout.identity_of` the segment
            32      16     for each leader epoch: epoch u32, zero u32, first offset u64
            ...     ...    zeros
            -4      4      CRC-32C of the header before it
            ...     ...    chunks, back to back, as in an append file

A segment is created once and never replaced: its name contains the newest entry that its writer knew (born) and a
nonce, so a slow writer cannot replace committed bytes. The index is derived from the .log, and offsets from the base
offset and the rows of the chunks.

A segment may be a Parquet file instead (`parquet_segment`), which its name says: it ends in .parquet. Its row groups
are what chunks are here. The functions that take the key of a segment serve both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.files.index import Index, IndexEntry
from pyspark_log_storage.files.row_files import (
    LEADER_EPOCHS_MAX,
    EpochStarts,
    SegmentFile,
)
from pyspark_log_storage.stores.failover import rereads
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_storage.files.row_files import SegmentPlace
    from pyspark_log_storage.stores.store import Readable, Store

ALIGNMENT = 64

_MAGIC = b"PLSG"
_VERSION = 1
_FIELDS = struct.Struct("<4sHHIIqQ")
_EPOCH = struct.Struct("<IIq")
_CRC = struct.Struct("<I")


class SegmentWriter:
    """Writes a segment: its .log chunk by chunk, then its .index."""

    def __init__(self, store: SegmentPlace, folder: str, name: str, base_offset: int, epochs: EpochStarts) -> None:
        """`folder` ends with "/". `epochs` are the leader epochs of the rows, with their first offsets."""
        self._store = store
        self._folder = folder
        self._name = name
        self._epochs = epochs
        self._writer = store.open_write(layout.segment_file(f"{folder}{name}"))
        header = encode_header(name, base_offset, epochs)
        self._writer.write(header)
        self._position = len(header)
        self._base_offset = base_offset
        self.entries: list[IndexEntry] = []

    @property
    def end_offset(self) -> int:
        """The first offset of the next chunk."""
        return self.entries[-1].end_offset if self.entries else self._base_offset

    def append(self, header: chunk.Header, data: bytes) -> None:
        """Append a chunk; `data` is all of its bytes, already checked."""
        self._writer.write(data)
        self.entries.append(entry_of(header, self.end_offset, self._position, self._epochs))
        self._position += header.length

    def close(self) -> SegmentFile:
        """Publish both files, durably, the .log last: a segment with a .log is complete."""
        data = index.encode(self._name, self.entries)
        self._store.create(f"{self._folder}{self._name}.index", data)
        self._writer.close()
        return SegmentFile(
            self._name,
            self._base_offset,
            self.end_offset,
            len(self.entries),
            self._position,
            min(entry.min_timestamp for entry in self.entries),
            max(entry.max_timestamp for entry in self.entries),
        )

    def discard(self) -> None:
        """Remove the unfinished segment."""
        self._writer.discard()


def indexed_between(store: Readable, key: str, start: int, end: int) -> list[IndexEntry]:
    """Return the chunks of the segment at `key` that have any row of `[start, end)`.

    Reads only a few blocks of the index. Raises `CorruptObject`, `ObjectMissing`.
    """
    found = Index(store, f"{key}.index")
    first, last = max(start, found.base_offset), min(end, found.end_offset)
    if first >= last:
        return []
    return found.read(found.find_offset(first), found.find_offset(last - 1))


def scanned_between(store: Readable, key: str, start: int, end: int) -> list[IndexEntry]:
    """Return `indexed_between` from the rows' file, which is read as a whole."""
    return [entry for entry in scan(store, key) if max(start, entry.base_offset) < min(end, entry.end_offset)]


def indexed_reaching(store: Readable, key: str, timestamp: int) -> IndexEntry | None:
    """Return the first chunk with a row at or after `timestamp` (microseconds), or None.

    Reads only a few blocks of the index. Raises `CorruptObject`, `ObjectMissing`.
    """
    found = Index(store, f"{key}.index")
    number = found.find_time(timestamp)
    return None if number is None else found.read(number, number)[0]


def scanned_reaching(store: Readable, key: str, timestamp: int) -> IndexEntry | None:
    """Return `indexed_reaching` from the rows' file, which is read as a whole."""
    return next((entry for entry in scan(store, key) if entry.max_timestamp >= timestamp), None)


def chunks(
    store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None
) -> Iterator[tuple[IndexEntry, chunk.Header, pa.Buffer]]:
    """Yield every chunk of the .log of the segment at `key`, checked, without the index.

    With `schemas` a chunk whose rows cannot be decoded is damaged, too. Keeps one chunk in memory. Raises
    `CorruptObject` at the first damaged one.
    """
    log = layout.segment_file(key)
    name = f"segment {store.url}/{log}"
    base_offset, epochs, position = read_header(store, log, name)
    offset = base_offset
    for place, header, data in append_file.scan(store, log, position):
        if schemas is not None:
            chunk.decode(data, header, schemas, f"{name} at byte {place}")
        yield entry_of(header, offset, place, epochs), header, data
        offset += header.rows


def entries(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> Iterator[IndexEntry]:
    """Yield the entries that the index of the segment at `key` must have, each after its bytes were checked.

    With `schemas` rows that cannot be decoded are damaged, too. Keeps one chunk, or row group, in memory. Raises
    `CorruptObject` at the first damaged one, `NewerFormat`, `StoreError`.
    """
    if layout.is_parquet(key):
        from pyspark_log_storage.parquet import parquet_scan

        yield from parquet_scan.scan(store, key, schemas)
    else:
        yield from (entry for entry, _, _ in chunks(store, key, schemas))


def scan(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> list[IndexEntry]:
    """Return all `entries`."""
    return list(entries(store, key, schemas))


def epochs_of(store: Readable, key: str) -> tuple[int, EpochStarts]:
    """Return base offset and leader epochs of the segment at `key`. Raises `CorruptObject`, `NewerFormat`."""
    if layout.is_parquet(key):
        from pyspark_log_storage.parquet import parquet_footer

        found = parquet_footer.read(store, key).segment
        return found.base_offset, found.leader_epochs
    log = layout.segment_file(key)
    base_offset, epochs, _ = read_header(store, log, f"segment {store.url}/{log}")
    return base_offset, epochs


def index_is_right(store: Store, key: str, found: Sequence[IndexEntry]) -> bool:
    """Return whether the index of the segment at `key` has exactly these entries, at least one."""
    wanted = index.encode(key, found)

    def is_same() -> bool:
        return store.read(f"{key}.index", 0, len(wanted) + 1) == wanted  # one byte more tells whether it is longer

    try:
        return is_same() or (is_object_store(store) and is_same())  # as `reread` does
    except ObjectMissing:
        return False


def encode_header(key: str, base_offset: int, epochs: EpochStarts) -> bytes:
    """Return the header of the .log of the segment at `key`."""
    length = _header_bytes(len(epochs))
    fields = _FIELDS.pack(_MAGIC, _VERSION, 0, length, len(epochs), base_offset, layout.identity_of(key))
    body = (fields + b"".join(_EPOCH.pack(epoch, 0, start) for epoch, start in epochs)).ljust(length - _CRC.size, b"\0")
    return body + _CRC.pack(google_crc32c.value(body))


def _header_bytes(epochs: int) -> int:
    used = _FIELDS.size + epochs * _EPOCH.size + _CRC.size
    return -(-used // ALIGNMENT) * ALIGNMENT


@rereads
def read_header(store: Readable, log: str, name: str) -> tuple[int, EpochStarts, int]:
    """Return base offset, leader epochs and the position of the first chunk of the .log at key `log`.

    Raises `CorruptObject`, with `name`, and `NewerFormat`.
    """
    fields = store.read(log, 0, _FIELDS.size)
    if len(fields) < _FIELDS.size or fields[:4] != _MAGIC:
        raise CorruptObject(name, f"it does not begin with {_MAGIC!r}")
    _, version, _, length, count, base_offset, identity = _FIELDS.unpack(fields)
    if count > LEADER_EPOCHS_MAX:
        raise CorruptObject(name, f"its header has {count} leader epochs; the maximum is {LEADER_EPOCHS_MAX}")
    if length < ALIGNMENT or (version <= _VERSION and length != _header_bytes(count)):
        raise CorruptObject(name, f"its header is {length} bytes long, which does not fit {count} leader epochs")
    data = store.read(log, 0, length)
    if len(data) < length or google_crc32c.value(data[:-4]) != _CRC.unpack(data[-4:])[0]:
        raise CorruptObject(name, "the checksum of its header does not match")
    if not data.startswith(fields):
        raise CorruptObject(name, "its header changed while it was read")
    if version > _VERSION:
        raise NewerFormat(name, f"segment format {version}, this version reads up to {_VERSION}")
    if identity != layout.identity_of(log):
        raise CorruptObject(name, "it is another segment, by the identity in its header")
    starts = (_EPOCH.unpack_from(data, _FIELDS.size + i * _EPOCH.size) for i in range(count))
    return base_offset, tuple((epoch, start) for epoch, _, start in starts), length


def entry_of(header: chunk.Header, offset: int, position: int, epochs: EpochStarts) -> IndexEntry:
    """Return the entry of the chunk with first offset `offset` at byte `position` of the .log."""
    # The log start may be inside the first chunk: its remaining rows belong to the oldest epoch that is kept.
    epoch = max((number for number, start in epochs if start <= offset), default=epochs[0][0] if epochs else 0)
    return IndexEntry(
        offset,
        header.rows,
        position,
        header.length,
        epoch,
        header.schema_id,
        header.min_timestamp,
        header.max_timestamp,
        header.crc,
    )
