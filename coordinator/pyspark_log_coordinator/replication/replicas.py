"""Replicas: how far each one has a partition's log, and so who is in sync and what is committed.

A node's LEO follows from who holds what: it is the end of the rows, without a gap from the log start on, that lie in
files which the node holds. It moves with every entry that names the node as a holder. A replica is in the ISR again
when its LEO has reached the HW and the start of the leader epoch, as in Kafka; the HW follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.replication import high_watermark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic


def log_end_offset(topic: Topic, partition: Partition, node: NodeId, start: int) -> int:
    """Return the end of the rows that `node` holds without a gap from `start` on, which is within the log."""
    pieces: list[SegmentRef | ChunkRef] = [
        *partition.segments_between(start, partition.log_end),
        *partition.chunks_between(start, partition.log_end),
    ]
    for piece in pieces:
        if not is_held(holders(topic, piece), node):
            break
        start = piece.end_offset
    return start


def holders(topic: Topic, piece: SegmentRef | ChunkRef) -> tuple[Holder, ...]:
    """Return who holds a segment, or the append file that a chunk lies in."""
    return piece.holders if isinstance(piece, SegmentRef) else topic.file(piece.file).holders


def is_held(holders: Iterable[Holder], node: NodeId) -> bool:
    """Return whether `node` is one of the holders."""
    return any(holder.node == node for holder in holders)


def of_current_incarnations(topic: Topic, holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Return the holders without those of another incarnation, whose bytes are gone."""
    return tuple(holder for holder in holders if topic.incarnations.get(holder.node) == holder.incarnation)


def required_acks(partition: Partition, config: TopicConfig) -> int:
    """Return how many replicas must hold what is acknowledged with acks=all.

    A partition of fewer replicas than `min.insync.replicas` asks for all of them; while it is reassigned the smaller
    of both numbers counts.
    """
    if config.replication_mode == "quorum":
        return high_watermark.majority(len(partition.replicas))
    return min(config.min_insync_replicas, replication_factor(partition))


def keeps_committed(partition: Partition, nodes: Collection[NodeId], of: int, config: TopicConfig) -> bool:
    """Return whether enough of `of` replicas have what is committed, where only `nodes` of them would be left with it.

    Who is in the ISR has it; with replication.mode=quorum one may lag, and a majority must be left.
    """
    if config.replication_mode != "quorum":
        return True
    having = [node for node in nodes if partition.log_end_offsets.get(node, 0) >= partition.high_watermark]
    return len(having) >= high_watermark.majority(of)


def replication_factor(partition: Partition) -> int:
    """Return how many replicas the partition has; while it is reassigned the smaller of both numbers."""
    return len(partition.replicas) - max(len(partition.adding), len(partition.removing))


def may_join_isr(partition: Partition, node: NodeId) -> bool:
    """Return whether a replica that is out of the ISR has caught up. That it is not fenced is the caller's to know."""
    if node not in partition.replicas or node in partition.isr:
        return False
    return partition.log_end_offsets[node] >= max(partition.high_watermark, partition.epoch_start)


def advance(partition: Partition, config: TopicConfig, joining: Iterable[NodeId] = ()) -> Partition:
    """Return the partition after its LEOs or its ISR changed: the HW follows, and of `joining` those who may join."""
    # The HW first: who misses rows that this very change commits is not in sync.
    partition = _advanced(partition, config)
    joined = [node for node in joining if may_join_isr(partition, node)]
    if not joined:
        return partition
    isr = in_preference_order(partition.replicas, {*partition.isr, *joined})
    return _advanced(msgspec.structs.replace(partition, isr=isr), config)


def in_preference_order(replicas: Sequence[NodeId], chosen: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """Return the chosen ones of the replicas, preferred leader first."""
    kept = frozenset(chosen)
    return tuple(node for node in replicas if node in kept)


def _advanced(partition: Partition, config: TopicConfig) -> Partition:
    ends, current = partition.log_end_offsets, partition.high_watermark
    if config.replication_mode == "quorum":
        mark = high_watermark.advance_by_majority(ends, current)
    else:
        factor = replication_factor(partition)
        mark = high_watermark.advance(ends, partition.isr, current, factor, config.min_insync_replicas)
    return partition if mark == current else msgspec.structs.replace(partition, high_watermark=mark)
