"""Row loss: the rows that an election cuts off the log because the new leader lacks them.

A clean election cuts only rows above the HW, which were written with acks=1. An unclean one may cut below it. The entry
records the batches of these rows. A producer whose last batch lost rows gets an error when it sends that batch again.
The bytes become orphans.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_state import Topic, with_partitions
from pyspark_log_storage.stored_fields import Count, Int64


class LostBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Number of rows of a producer's batch that were cut. The producer is empty for writes without a name."""

    producer: str
    batch_id: Int64
    rows: Count


class RowsLost(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Rows `[start, end)` of a partition are no longer in the log."""

    partition: Count
    start: Count
    end: Count
    batches: tuple[LostBatch, ...]
    """The batches of the unrolled rows among them. Those of rolled rows are no longer known."""


def cut_from(topic: Topic, number: int, end: int) -> list[RowsLost]:
    """Return the event that the partition's rows from `end` on are lost, none if the log ends there."""
    partition = topic.partitions[number]
    if end >= partition.log_end:
        return []
    lost: dict[tuple[str, int], int] = {}
    for chunk in partition.chunks_between(end, partition.log_end):
        file = topic.file(chunk.file)
        batch = file.producer, file.batch_id
        lost[batch] = lost.get(batch, 0) + chunk.end_offset - max(chunk.base_offset, end)
    batches = tuple(LostBatch(producer, batch_id, rows) for (producer, batch_id), rows in sorted(lost.items()))
    return [RowsLost(number, end, partition.log_end, batches)]


def evolve(topic: Topic, event: RowsLost) -> Topic:
    """Return the topic with the partition's log cut."""
    cut = _cut(topic.partitions[event.partition], event.start)
    producers = dict(topic.producers)
    for batch in event.batches:
        known = producers.get(batch.producer)
        if known is not None and known.batch_id == batch.batch_id:
            producers[batch.producer] = msgspec.structs.replace(known, rows_lost=known.rows_lost + batch.rows)
    return with_partitions(topic, {event.partition: cut}, producers=producers)


def _cut(partition: Partition, end: int) -> Partition:
    """Return the partition with its log ending at `end`, the log start or the end of a chunk or segment."""
    return msgspec.structs.replace(
        partition,
        log_end=end,
        high_watermark=min(partition.high_watermark, end),
        log_end_offsets={node: min(reached, end) for node, reached in partition.log_end_offsets.items()},
        segments=tuple(each for each in partition.segments if each.end_offset <= end),
        chunks=partition.chunks[: partition.chunks_ending_by(end)],
    )
