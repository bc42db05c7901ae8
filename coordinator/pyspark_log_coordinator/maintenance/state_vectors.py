"""Deletion vectors of keyed segments: they leave the newest row of each key, without the keys that were deleted.

    a segment that the table does not have yet     rows in its list and in those of all later segments, rows that delete
                                                   their key, and rows without a key
    one that it has                                those, and rows in the lists of later segments that are new

A list of superseded rows never changes, and what it names stays superseded. So only new segments are read: their lists
and, if rows may delete their keys, the column that says so. Of other segments, the key index is read if new lists name
rows of theirs: in the order of the offsets, it tells which row of the file each one is. A fold has read as much.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.key_index import NONE, deletes, is_in, union
from pyspark_log_storage.delta import deletion_vector
from pyspark_log_storage.parquet import keyed_segment, parquet_footer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pyspark_log_coordinator.model.partition import SegmentRef
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.delta.delta_actions import DeletionVector
    from pyspark_log_storage.parquet.parquet_footer import Footer
    from pyspark_log_storage.stores.store import Readable

    Offsets = NDArray[np.int64]


def vectors(
    store: Readable,
    folder: str,
    topic: Topic,
    segments: Sequence[SegmentRef],
    known: Mapping[str, DeletionVector | None],
) -> list[DeletionVector | None]:
    """Return the deletion vector of each of a partition's keyed segments, None for one whose rows are all there.

    `folder` is the partition's, and ends with "/". `known` are the vectors that the table has now, by the names of
    segments. Raises `CorruptObject`, `ObjectMissing`, `NewerFormat`, `StoreError`.
    """
    first_new = next((number for number, each in enumerate(segments) if each.name not in known), len(segments))
    schemas = schema.decode_all(topic.schemas, f"topic {topic.name!r}")
    lists: list[Offsets] = []
    new_lists: list[Offsets] = []
    found: list[DeletionVector | None] = []
    for number in range(len(segments) - 1, -1, -1):
        segment = segments[number]
        file = _KeyedFile(store, f"{folder}{segment.name}", schemas)
        if number >= first_new:  # its own list may name its last row
            lists.append(keyed_segment.read_superseded(store, file.key))
            new_lists += [] if segment.name in known else lists[-1:]
        if segment.name in known:
            found.append(file.vector_with(known[segment.name], _named(new_lists, segment)))
        else:
            found.append(file.vector(topic.config, segment, _named(lists, segment)))
    return found[::-1]


def _named(lists: Sequence[Offsets], segment: SegmentRef) -> Offsets:
    """Return which offsets of a segment's range are in lists, ascending."""
    bounds = segment.base_offset, segment.end_offset
    return union(*(each[slice(*np.searchsorted(each, bounds))] for each in lists))


class _KeyedFile:
    """The file of a keyed segment, of which only what is needed is read."""

    def __init__(self, store: Readable, key: str, schemas: tuple[pa.Schema, ...]) -> None:
        self.key = key
        self._store, self._schemas = store, schemas

    @cached_property
    def _footer(self) -> Footer:
        return parquet_footer.read(self._store, self.key)

    def vector(self, config: TopicConfig, segment: SegmentRef, superseded: Offsets) -> DeletionVector | None:
        """Return the vector of a segment that the table does not have yet."""
        roles = config.compaction_columns
        columns: tuple[str, ...] = ()
        if roles.delete_when:  # the journal has counted its rows, but maybe of a column that was set before
            columns = (roles.delete_when,)
        elif segment.keyed is not None and segment.keyed.tombstones and roles.value:
            columns = (roles.value,)
        if not columns and keyed_segment.has_every_key(self._footer):
            return self.vector_with(None, superseded)
        with_key = np.sort(keyed_segment.read_keys(self._store, self.key, self._footer).offsets)
        dead = [np.zeros(0, bool)]
        for rows, offsets in self._rows(columns):
            is_dead = is_in(offsets, superseded) | ~is_in(offsets, with_key)
            dead.append(is_dead | deletes(rows, roles) if columns else is_dead)
        return deletion_vector.encode(np.flatnonzero(np.concatenate(dead)))

    def vector_with(self, vector: DeletionVector | None, superseded: Offsets) -> DeletionVector | None:
        """Return the segment's vector with more superseded rows, of which some may be gone."""
        if not len(superseded):
            return vector
        offsets = self._offsets()
        found = np.flatnonzero(is_in(offsets, superseded))
        if vector is not None:
            before = deletion_vector.decode(vector, len(offsets), f"the Delta table of {self._store.url}/{self.key}")
            found = union(before, found)
        return deletion_vector.encode(found)

    def _offsets(self) -> Offsets:
        """Return the offsets of the rows, in the order of the file."""
        if keyed_segment.has_every_key(self._footer):
            return np.sort(keyed_segment.read_keys(self._store, self.key, self._footer).offsets)
        return np.concatenate([NONE, *(offsets for _, offsets in self._rows(()))])

    def _rows(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Offsets]]:
        for entry in self._footer.entries:
            yield keyed_segment.read_rows(self._store, self.key, self._footer, entry, self._schemas, columns)
