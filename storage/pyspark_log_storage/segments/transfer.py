"""Transfer of append files and segments from one store to another, under the same key and with the same bytes.

An object is read in ranges of 4 MiB, so large objects and chunks need no more memory. Every chunk is checked: its CRC,
and that it is the one that the journal names. So is every row group of a Parquet segment. The copy
becomes visible, whole and durable, only after all checks have passed, so an interruption leaves no partial object.

The index of a segment is not copied but written anew, before the file with the rows as everywhere.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreUnavailable
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import SegmentFile, StagedChunk
    from pyspark_log_storage.stores.store import ObjectWriter, Readable, Store

RANGE_BYTES = 4 * 1024 * 1024
"""How much is read, checked and written at once."""


class _Check(Protocol):
    """Checks an object while it is read."""

    def feed(self, data: bytes) -> None:
        """Check the next bytes. Raises `CorruptObject`, `NewerFormat`."""

    def end(self) -> None:
        """Check that nothing is missing. Raises `CorruptObject`."""


def has_object(store: Store, key: str) -> bool:
    """Return whether the object exists."""
    try:
        store.size(key)
    except ObjectMissing:
        return False
    return True


@rereads
def copy_append_file(
    source: Store,
    target: Store,
    key: str,
    places: Sequence[StagedChunk],
    moved: Callable[[int], object] = lambda _: None,
    *,
    replace: bool = False,
) -> None:
    """Copy the append file at `key`. `places` are the chunks that the journal names in it.

    The target must not exist, unless it is to `replace` a damaged copy. `moved` is called with the number of bytes
    after each range; it may wait. Raises `CorruptObject` and `NewerFormat` for the source, `StoreError` for either.
    """
    with _published(target.open_write(key, replace=replace)) as writer:
        _read_through(source, key, _AppendFileCheck(places, f"{source.url}/{key}"), writer.write, moved)


@rereads
def check_append_file(
    store: Readable, key: str, places: Sequence[StagedChunk], moved: Callable[[int], object] = lambda _: None
) -> None:
    """Check an append file as a copy would. Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
    _read_through(store, key, _AppendFileCheck(places, f"{store.url}/{key}"), bool, moved)


@rereads
def copy_segment(
    source: Store,
    target: Store,
    key: str,
    expected: SegmentFile,
    moved: Callable[[int], object] = lambda _: None,
    *,
    replace: bool = False,
) -> None:
    """Copy the segment at `key`, which the journal describes as `expected`.

    See `copy_append_file`.
    """
    file = layout.segment_file(key)
    check = _check_of(source, key, expected)
    with _published(target.open_write(file, replace=replace)) as writer:
        _read_through(source, file, check, writer.write, moved)
        _put_index(target, key, check.entries)


@rereads
def check_segment(
    store: Store,
    key: str,
    expected: SegmentFile,
    moved: Callable[[int], object] = lambda _: None,
    *,
    dry_run: bool = False,
) -> bool:
    """Check a segment as a copy would. Rebuild its index if that is missing or damaged; return whether it was.

    A `dry_run` leaves the index as it is. Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    check = _check_of(store, key, expected)
    _read_through(store, layout.segment_file(key), check, bool, moved)
    return not dry_run and _put_index(store, key, check.entries)


@contextlib.contextmanager
def _published(writer: ObjectWriter) -> Iterator[ObjectWriter]:
    """Close the writer at the end, or discard its object after an error."""
    try:
        yield writer
        writer.close()
    except BaseException:
        writer.discard()
        raise


def _read_through(
    store: Readable, key: str, check: _Check, write: Callable[[bytes], object], moved: Callable[[int], object]
) -> None:
    position = 0
    while data := store.read(key, position, RANGE_BYTES):
        check.feed(data)
        write(data)
        position += len(data)
        moved(len(data))
    check.end()


def _put_index(store: Store, key: str, entries: Sequence[IndexEntry]) -> bool:
    """Write a segment's index; return whether it was missing or damaged."""
    index_key, data = f"{key}.index", index.encode(key, entries)
    if store.create(index_key, data):
        return True
    with contextlib.suppress(StoreUnavailable):  # it may be on a bad sector
        if segment.index_is_right(store, key, entries):
            return False
    store.put(index_key, data)
    return True


