"""Which rows of a compacted partition are the newest of their keys, without Spark.

    keyed segments     all but those that a later keyed segment supersedes, and those whose keys the tail has
    the tail           the rows after the keyed segments, and of these the newest of each key

In a topic with compaction.version.column a row of the tail is not the newest if the row of its key in the keyed
segments has a larger version, and that one is. A row that deletes its key is left out, and so is one without a key: a
topic may have such rows from before it was compacted, and a fold keeps one of them if nothing else is left. To find the
newest rows, the keys of the tail and the lists of the keyed segments are read: some 70 bytes for each row of the tail
are in memory, with versions 16 more, and one key index.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import fetch
from pyspark_log_storage import layout
from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.key_index import NONE, deletes, is_in
from pyspark_log_storage.columns.row_offsets import each_of
from pyspark_log_storage.errors import DataLoss, InvalidInput, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.compaction_columns import CompactionColumns
    from pyspark_log_storage.columns.row_offsets import Offsets
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")


class KeyedPartition(msgspec.Struct, frozen=True):
    """What a reader of the newest rows of a partition needs besides its split."""

    compacted_end: int
    columns: CompactionColumns
    """The columns that say a row's key and version, and whether it deletes its key."""


class Choice(msgspec.Struct, frozen=True):
    """Which rows of a split count: those that are the newest of their keys."""

    among: Split
    """The rows among which they are the newest: those of the split, and those after it up to some end."""
    partition: KeyedPartition


class NewestRows(msgspec.Struct, frozen=True):
    """Which rows of a partition are the newest of their keys."""

    partition: KeyedPartition
    superseded: NDArray[np.int64]
    """The offsets of the rows of keyed segments that are not, ascending; some may be gone."""
    tail: NDArray[np.int64]
    """The offsets of the rows of the tail that are, ascending."""

    def only(self, offsets: Offsets, rows: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return those of some rows that are the newest of their keys, and do not delete them."""
        each = each_of(offsets, rows.num_rows)
        is_keyed = each < self.partition.compacted_end
        chosen = np.where(is_keyed, ~is_in(each, self.superseded), is_in(each, self.tail)) & self._sets_a_key(rows)
        return each[chosen], rows.filter(pa.array(chosen))

    def older(self, start: int, end: int) -> NDArray[np.int64]:
        """Return those of the offsets from `start` to `end` whose rows are not the newest of their keys, ascending.

        Rows that delete their keys are not among them.
        """
        tail = np.arange(max(start, self.partition.compacted_end), end)
        older = np.concatenate([self.superseded, tail[~is_in(tail, self.tail)]])
        return older[older >= start]

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
    return KeyedPartition(handle.partitions[number].compacted_end, handle.config.compaction_columns)


def newest_rows_of(
    store_at: Callable[[str], Store],
    split: Split,
    keyed: KeyedPartition,
    find_again: Callable[[int], Split],
    until: int | None = None,
) -> NewestRows:
    """Return which rows of a split are the newest of their keys in it.

    If only rows below `until` will be asked for, the key indexes of the keyed segments after it are not read.
    `find_again(offset)` is called if a file is gone, as `fetch` calls it. Raises as `fetch` does.
    """
    until = split.end if until is None else until
    try:
        return _newest_rows_of(store_at, split, keyed, until)
    except ObjectMissing:
        return _newest_rows_of(store_at, find_again(split.start), keyed, until)


def _newest_rows_of(store_at: Callable[[str], Store], split: Split, keyed: KeyedPartition, until: int) -> NewestRows:
    columns = keyed.columns
    is_versioned = bool(columns.version)
    start = max(split.start, keyed.compacted_end)
    tail = key_index.joined((), is_versioned=is_versioned)
    if start < split.end:
        later = [number for number, end in enumerate(split.segment_ends) if end > start]
        needed = (*columns.keys, *([columns.version] if is_versioned else []))
        rest = msgspec.structs.replace(
            split,
            start=start,
            segments=tuple(split.segments[number] for number in later),
            segment_ends=tuple(split.segment_ends[number] for number in later),
            columns=(*needed, "timestamp"),  # rows of before the key was a column have only the last
        )
        found = (
            key_index.keys_in(rows, each_of(offsets, rows.num_rows), columns) for offsets, rows in fetch(store_at, rest)
        )
        tail = key_index.newest(key_index.joined(found, is_versioned=is_versioned))
    dead = superseded_in(store_at, split, keyed.compacted_end)
    superseded, is_newest = [dead], np.ones(len(tail.offsets), bool)
    if len(tail.offsets):
        from pyspark_log_storage.parquet import keyed_segment  # imports pyarrow.parquet

        find = partial(keyed_segment.find_keys, wanted=tail)
        for rows_there in _of_keyed(store_at, split, keyed.compacted_end, find, until):
            theirs, older = key_index.compared(rows_there, tail, dead, split.start)
            superseded.append(theirs)
            is_newest[older] = False
    return NewestRows(keyed, key_index.union(*superseded), np.sort(tail.offsets[is_newest]))


def superseded_in(store_at: Callable[[str], Store], split: Split, compacted_end: int) -> NDArray[np.int64]:
    """Return the offsets of rows that keyed segments of a split supersede, ascending. Raises as `fetch` does."""
    from pyspark_log_storage.parquet import keyed_segment  # imports pyarrow.parquet

    found = _of_keyed(store_at, split, compacted_end, keyed_segment.read_superseded)
    return np.sort(np.concatenate([NONE, *found]))


def _of_keyed(
    store_at: Callable[[str], Store],
    split: Split,
    compacted_end: int,
    read: Callable[..., T],
    until: int | None = None,
) -> Iterator[T]:
    """Yield what `read` finds in each keyed segment of a split, from the nearest node that has it.

    Segments that begin at `until` or after it are left out.
    """
    failover = Failover(store_at, split.topic, split.partition)
    begins = (split.start, *split.segment_ends)
    for key, begin, end in zip(split.segments, begins, split.segment_ends, strict=False):
        if (until is None or begin < until) and end <= compacted_end and layout.is_parquet(key):
            yield failover.read(split.holders(key), end - 1, partial(read, key=key))
