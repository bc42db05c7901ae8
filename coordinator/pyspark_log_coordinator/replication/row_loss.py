"""Row loss: what an election cuts off the log, because the new leader does not have it.

Only rows above the HW in a clean election: they were written with acks=1, and only replicas that are gone had them. An
unclean election may cut below it. The entry says whose batches they were of, and a producer whose last batch lost rows
is told so when it sends that batch again. The bytes become orphans.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_state import Topic, with_partitions
from pyspark_log_storage.ranges import Count, Int64


class LostBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How many rows of a producer's batch were cut. Without a producer: of writes that have no name."""

    producer: str
    batch_id: Int64
    rows: Count


class RowsLost(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Rows `[start, end)` of a partition are no longer in the log."""

    partition: Count
    start: Count
    end: Count
    batches: tuple[LostBatch, ...]
    """Of the unrolled rows among them: of the others, which an unclean election cuts, it is not known any more."""


def above(topic: Topic, number: int, end: int) -> list[RowsLost]:
    """Return what the partition loses when its log ends at `end`: one event, or none."""
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
    return with_partitions(topic, {event.partition: cut}.items(), producers=producers)


def _cut(partition: Partition, end: int) -> Partition:
    """Return the partition with its log ending at `end`, which is where a piece ends, or the log start."""
    return msgspec.structs.replace(
        partition,
        log_end=end,
        high_watermark=min(partition.high_watermark, end),
        log_end_offsets={node: min(reached, end) for node, reached in partition.log_end_offsets.items()},
        segments=tuple(each for each in partition.segments if each.end_offset <= end),
        staged=tuple(each for each in partition.staged if each.end_offset <= end),
        chunks=AppendList(partition.chunks[: partition.chunks_ending_by(end)]),
    )
