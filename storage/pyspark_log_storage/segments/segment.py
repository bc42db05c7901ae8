"""A segment: many chunks of one partition in one file that can be read without a journal.

    <partition>/<base offset, 20 digits>-<born>-<nonce>.log      with an .index of the same name

    .log    offset  bytes  field (little-endian)
            0       4      magic b"PLSG"
            4       4      length of the envelope (n)
            8       n      envelope b"PLSG", version 1, place: the segment's name, body: msgpack array of leader epochs,
                           each of these an array of epoch and first offset
            8 + n   ...    chunks, back to back, as in an append file

A segment is created once and never replaced: its name contains the newest entry that its writer knew (born) and a
nonce, so a slow writer cannot replace committed bytes. The index is derived from the .log, and offsets from the base
offset, which is in the name, and the rows of the chunks.

A segment may be a Parquet file instead (`parquet_segment`), which its name says: it ends in .parquet. Its row groups
are what chunks are here. The functions that take the key of a segment serve both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.files.index import IndexEntry
from pyspark_log_storage.files.row_files import EpochStarts
from pyspark_log_storage.objects.envelope import seal, unseal
from pyspark_log_storage.stored_fields import Count
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_storage.files.row_files import SegmentFile, SegmentPlace, StagedChunk
    from pyspark_log_storage.stores.store import Readable

HEADER_BYTES_MAX = 16 * 1024 * 1024
"""Room for a million leader epochs."""

_MAGIC = b"PLSG"
_VERSION = 1
_PREFIX = struct.Struct("<4sI")
_decoder = msgspec.msgpack.Decoder(tuple[tuple[Count, Count], ...])


class SegmentWriter:
    """Writes a segment: its .log chunk by chunk, then its .index."""

    def __init__(self, store: SegmentPlace, key: str, epochs: EpochStarts) -> None:
        """`epochs` are the leader epochs of the rows, with their first offsets."""
        self._store, self._key, self._epochs = store, key, epochs
        self._writer = store.open_write(layout.segment_file(key))
        header = encode_header(key, epochs)
        self._writer.write(header)
        self._position = len(header)
        self.entries: list[IndexEntry] = []

    @property
    def end_offset(self) -> int:
        """The first offset of the next chunk."""
        return self.entries[-1].end_offset if self.entries else layout.base_offset_of(self._key)

    def append(self, place: StagedChunk, data: bytes) -> None:
        """Append a chunk; `place` is where it was before, `data` is all of its bytes, already checked."""
        self._writer.write(data)
        self.entries.append(_entry_of(place, self.end_offset, self._position, self._epochs))
        self._position += place.length

    def close(self) -> SegmentFile:
        """Publish both files, durably, the .log last: a segment with a .log is complete."""
        self._store.create(f"{self._key}.index", index.encode(self._key, self.entries))
        self._writer.close()
        return index.segment_of(self._key, self.entries, self._position)

    def discard(self) -> None:
        self._writer.discard()


def chunks(
    store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None
) -> Iterator[tuple[IndexEntry, StagedChunk, pa.Buffer]]:
    """Yield every chunk of the .log of the segment at `key`, checked, without the index.

    With `schemas` a chunk whose rows cannot be decoded is damaged, too. Keeps one chunk in memory. Raises
    `CorruptObject` at the first damaged one.
    """
    log = layout.segment_file(key)
    name = f"segment {store.url}/{log}"
    epochs, position = read_header(store, key)
    offset = layout.base_offset_of(key)
    for place, data in append_file.scan(store, log, position):
        if schemas is not None:
            chunk.decode(data, place, schemas, f"{name} at byte {place.position}")
        yield _entry_of(place, offset, place.position, epochs), place, data
        offset += place.rows


def entries(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> Iterator[IndexEntry]:
    """Yield the entries that the index of the segment at `key` must have, each after its bytes were checked.

    With `schemas` rows that cannot be decoded are damaged, too. Keeps one chunk, or row group, in memory. Raises
    `CorruptObject` at the first damaged one, `NewerFormat`, `StoreError`.
    """
    if layout.is_parquet(key):
        from pyspark_log_storage.parquet import parquet_footer, row_group

        pieces = row_group.pieces(store, key, parquet_footer.read(store, key), schemas)
        yield from (entry for entry, _ in pieces if entry is not None)
    else:
        yield from (entry for entry, _, _ in chunks(store, key, schemas))


def scan(store: Readable, key: str, schemas: Sequence[pa.Schema] | None = None) -> list[IndexEntry]:
    return list(entries(store, key, schemas))


def epochs_of(store: Readable, key: str) -> EpochStarts:
    """Return the leader epochs of the segment at `key`. Raises `CorruptObject`, `NewerFormat`."""
    if layout.is_parquet(key):
        from pyspark_log_storage.parquet import parquet_footer

        return parquet_footer.read(store, key).segment.leader_epochs
    return read_header(store, key)[0]


def encode_header(key: str, epochs: EpochStarts) -> bytes:
    sealed = seal(_MAGIC, _VERSION, msgspec.msgpack.encode(epochs), layout.name_of(key))
    assert len(sealed) <= HEADER_BYTES_MAX
    return _PREFIX.pack(_MAGIC, len(sealed)) + sealed


@rereads
def read_header(store: Readable, key: str) -> tuple[EpochStarts, int]:
    """Return the leader epochs and the position of the first chunk of the .log of the segment at `key`.

    Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    log = layout.segment_file(key)
    name, prefix = f"segment {store.url}/{log}", store.read(log, 0, _PREFIX.size)
    if len(prefix) < _PREFIX.size or prefix[:4] != _MAGIC:
        raise CorruptObject(name, f"it does not begin with {_MAGIC!r}")
    _, length = _PREFIX.unpack(prefix)
    if length > HEADER_BYTES_MAX:
        raise CorruptObject(name, f"its header has {length} bytes; the maximum is {HEADER_BYTES_MAX}")
    body = unseal(_MAGIC, _VERSION, store.read(log, _PREFIX.size, length), name, layout.name_of(key))
    return decoding.decode(_decoder.decode, body, name, CorruptObject), _PREFIX.size + length


def _entry_of(place: StagedChunk, offset: int, position: int, epochs: EpochStarts) -> IndexEntry:
    """Return the entry of the chunk with first offset `offset` at byte `position` of the .log."""
    # The log start may be inside the first chunk: its remaining rows belong to the oldest epoch that is kept.
    epoch = max((number for number, start in epochs if start <= offset), default=epochs[0][0] if epochs else 0)
    return IndexEntry(
        offset,
        place.rows,
        position,
        place.length,
        epoch,
        place.schema_id,
        place.min_timestamp,
        place.max_timestamp,
        place.crc,
    )
