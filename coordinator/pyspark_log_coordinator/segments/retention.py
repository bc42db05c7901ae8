"""Retention: the rules that move the log start of a partition.

`retention.ms` and `retention.bytes` expire whole segments, oldest first, as in Kafka, unless cleanup.policy=compact;
unrolled rows stay until they are rolled. A segment with a row of the future expires by when it was written, which Kafka
does not do. Delete-records moves the log start to any offset up to the HW. The files are
scheduled for deletion.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand, with_partition
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.segments import swap
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.stored_fields import Count, Int64

_US_PER_MS = 1000
TO_THE_END = -1
"""The offset in delete-records that means all rows, as in Kafka."""


class ApplyRetention(TopicCommand, frozen=True):
    """Expire segments by the topic's retention settings."""


class DeleteRecords(TopicCommand, frozen=True):
    """Delete the rows before an offset; -1 means all."""

    partition: int
    before: int


class LogStartMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The rows before `log_start` are no longer in the log."""

    partition: Count
    log_start: Count
    at_ms: Int64


def decide_retention(topic: Topic, now: int) -> list[LogStartMoved]:
    """Return the log starts that move at `now` (ms) because segments have expired."""
    events = []
    for number, partition in enumerate(topic.partitions):
        start = _retained_from(partition, topic.config, now)
        if start > partition.log_start:
            events.append(LogStartMoved(number, start, now))
    return events


def retained(topic: Topic, now: int) -> Topic:
    """Return the topic without what has expired at `now` (ms)."""
    for event in decide_retention(topic, now):
        topic = evolve(topic, event)
    return topic


def decide_deletion(topic: Topic, command: DeleteRecords, now: int) -> list[LogStartMoved]:
    """Return the event that deletes the rows, none if they are deleted.

    Raise `InvalidInput` for an offset above the HW (Kafka's OffsetOutOfRange) and for an unknown partition.
    """
    partition = topic.partition(command.partition)
    before = partition.high_watermark if command.before == TO_THE_END else command.before
    if not 0 <= before <= partition.high_watermark:
        raise InvalidInput(
            f"topic {topic.name!r}, partition {command.partition}: cannot delete rows before offset {before}; choose "
            f"an offset from 0 to {partition.high_watermark}, the end of the log, or -1 for all"
        )
    return [LogStartMoved(command.partition, before, now)] if before > partition.log_start else []


def evolve(topic: Topic, event: LogStartMoved) -> Topic:
    """Return the topic without the segments and chunks that end at or before the log start."""
    partition = topic.partitions[event.partition]
    gone = [each for each in partition.segments if each.end_offset <= event.log_start]
    changed = msgspec.structs.replace(
        partition,
        log_start=event.log_start,
        segments=partition.segments[len(gone) :],
        chunks=partition.chunks[partition.chunks_ending_by(event.log_start) :],
        epoch_starts=_epochs_from(partition, event.log_start),
    )
    if any(end < event.log_start for end in changed.log_end_offsets.values()):
        changed = msgspec.structs.replace(changed, log_end_offsets=_ends_from(topic, changed))
    keys = [f"{event.partition}/{each.name}" for each in gone]
    return swap.schedule_deletion(with_partition(topic, event.partition, changed), keys, event.at_ms)


def _ends_from(topic: Topic, partition: Partition) -> dict[NodeId, int]:
    """Return the LEOs; a replica that had not reached the log start continues there (in Kafka it starts over)."""
    start = partition.log_start
    return {
        node: end if end >= start else replicas.log_end_offset(topic, partition, node, start)
        for node, end in partition.log_end_offsets.items()
    }


def future_segments(partition: Partition, now: int) -> list[SegmentRef]:
    """Return the segments with rows of the future: these expire by when they were written."""
    return [each for each in partition.segments if each.max_timestamp > now * _US_PER_MS]


def _newest(segment: SegmentRef, now: int) -> int:
    """Return the time of a segment's newest row (microseconds); if that is to come, when the last row was written.

    Else one row of the future would keep its segment, and all that follow, for ever.
    """
    if segment.max_timestamp <= now * _US_PER_MS or not segment.until_ms:
        return segment.max_timestamp
    return segment.until_ms * _US_PER_MS


def _retained_from(partition: Partition, config: TopicConfig, now: int) -> int:
    """Return the log start after retention: the base offset of the first segment that is kept."""
    if config.cleanup_policy == "compact":
        return partition.log_start
    size = sum(each.log_bytes for each in partition.segments) + sum(each.length for each in partition.chunks)
    start = partition.log_start
    for segment in partition.segments:
        expired = config.retention_ms != UNLIMITED and _newest(segment, now) < (now - config.retention_ms) * _US_PER_MS
        too_much = config.retention_bytes != UNLIMITED and size - segment.log_bytes >= config.retention_bytes
        if not (expired or too_much):
            break
        size -= segment.log_bytes
        start = segment.end_offset
    return start


def _epochs_from(partition: Partition, log_start: int) -> tuple[tuple[int, int], ...]:
    """Return the epochs that do not end before the log start; the first of them begins there (Kafka's rule)."""
    later = [(epoch, start) for epoch, start in partition.epoch_starts if start > log_start]
    earlier = [epoch for epoch, start in partition.epoch_starts if start <= log_start]
    return ((earlier[-1], log_start), *later) if earlier else tuple(later)
