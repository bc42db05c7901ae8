"""Recovery: up to which offset a partition's segments are undamaged, according to its folder, without the journal.

After an unclean shutdown Kafka reads the segments from the recovery point on, checks every checksum, truncates at the
first damaged batch and rebuilds the indexes. Here files are immutable and become visible whole, so nothing is truncated
and only indexes are written. Segments overlap after small ones were merged; then any undamaged one suffices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files.index import Index, IndexEntry
from pyspark_log_storage.segments import segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_storage.stores.store import Store


class BadFile(msgspec.Struct, frozen=True):
    """The file in which the good rows end, and why."""

    file: str
    """Its key, without ending for a segment."""
    why: str


class Recovered(msgspec.Struct, frozen=True):
    """The result of a recovery."""

    end_offset: int
    """The rows from the recovery point to this offset are good."""
    checked: tuple[str, ...]
    """The segments that were read, without ending."""
    rebuilt: tuple[str, ...]
    """Those whose index was missing or damaged."""
    damage: BadFile | None
    """Why later rows are lost; None if there are none."""


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


def recover(
    store: Store,
    folder: str,
    recovery_point: int,
    *,
    schemas: Sequence[pa.Schema] | None = schema.RECORD_SCHEMAS,
    unrolled: Sequence[tuple[int, int]] = (),
    dry_run: bool = False,
) -> Recovered:
    """Check the segments in a partition's folder that have rows from the recovery point on.

    `folder` ends with "/". `schemas` are the topic's; None: only the bytes are checked. `unrolled` are the ranges of
    good rows that are in no segment yet, ascending. Rebuilds indexes that are missing or damaged, unless it is a dry
    run. Raises `NewerFormat`, `StoreError`.
    """
    checked, rebuilt = [], []
    for key, _ in _segments_from(store, folder, recovery_point):
        found = read_segment(store, key, schemas)
        checked.append(found)
        if found.why is None and not found.is_indexed:
            rebuilt.append(key)
            if not dry_run:
                segment.rebuild_index(store, key)
    reached = recovery_point
    for base_offset, end_offset in sorted([*((each.base_offset, each.end_offset) for each in checked), *unrolled]):
        if base_offset <= reached:
            reached = max(reached, end_offset)
    keys = tuple(each.key for each in checked)
    return Recovered(reached, keys, tuple(rebuilt), _damage_at(store, checked, reached))


def first_offset(store: Store, folder: str, default: int) -> int:
    """Return the first offset of the segments in a folder, or `default` if there are none."""
    return min((base_offset for _, base_offset in _segments_from(store, folder, 0)), default=default)


def _damage_at(store: Store, checked: list[ReadSegment], reached: int) -> BadFile | None:
    """Return why the good rows end at `reached`, or None if there are no later ones."""
    for each in checked:
        if each.why is None or each.base_offset > reached:
            continue
        # Another one may have some of its rows, and so reach farther than its own good ones.
        if each.end_offset == reached or _claimed_end(store, each.key) > reached:
            return BadFile(each.key, each.why)
    for each in checked:
        if each.base_offset > reached:
            return BadFile(each.key, f"it begins at {each.base_offset}, and no segment holds the rows before it")
    return None


def _segments_from(store: Store, folder: str, offset: int) -> Iterator[tuple[str, int]]:
    """Yield key and base offset of the segments that may have rows from `offset` on, in the order of their bases."""
    for name in store.list(folder):
        key = layout.segment_in(name)
        if key is not None and "/" not in key.removeprefix(folder):
            base_offset = layout.base_offset_of(key)
            if base_offset >= offset or _end_offset(store, key) > offset:
                yield key, base_offset


def _end_offset(store: Store, key: str) -> int:
    """Return the end offset of a segment by its index or, without an index, by its chunks."""
    if (claimed := _claimed_end(store, key)) >= 0:
        return claimed
    entries, why = good_chunks(store, key)
    # A damaged segment may have had more rows.
    return layout.NUMBER_MAX if why is not None or not entries else entries[-1].end_offset


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
