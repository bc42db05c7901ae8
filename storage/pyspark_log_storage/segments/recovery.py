"""Segments that are read without a journal: their good chunks, and what is wrong with the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files.index import Index, IndexEntry
from pyspark_log_storage.segments import segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_log_storage.stores.store import Store


class ReadSegment(msgspec.Struct, frozen=True):
    """A segment that was read as a whole, from its folder alone."""

    key: str
    """Without ending."""
    base_offset: int
    """As its name says."""
    entries: list[IndexEntry]
    """The good chunks, or row groups, at its beginning."""
    why: str | None
    """What is wrong with the next one; None if the segment is whole."""
    is_indexed: bool
    """Whether the segment is whole, and its index exists and is right."""

    @property
    def end_offset(self) -> int:
        """The end of its good rows."""
        return self.entries[-1].end_offset if self.entries else self.base_offset


def read_segment(store: Store, key: str, schemas: Sequence[pa.Schema] | None = None) -> ReadSegment:
    """Read the segment at `key`; see `good_chunks`. Raises `ObjectMissing`, `NewerFormat`, `StoreError`."""
    entries, why = good_chunks(store, key, schemas)
    named = layout.base_offset_of(key)
    if entries and entries[0].base_offset != named:
        entries, why = [], f"it begins at offset {entries[0].base_offset}, not {named} as its name says"
    is_indexed = why is None and segment.index_is_right(store, key, entries)
    return ReadSegment(key, named, entries, why, is_indexed)


def good_chunks(
    store: Store, key: str, schemas: Sequence[pa.Schema] | None = None
) -> tuple[list[IndexEntry], str | None]:
    """Return the good chunks, or row groups, at the beginning of a segment, and what is wrong with the next one.

    With `schemas` a chunk is good if its rows can be read; without them if its bytes are
    unchanged, which suffices for copying. Raises `NewerFormat`, `StoreError`.
    """
    entries: list[IndexEntry] = []
    try:
        entries.extend(segment.entries(store, key, schemas))  # what came before an error stays
    except CorruptObject as error:
        return entries, str(error)
    if not entries:
        return [], "it holds no chunk"
    return entries, _cut(store, key, entries[-1].end_offset)


def _cut(store: Store, key: str, end_offset: int) -> str | None:
    """Return an error if an intact index has chunks that the segment lacks."""
    claimed = _claimed_end(store, key)
    return f"it ends at {end_offset}, its index at {claimed}" if claimed > end_offset else None


def _claimed_end(store: Store, key: str) -> int:
    """Return the end offset of a segment by its index, or -1 without an intact one."""
    try:
        return int(Index(store, f"{key}.index").end_offset)
    except (CorruptObject, ObjectMissing):
        return -1