class _Chunks:
    """Checks chunks, back to back, that arrive in pieces."""

    def __init__(self, position: int, name: str, whole: Callable[[int, chunk.Header], object]) -> None:
        """`whole` is called with the position and header of each complete chunk."""
        self._begin = position
        self._name = name
        self._whole = whole
        self._head = b""
        self._verifier: chunk.Verifier | None = None

    def feed(self, data: pa.Buffer) -> None:
        while data.size or (self._verifier is not None and self._verifier.left == 0):
            if self._verifier is None:
                missing = chunk.HEADER_BYTES - len(self._head)
                self._head += data[:missing].to_pybytes()
                data = data[missing:]
                if len(self._head) == chunk.HEADER_BYTES:
                    self._verifier = chunk.Verifier(self._head, f"{self._name} at byte {self._begin}")
            elif self._verifier.left:
                piece = data[: self._verifier.left]
                self._verifier.update(piece)
                data = data[piece.size :]
            else:
                header = self._verifier.finish()
                self._whole(self._begin, header)
                self._begin += header.length
                self._head, self._verifier = b"", None

    def end(self) -> None:
        if self._head:
            raise CorruptObject(f"{self._name} at byte {self._begin}", "the file ends inside a chunk")


class _AppendFileCheck:
    """Checks that a file consists of whole chunks and has those that the journal names."""

    def __init__(self, places: Sequence[StagedChunk], name: str) -> None:
        self._name = name
        self._expected = {place.position: place for place in places}
        self._chunks = _Chunks(0, name, self._take)

    def feed(self, data: bytes) -> None:
        self._chunks.feed(pa.py_buffer(data))

    def _take(self, position: int, header: chunk.Header) -> None:
        place = self._expected.pop(position, None)
        if place is not None and (header.crc, header.length, header.rows, header.schema_id) != (
            place.crc,
            place.length,
            place.rows,
            place.schema_id,
        ):
            name = f"{self._name} at byte {position}"
            raise CorruptObject(name, "it is another chunk than the journal says")

    def end(self) -> None:
        self._chunks.end()
        if self._expected:
            name = f"{self._name} at byte {min(self._expected)}"
            raise CorruptObject(name, "no chunk begins here, where the journal names one")


class _IndexedCheck(_Check, Protocol):
    """A check after which the entries of the segment's index are known."""

    @property
    def entries(self) -> Sequence[IndexEntry]:
        """The entries of what was checked."""


def _check_of(store: Store, key: str, expected: SegmentFile) -> _IndexedCheck:
    if layout.is_parquet(key):
        from pyspark_log_storage.parquet.parquet_footer import ParquetCheck

        return ParquetCheck(store, key, expected)
    return _SegmentCheck(store, layout.segment_file(key), expected)


class _SegmentCheck:
    """Checks that a .log is the segment that the journal names."""

    def __init__(self, store: Store, log: str, expected: SegmentFile) -> None:
        self._name = f"segment {store.url}/{log}"
        self._expected = expected
        base_offset, self._epochs, length = segment.read_header(store, log, self._name)
        if base_offset != expected.base_offset:
            raise CorruptObject(self._name, f"it begins at offset {base_offset}, not {expected.base_offset}")
        self._header = segment.encode_header(log, base_offset, self._epochs)
        self._header_read = b""
        self._length = length
        self._offset = base_offset
        self.entries: list[IndexEntry] = []
        self._chunks = _Chunks(length, self._name, self._take)

    def feed(self, data: bytes) -> None:
        left = pa.py_buffer(data)
        missing = len(self._header) - len(self._header_read)
        if missing:
            self._header_read += left[:missing].to_pybytes()
            left = left[missing:]
            if not self._header.startswith(self._header_read):
                raise CorruptObject(self._name, "its header changed while it was read")
        self._chunks.feed(left)

    def _take(self, position: int, header: chunk.Header) -> None:
        self.entries.append(segment.entry_of(header, self._offset, position, self._epochs))
        self._offset += header.rows
        self._length += header.length

    def end(self) -> None:
        self._chunks.end()
        expected = self._expected
        found = (self._offset, len(self.entries), self._length)
        if found != (expected.end_offset, expected.chunks, expected.log_bytes):
            raise CorruptObject(
                self._name,
                f"it has {len(self.entries)} chunks up to offset {self._offset} in {self._length} bytes, where the "
                f"journal says {expected.chunks} up to {expected.end_offset} in {expected.log_bytes}",
            )
