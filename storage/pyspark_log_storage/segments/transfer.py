"""Transfer of append files and segments from one store to another, under the same key and with the same bytes.

An object is read chunk by chunk, or row group by row group, and each is checked: its CRC, and that it is the one that
the journal names. The copy becomes visible, whole and durable, only after all checks have passed, so an interruption
leaves no partial object.

The index of a segment is not copied but written anew, before the file with the rows as everywhere.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable
from pyspark_log_storage.files import append_file, index
from pyspark_log_storage.files.row_files import SegmentFile
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.stores.store import Readable, Store

RANGE_BYTES = 4 * 1024 * 1024
"""How much is read at once."""


class ReadAhead:
    """Reads an object from its begin to its end, in few large reads. Keeps the last range.

    In an object store each read is a request, and a walk over chunks reads each header and each chunk. What is read
    from here and is damaged must be read again from the store itself: the damage may be of the way, and is kept here.
    """

    def __init__(self, store: Readable) -> None:
        self._store = store
        self.url = store.url
        self._key = ""
        self._start = 0
        self._data = b""

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes from `start`. Raises `ObjectMissing`, `StoreError`."""
        if length is None:
            return self._store.read(key, start, length)
        if key != self._key or not self._start <= start <= self._start + len(self._data):
            self._key, self._start, self._data = key, start, b""
        begin = start - self._start
        missing = begin + length - len(self._data)
        if missing > 0:
            kept = self._data[begin:]
            more = self._store.read(key, start + len(kept), max(missing, RANGE_BYTES))
            self._start, self._data, begin = start, kept + more, 0
        return self._data[begin : begin + length]

    def size(self, key: str) -> int:
        return self._store.size(key)


@rereads
def copy(
    source: Store,
    target: Store,
    key: str,
    what: SegmentFile | Sequence[StagedChunk],
    moved: Callable[[int], object] = lambda _: None,
    *,
    replace: bool = False,
) -> None:
    """Copy the segment at `key`, or the append file, of which the journal names some chunks.

    The target must not exist, unless it is to `replace` a damaged copy. `moved` is called with the number of bytes
    after each piece; it may wait. Raises `CorruptObject` and `NewerFormat` for the source, `StoreError` for either.
    """
    entries: list[IndexEntry] = []
    stored_key = layout.segment_file(key) if isinstance(what, SegmentFile) else key
    writer = target.open_write(stored_key, replace=replace)
    try:
        for piece in _pieces(source, key, what, entries):
            writer.write(piece)
            moved(len(piece))
        if entries:
            _put_index(target, key, entries)
        writer.close()
    except BaseException:
        writer.discard()
        raise


@rereads
def check(
    store: Store,
    key: str,
    what: SegmentFile | Sequence[StagedChunk],
    moved: Callable[[int], object] = lambda _: None,
    *,
    dry_run: bool = False,
) -> bool:
    """Check a file as a copy would. Rebuild a segment's index if that is missing or damaged; return whether it was.

    A `dry_run` leaves the index as it is. Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    entries: list[IndexEntry] = []
    for piece in _pieces(store, key, what, entries):
        moved(len(piece))
    return bool(entries) and not dry_run and _put_index(store, key, entries)


def _pieces(
    store: Readable, key: str, what: SegmentFile | Sequence[StagedChunk], entries: list[IndexEntry]
) -> Iterator[bytes | pa.Buffer]:
    """Yield the bytes of a file in pieces, checked, and add the entries of a segment's index to a list.

    Raises `CorruptObject` if it is not the one that the journal names.
    """
    if not isinstance(what, SegmentFile):
        yield from _append_file(store, key, what)
        return
    length = 0
    for entry, piece in _parquet(store, key, what) if layout.is_parquet(key) else _log(store, key):
        entries += [] if entry is None else [entry]
        yield piece
        length += len(piece)
    check_entries(f"segment {store.url}/{layout.segment_file(key)}", what, entries, length)


def _put_index(store: Store, key: str, entries: Sequence[IndexEntry]) -> bool:
    """Write a segment's index; return whether it was missing or damaged."""
    index_key, data = f"{key}.index", index.encode(key, entries)
    if store.create(index_key, data):
        return True
    with contextlib.suppress(StoreUnavailable):  # it may be on a bad sector
        if index.is_right(store, key, entries):
            return False
    store.put(index_key, data)
    return True


def _append_file(store: Readable, key: str, places: Sequence[StagedChunk]) -> Iterator[pa.Buffer]:
    """Yield the chunks of an append file, checked. Raises `CorruptObject` if one that the journal names is missing."""
    name = f"{store.url}/{key}"
    expected = {place.position: msgspec.structs.replace(place, partition=0) for place in places}
    for place, data in append_file.scan(ReadAhead(store), key):
        if expected.pop(place.position, place) != place:
            raise CorruptObject(f"{name} at byte {place.position}", "it is another chunk than the journal says")
        yield data
    if expected:
        raise CorruptObject(f"{name} at byte {min(expected)}", "no chunk begins here, where the journal names one")


def check_entries(name: str, expected: SegmentFile, entries: Sequence[IndexEntry], size: int) -> None:
    """Raise `CorruptObject` unless a segment of `size` bytes with these entries is the one that the journal names."""
    begin, end = (entries[0].base_offset, entries[-1].end_offset) if entries else (0, 0)
    found = begin, end, len(entries), size
    wanted = expected.base_offset, expected.end_offset, expected.chunks, expected.log_bytes
    if found != wanted:
        detail = f"it has {len(entries)} chunks of offsets {begin} to {end} in {size} bytes, where the journal says "
        raise CorruptObject(name, f"{detail}{wanted[2]} of {wanted[0]} to {wanted[1]} in {wanted[3]}")


def _log(store: Readable, key: str) -> Iterator[tuple[IndexEntry | None, bytes | pa.Buffer]]:
    ahead = ReadAhead(store)
    epochs, _ = segment.read_header(ahead, key)
    yield None, segment.encode_header(key, epochs)
    yield from ((entry, data) for entry, _, data in segment.chunks(ahead, key))


def _parquet(store: Readable, key: str, expected: SegmentFile) -> Iterator[tuple[IndexEntry | None, bytes]]:
    from pyspark_log_storage.parquet import parquet_footer, row_group

    footer = parquet_footer.read(store, key)
    if footer.segment.keyed != expected.keyed:
        detail = f"it has the counts {footer.segment.keyed}, where the journal says {expected.keyed}"
        raise CorruptObject(f"segment {store.url}/{key}", detail)
    yield from row_group.pieces(store, key, footer)
    yield None, parquet_footer.read_tail(store, key, footer)
