"""The check of a Parquet segment that arrives in pieces, as it is copied, and is never in memory as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import index
from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.parquet.parquet_footer import MAGIC

if TYPE_CHECKING:
    from pyspark_log_storage.files.segment_file import SegmentFile
    from pyspark_log_storage.stores.store import Readable


class ParquetCheck:
    """Checks that a .parquet is the segment that the journal names. Reads the footer first, then takes every byte."""

    def __init__(self, store: Readable, key: str, expected: SegmentFile) -> None:
        """Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
        self._name = f"segment {store.url}/{key}"
        self._footer = footer = parquet_footer.read(store, key)
        last = footer.entries[-1]
        found = (footer.entries[0].base_offset, last.end_offset, len(footer.entries), footer.file_bytes)
        wanted = (expected.base_offset, expected.end_offset, expected.chunks, expected.log_bytes)
        if found != wanted:
            raise CorruptObject(
                self._name,
                f"it has {found[2]} row groups of offsets {found[0]} to {found[1]} in {found[3]} bytes, where the "
                f"journal says {wanted[2]} of {wanted[0]} to {wanted[1]} in {wanted[3]}",
            )
        self._parts = [
            (0, len(MAGIC), google_crc32c.value(MAGIC)),
            *((each.position, each.length, each.crc) for each in footer.entries),
            (footer.tail.position, footer.file_bytes - footer.tail.position, footer.tail.crc),
        ]
        self._parts.reverse()
        self._crc = self._taken = 0

    def feed(self, data: bytes) -> None:
        """Check the next bytes. Raises `CorruptObject`."""
        left = memoryview(data)
        while left:
            if not self._parts:
                raise CorruptObject(self._name, "it became longer while it was read")
            position, length, crc = self._parts[-1]
            piece = left[: length - self._taken]
            self._crc = google_crc32c.extend(self._crc, bytes(piece))
            self._taken += len(piece)
            left = left[len(piece) :]
            if self._taken == length:
                if self._crc != crc:
                    raise CorruptObject(f"{self._name} at byte {position}", "its checksum does not match its bytes")
                self._parts.pop()
                self._crc = self._taken = 0

    def end(self) -> None:
        """Check that nothing is missing. Raises `CorruptObject`."""
        if self._parts:
            raise CorruptObject(f"{self._name} at byte {self._parts[-1][0]}", "the file was cut while it was read")

    def index(self) -> bytes:
        """Return the index of the checked segment."""
        footer = self._footer
        return index.encode(footer.segment.base_offset, footer.file_bytes, footer.entries, footer.tail)
