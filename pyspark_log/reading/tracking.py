"""Tracking: the rows of a stream's batch, and where each partition continues after it.

Compares the batch's end with the log: topic ids, log starts and leader epochs show new partitions, and logs that were
created again, expired or truncated under the query (`failOnDataLoss`). Between the same two offsets a batch has the
same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log.reading.planning import Range
from pyspark_log.reading.positions import report_loss, resolve
from pyspark_log.reading.source_offset import Position, SourceOffset, TopicPartition, TopicPositions
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log.options import SourceOptions
    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.group.state import CommittedOffset
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition


class Start(msgspec.Struct, frozen=True):
    """Where a partition continues; `explicit` if that is not its last batch's end."""

    at: Position
    explicit: bool


def new_starts(now: Subscribed, options: SourceOptions) -> dict[TopicPartition, Start]:
    """Return where each subscribed partition begins that has not been read yet. Raises what `resolve` raises."""
    first = resolve(
        now, options.starting, options.starting_no_match, ending=False, fail_on_data_loss=options.fail_on_data_loss
    )
    return {key: Start(Position(at, now.partition(*key).leader_epoch), explicit=True) for key, at in first.items()}


def go_on(
    before: SourceOffset,
    now: Subscribed,
    moved: Mapping[TopicPartition, Start] | None = None,
    *,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, Start]:
    """Return where each subscribed partition continues after `before`: those in `moved` there, whatever was read.

    A new partition begins at its log start, as in Spark's Kafka source, and one that was away where it was. Raises
    `DataLoss` if unread rows are lost; with `fail_on_data_loss` false, logs one warning and continues at the nearest
    offset in the log.
    """
    starts: dict[TopicPartition, Start] = {}
    known = before.ends()
    for topic, number in sorted(known.keys() - set(now.topic_partitions())):
        what = f"topic {topic!r}, partition {number} does not exist or is not subscribed any more"
        if topic in now.handles and before.topics[topic].topic_id != now.handles[topic].topic_id:
            what = f"topic {topic!r} was deleted and created again"
        report_loss(what, fail=fail_on_data_loss)
    for topic, number in now.topic_partitions():
        partition = now.partition(topic, number)
        log_start = Start(Position(partition.log_start, partition.leader_epoch), explicit=True)
        read = before.read_to((topic, number))
        if moved and (topic, number) in moved:
            starts[topic, number] = moved[topic, number]
        elif read is None:
            starts[topic, number] = log_start
        elif read.topic_id != now.handles[topic].topic_id:
            report_loss(f"topic {topic!r} was deleted and created again", fail=fail_on_data_loss)
            starts[topic, number] = log_start
        else:
            position = read.end[number]
            nearest = within(partition, (topic, number), position, fail_on_data_loss=fail_on_data_loss)
            explicit = nearest != position.offset or (topic, number) not in known
            starts[topic, number] = Start(Position(nearest, position.epoch), explicit)
    return starts


def away_from(now: Subscribed, before: SourceOffset, topic_ids: Mapping[str, str]) -> dict[str, TopicPositions]:
    """Return what was read up to `before` and is not subscribed to now, of topics that exist: they have these ids."""
    there = set(now.topic_partitions())
    found: dict[str, TopicPositions] = {}
    for name, read in [*before.away.items(), *before.topics.items()]:
        ends = {number: at for number, at in read.end.items() if (name, number) not in there}
        if ends and topic_ids.get(name) == read.topic_id:
            known = found.get(name, TopicPositions(read.topic_id, {}))
            found[name] = TopicPositions(read.topic_id, known.end | ends)
    return found


def within(
    partition: Partition, topic_partition: TopicPartition, position: Position, *, fail_on_data_loss: bool
) -> int:
    """Return the offset of `position`, or the nearest in the log. Raises `DataLoss` if these differ."""
    offset, where = position.offset, f"topic {topic_partition[0]!r}, partition {topic_partition[1]}"
    if offset < partition.log_start:
        what = f"{where}: offset {offset} has expired, the log begins at {partition.log_start}"
        report_loss(what, fail=fail_on_data_loss)
        return partition.log_start
    end = min(partition.end_of_epoch(position.epoch), partition.high_watermark)
    if offset > end:
        what = f"{where}: offset {offset} of epoch {position.epoch} was truncated, that epoch ends at {end}"
        report_loss(what, fail=fail_on_data_loss)
        return end
    return offset


def committed_start(
    partition: Partition, topic_partition: TopicPartition, at: CommittedOffset, *, fail_on_data_loss: bool
) -> Start:
    """Return where a partition continues whose group has committed `at`. Raises `DataLoss` as `within`."""
    epoch = at.epoch_or(partition.leader_epoch)
    offset = within(partition, topic_partition, Position(at.offset, epoch), fail_on_data_loss=fail_on_data_loss)
    return Start(Position(offset, epoch), explicit=True)


def ranges_between(
    start: SourceOffset,
    end: SourceOffset,
    topic: Callable[[str], TopicHandle],
    *,
    fail_on_data_loss: bool,
) -> tuple[dict[str, TopicHandle], list[Range]]:
    """Return the topics of a batch, and the rows that they still have of it.

    `topic` returns the handle of a topic by name, or raises `UnknownTopic`. Raises `DataLoss` if rows are lost; with
    `fail_on_data_loss` false, logs a warning and leaves them out.
    """
    begins, handles, ranges = end.begins(start), {}, []
    for name, positions in end.topics.items():
        try:
            handle = handles[name] = topic(name)
        except UnknownTopic:
            report_loss(f"topic {name!r} was deleted", fail=fail_on_data_loss)
            continue
        if handle.topic_id != positions.topic_id:
            report_loss(f"topic {name!r} was deleted and created again", fail=fail_on_data_loss)
            continue
        for number, finish in positions.end.items():
            found = _range(handle, number, begins[name, number], finish, fail=fail_on_data_loss)
            if found is not None:
                ranges.append(found)
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
