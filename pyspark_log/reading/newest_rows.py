"""Which rows of a compacted partition are the newest of their keys, without Spark.

    the head    at most one row of each key: all but those whose keys the tail has
    the tail    the rows after the head, and of these the newest of each key

A row that deletes its key is left out, and so is one without a key: a topic may have such rows from before it was
compacted, and the head may have one as a placeholder. To find the newest rows, the keys of the tail and those of the
head are read: the former are in memory, and as many of the latter at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import fetch, schemas_of
from pyspark_log_storage import layout
from pyspark_log_storage.columns.keys import NONE, deletes, is_in, keys_in, matched, newest
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.compaction_columns import CompactionColumns
    from pyspark_log_storage.columns.keys import Offsets
    from pyspark_log_storage.stores.store import Store


class KeyedPartition(msgspec.Struct, frozen=True):
    """What a reader of the newest rows of a partition needs besides its split."""

    compacted_end: int
    columns: CompactionColumns
    """The columns that say a row's key, and whether it deletes its key."""
    placeholders: tuple[int, ...] = ()
    """The offsets of rows of the head that are not the newest of a key."""


class NewestRows(msgspec.Struct, frozen=True):
    """Which rows of a partition are the newest of their keys."""

    partition: KeyedPartition
    superseded: NDArray[np.int64]
    """The offsets of the rows of the head that are not, ascending."""
    tail: NDArray[np.int64]
    """The offsets of the rows of the tail that are, ascending."""

    def only(self, offsets: Offsets, rows: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return those of some rows that are the newest of their keys, and do not delete them."""
        is_of_head = offsets < self.partition.compacted_end
        is_newest = np.where(is_of_head, ~is_in(offsets, self.superseded), is_in(offsets, self.tail))
        chosen = is_newest & self._sets_a_key(rows)
        return offsets[chosen], rows.filter(pa.array(chosen))

    def _sets_a_key(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows have a key, and do not delete it. Older rows of a typed topic may lack the columns."""
        names, columns = rows.schema.names, self.partition.columns
        if any(each not in names for each in columns.keys):
            return np.zeros(rows.num_rows, bool)
        sets = ~deletes(rows, columns)
        for each in columns.keys:
            sets &= np.asarray(rows.column(each).is_valid())
        return sets


def check_compacted(handle: TopicHandle, ranges: Iterable[Range]) -> None:
    """Raise `InvalidInput` if a topic has no newest rows, and `DataLoss` if a range ends below the compacted end."""
    config = handle.config
    if not config.is_compacted:
        raise InvalidInput(
            f"topic {handle.name!r} has cleanup.policy={config.cleanup_policy}, and only a compacted topic has a "
            f"newest row of each key; set it with: pyspark-log topics alter {handle.name} --config "
            "cleanup.policy=compact"
        )
    for each in ranges:
        partition = handle.partitions[each.partition]
        if partition.keyed_segments and each.end < partition.compacted_end:
            raise DataLoss(
                f"topic {handle.name!r}, partition {each.partition}: the rows up to offset "
                f"{partition.compacted_end - 1} have been compacted, and the version ends at {each.end}; read a newer "
                "version, or the newest one"
            )


def keyed_partition(handle: TopicHandle, number: int) -> KeyedPartition:
    """Return what a reader of the newest rows of a partition needs."""
    partition = handle.partitions[number]
    places = (each.keyed.placeholder for each in partition.keyed_segments if each.keyed is not None)
    found = tuple(each for each in places if each is not None)
    return KeyedPartition(partition.compacted_end, handle.config.compaction_columns, found)


def newest_rows_of(store_at: Callable[[str], Store], split: Split, keyed: KeyedPartition) -> NewestRows:
    """Return which rows of a split are the newest of their keys in it. Raises as `fetch` without `find_again` does."""
    columns, start = keyed.columns, max(split.start, keyed.compacted_end)
    if start >= split.end:
        return NewestRows(keyed, np.array(sorted(keyed.placeholders), np.int64), NONE)
    later = [number for number, end in enumerate(split.segment_ends) if end > start]
    rest = msgspec.structs.replace(
        split,
        start=start,
        segments=tuple(split.segments[number] for number in later),
        segment_ends=tuple(split.segment_ends[number] for number in later),
        columns=(*columns.keys, "timestamp"),  # rows of before the key was a column have only the last
    )
    tail = newest((keys_in(rows, columns), offsets) for offsets, rows in fetch(store_at, rest))
    superseded = [np.array(keyed.placeholders, np.int64)]
    if len(tail.offsets):
        head = matched(_keys_of_head(store_at, split, keyed), tail.keys)
        superseded += [offsets[is_newer] for offsets, _, is_newer in head]
    return NewestRows(keyed, np.unique(np.concatenate(superseded)), np.sort(tail.offsets))


def _keys_of_head(
    store_at: Callable[[str], Store], split: Split, keyed: KeyedPartition
) -> Iterator[tuple[pa.Array, NDArray[np.int64]]]:
    """Yield the keys and the offsets of the rows of the head, each row group from the nearest node that has it."""
    from pyspark_log_storage.parquet import parquet_footer, row_group  # imports pyarrow.parquet

    failover = Failover(store_at, split.topic, split.partition)
    schemas = schemas_of(split)
    for key, end in zip(split.segments, split.segment_ends, strict=True):
        if end > keyed.compacted_end or not layout.is_parquet(key):
            continue
        footer = failover.read(split.holders(key), end - 1, partial(parquet_footer.read, key=key))
        of_file = partial(row_group.keyed_rows, key=key, footer=footer, schemas=schemas, columns=keyed.columns.keys)
        for entry in footer.entries:
            rows, offsets = failover.read(split.holders(key), entry.base_offset, partial(of_file, entry=entry))
            yield keys_in(rows, keyed.columns), offsets
