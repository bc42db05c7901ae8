"""Which rows of a compacted partition are the newest of their keys, without Spark.

    keyed segments     all but those that a later keyed segment supersedes, and those whose keys the tail has
    the tail           the rows after the keyed segments, and of these the newest of each key

A row that deletes its key is left out, and so is one without a key: a topic may have such rows from before it was
compacted, and a fold keeps one of them if nothing else is left. To find the newest rows, the keys of the tail and the
lists of the keyed segments are read: some 40 bytes for each row of the tail are in memory, and one key index.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import fetch
from pyspark_log_storage import layout
from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.key_index import NONE, Keys, is_in, keys_of
from pyspark_log_storage.columns.row_offsets import each_of
from pyspark_log_storage.errors import DataLoss, InvalidInput, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.planning import Range
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_storage.columns.row_offsets import Offsets
    from pyspark_log_storage.stores.store import Store


class KeyedPartition(msgspec.Struct, frozen=True):
    """What a reader of the newest rows of a partition needs besides its split."""

    compacted_end: int
    key_column: str
    """The column with the keys of a typed topic, else empty."""
    delete_when: str
    """The column of a typed topic that says whether a row deletes its key, else empty."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say which rows have a key, and which delete it."""
        if not self.key_column:
            return ("key", "value")
        return (self.key_column, self.delete_when) if self.delete_when else (self.key_column,)


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
        names, one = rows.schema.names, self.partition
        if (one.key_column or "key") not in names:
            return np.zeros(rows.num_rows, bool)
        sets = rows.column(one.key_column or "key").is_valid()
        if not one.key_column:
            sets = pc.and_(sets, rows.column("value").is_valid())
        elif one.delete_when in names:
            sets = pc.and_not(sets, pc.fill_null(rows.column(one.delete_when), False))
        return np.asarray(sets)


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
    config = handle.config
    return KeyedPartition(handle.partitions[number].compacted_end, config.key_column, config.delete_when)


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
    column = keyed.key_column or "key"
    start = max(split.start, keyed.compacted_end)
    wanted = Keys(np.zeros(0, np.uint64), np.zeros(0, np.uint32), NONE)
    if start < split.end:
        later = [number for number, end in enumerate(split.segment_ends) if end > start]
        tail = msgspec.structs.replace(
            split,
            start=start,
            segments=tuple(split.segments[number] for number in later),
            segment_ends=tuple(split.segment_ends[number] for number in later),
            columns=(column, "timestamp"),  # rows of before the key was a column have only the other
        )
        found = (
            keys_of(rows.column(column), each_of(offsets, rows.num_rows))
            for offsets, rows in fetch(store_at, tail)
            if column in rows.schema.names
        )
        wanted = key_index.newest(key_index.joined(found))
    superseded = [superseded_in(store_at, split, keyed.compacted_end)]
    if len(wanted.offsets):
        from pyspark_log_storage.parquet import keyed_segment  # imports pyarrow.parquet

        find = partial(keyed_segment.find_keys, hashes=wanted.hashes, checks=wanted.checks)
        superseded += _of_keyed(store_at, split, keyed.compacted_end, find, until)
    return NewestRows(keyed, key_index.union(*superseded), np.sort(wanted.offsets))


def superseded_in(store_at: Callable[[str], Store], split: Split, compacted_end: int) -> NDArray[np.int64]:
    """Return the offsets of rows that keyed segments of a split supersede, ascending. Raises as `fetch` does."""
    from pyspark_log_storage.parquet import keyed_segment  # imports pyarrow.parquet

    found = _of_keyed(store_at, split, compacted_end, keyed_segment.read_superseded)
    return np.sort(np.concatenate([NONE, *found]))


def _of_keyed(
    store_at: Callable[[str], Store],
    split: Split,
    compacted_end: int,
    read: Callable[..., NDArray[np.int64]],
    until: int | None = None,
) -> Iterator[NDArray[np.int64]]:
    """Yield what `read` finds in each keyed segment of a split, from the nearest node that has it.

    Segments that begin at `until` or after it are left out.
    """
    failover = Failover(store_at, split.topic, split.partition)
    begins = (split.start, *split.segment_ends)
    for key, begin, end in zip(split.segments, begins, split.segment_ends, strict=False):
        if (until is None or begin < until) and end <= compacted_end and layout.is_parquet(key):
            yield failover.read(split.holders(key), end - 1, partial(read, key=key))
