"""The reader: the rows of a split in their order, wherever maintenance moves their files meanwhile.

Everything that reads rows does it here: tasks of Spark, a `Consumer`, a `scan`, commands and the page. The plan is a
`Split`. If its files are gone, the topic's journal says where the rows are now, as often as they are moved. What is
`lost` for good is an error, or is left out.

Tasks of Spark import this module, so it imports no planning and no state machine until files have moved.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log.reading.arrow_rows import decoded_columns, shaped
from pyspark_log.reading.fetch import BATCH_BYTES_MAX, fetch, newest_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.newest_rows import KeyedPartition, NewestRows
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_storage.columns.keys import Offsets
    from pyspark_log_storage.stores.store import Store


class LogAt(NamedTuple):
    """Where a reader finds rows."""

    store_at: Callable[[str], Store]
    """Opens the store at an address as the cluster knows it."""
    log: Callable[[], Log]
    """Returns the log, open. It is asked only if files have moved."""


class Lost(enum.Enum):
    """What happens if rows of a split were deleted, expired or cut while they are read."""

    ERROR = "raise DataLoss"
    LEFT_OUT = "warn, and go on with the rest"


def read_rows(
    split: Split,
    at: LogAt,
    columns: pa.Schema | None = None,
    *,
    newest: KeyedPartition | None = None,
    lost: Lost = Lost.ERROR,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[tuple[Offsets, pa.RecordBatch]]:
    """Return the rows of a split in order, each batch with its offsets. Errors are those of `fetch`, and `DataLoss`.

    They have exactly these `columns`, see `arrow_rows`; None: those that are stored, of a typed topic as in its newest
    schema. With `newest` they are only the newest row of each key. Small chunks are joined up to `batch_bytes_max`.
    Raises `InvalidInput` if a typed topic has no such column, or if it has evolved, and `columns` cannot hold its rows.
    """
    from_columns = None if columns is None else decoded_columns(columns, split)
    if newest is not None and from_columns is not None:
        from_columns = tuple(sorted({*from_columns, *newest.columns.of_live_rows}))
    split = msgspec.structs.replace(split, columns=from_columns)
    chosen = None
    if newest is not None:
        split, chosen = _newest(split, at, newest)

    def as_wanted(found: tuple[Offsets, pa.RecordBatch]) -> tuple[Offsets, pa.RecordBatch]:
        offsets, batch = found
        if chosen is not None:
            offsets, batch = chosen.only(offsets, batch)
        if columns is None:
            return offsets, newest_rows(split, batch)
        return offsets, shaped(batch, columns, split.topic, split.partition, offsets)

    # A `map` keeps none of the rows that it has returned, as a generator would.
    found = map(as_wanted, fetch(at.store_at, split, partial(_find, split, at, lost), batch_bytes_max))
    return found if chosen is None else filter(_has_rows, found)


def first_row(handle: TopicHandle, number: int, offset: int) -> tuple[int, int] | None:
    """Return where the first row at or after `offset` and below the high watermark is, and its time in ms, or None.

    Raises what `read_rows` raises.
    """
    from pyspark_log.reading.planning import Range, split_of

    partition = handle.partitions[number]
    offset = max(offset, partition.log_start)
    end = offset + 1 if offset >= partition.compacted_end else partition.compacted_end + 1
    end = min(end, partition.high_watermark)
    if offset >= end:
        return None
    for offsets, batch in read_rows(split_of(handle, Range(handle.name, number, offset, end)), of_handle(handle)):
        return int(offsets[0]), batch.column("timestamp")[0].value // 1000  # microseconds
    return None


def of_handle(handle: TopicHandle) -> LogAt:
    """Return where the rows of a topic are whose log this process has open."""
    return LogAt(handle.log.store_at, lambda: handle.log)


def _find(split: Split, at: LogAt, lost: Lost, offset: int) -> Split | None:
    """Return a new split of the rows from `offset`, None if they are lost, and that is no error."""
    from pyspark_log.reading import planning  # tasks must not import it

    find = planning.find_again if lost is Lost.ERROR else planning.find_rest
    return find(at.log(), split, offset)


def _newest(split: Split, at: LogAt, keyed: KeyedPartition) -> tuple[Split, NewestRows]:
    """Return which rows are the newest of their keys, and the split as it is when that is known."""
    from pyspark_log.reading.newest_rows import newest_rows_of  # few readers need it
    from pyspark_log_storage.errors import ObjectMissing

    while True:
        try:
            return split, newest_rows_of(at.store_at, split, keyed)
        except ObjectMissing:
            found = _find(split, at, Lost.ERROR, split.start)
            if found is None or found == split:
                raise
            split = found


def _has_rows(found: tuple[Offsets, pa.RecordBatch]) -> bool:
    return bool(found[1].num_rows)
