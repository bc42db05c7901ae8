"""The rows of a micro-batch: ranges of partitions, between two offsets of a stream. The same offsets, the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.reading.data_loss import report_loss
from pyspark_log.reading.planning import Range
from pyspark_log.reading.tracking import within
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log.reading.source_offset import Position, SourceOffset, TopicPositions
    from pyspark_log_coordinator.log.log import TopicHandle


def between(
    start: SourceOffset,
    end: SourceOffset,
    topic: Callable[[str, TopicPositions], TopicHandle],
    *,
    fail_on_data_loss: bool,
) -> tuple[dict[str, TopicHandle], list[Range]]:
    """Return the topics of a batch, and the rows that they still have of it.

    `topic` returns the handle of a topic, refreshed, or raises `UnknownTopic`. Raises `DataLoss` if rows are lost; with
    `fail_on_data_loss` false, logs a warning and leaves them out.
    """
    begins, handles, ranges = end.begins(start), {}, []
    for name, positions in end.topics.items():
        try:
            handle = handles[name] = topic(name, positions)
        except UnknownTopic:
            report_loss(f"topic {name!r} was deleted", fail=fail_on_data_loss)
            continue
        if handle.topic_id != positions.topic_id:
            report_loss(f"topic {name!r} was deleted and created again", fail=fail_on_data_loss)
            continue
        for number, finish in positions.end.items():
            found = _range(handle, number, begins[name, number], finish, fail=fail_on_data_loss)
            ranges += [] if found is None else [found]
    return handles, ranges


def _range(handle: TopicHandle, number: int, first: Position, finish: Position, *, fail: bool) -> Range | None:
    """Return the rows between two positions that a partition still has, or None if it does not exist any more."""
    if first.offset >= finish.offset:
        return None
    partitions = handle.partitions
    if number >= len(partitions):
        what = f"topic {handle.name!r} has no partition {number} any more; was it restored from a backup?"
        report_loss(what, fail=fail)
        return None
    key = (handle.name, number)
    low, high = (within(partitions[number], key, at, fail_on_data_loss=fail) for at in (first, finish))
    return Range(*key, low, high)
