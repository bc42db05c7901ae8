"""Replicas: the LEO of each, and the ISR and the HW that follow from the LEOs.

A node's LEO is the end of the rows, without a gap from the log start on, in files that the node holds. It moves with
every entry that names the node as a holder. A replica rejoins the ISR when its LEO has reached the HW and the start of
the leader epoch, as in Kafka; the HW follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import FileRef
from pyspark_log_coordinator.replication import high_watermark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic


F = TypeVar("F", FileRef, SegmentRef)


def log_end_offset(topic: Topic, partition: Partition, node: NodeId, start: int) -> int:
    """Return the end of the rows that `node` holds without a gap from `start` on, an offset within the log."""
    for piece in partition.pieces_between(start, partition.log_end):
        if not is_held(holders(topic, piece), node):
            break
        start = piece.end_offset
    return start


def holders(topic: Topic, piece: SegmentRef | ChunkRef) -> tuple[Holder, ...]:
    """Return the holders of a segment, or of the append file of a chunk."""
    return piece.holders if isinstance(piece, SegmentRef) else topic.file(piece.file).holders


def is_held(holders: Iterable[Holder], node: NodeId) -> bool:
    return any(holder.node == node for holder in holders)


def without_holder(file: F, node: NodeId) -> F:
    """Return an append file or a segment that `node` no longer holds."""
    return msgspec.structs.replace(file, holders=tuple(each for each in file.holders if each.node != node))


def of_current_incarnations(topic: Topic, holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Return the holders in their current incarnations; those of a former one were wiped."""
    return tuple(holder for holder in holders if topic.incarnations.get(holder.node) == holder.incarnation)


def by_majority(config: TopicConfig) -> bool:
    """Return whether a majority of the replicas commits rows, not the whole ISR. Only here is the mode asked for."""
    return config.replication_mode == "quorum"


def voters(partition: Partition, config: TopicConfig) -> tuple[NodeId, ...]:
    """Return the replicas that commit rows: of the ISR all, of all replicas a majority; see `required_acks`."""
    return partition.replicas if by_majority(config) else partition.isr


def required_acks(partition: Partition, config: TopicConfig) -> int:
    """Return the number of replicas that must hold a batch before it is acknowledged with acks=all.

    A partition with fewer replicas than `min.insync.replicas` requires all of them.
    """
    if by_majority(config):
        return high_watermark.majority(len(partition.replicas))
    return min(config.min_insync_replicas, replication_factor(partition))


def keeps_committed(partition: Partition, nodes: Collection[NodeId], of: int, config: TopicConfig) -> bool:
    """Return whether all committed rows survive if only `nodes`, out of `of` replicas, keep theirs.

    Every member of the ISR has them. With replication.mode=quorum a member may lag, so a majority must have them.
    """
    if not by_majority(config):
        return True
    having = [node for node in nodes if partition.log_end_offsets.get(node, 0) >= partition.high_watermark]
    return len(having) >= high_watermark.majority(of)


def replication_factor(partition: Partition) -> int:
    """Return the number of replicas; during a reassignment the smaller of the numbers before and after."""
    return len(partition.replicas) - max(len(partition.adding), len(partition.removing))


def may_join_isr(partition: Partition, node: NodeId) -> bool:
    """Return whether a replica outside the ISR has caught up. The caller checks that it is not fenced."""
    if node not in partition.replicas or node in partition.isr:
        return False
    return partition.log_end_offsets[node] >= max(partition.high_watermark, partition.epoch_start)


def advance(partition: Partition, config: TopicConfig, joining: Iterable[NodeId] = ()) -> Partition:
    """Return the partition with the HW that follows from its LEOs and ISR, and those of `joining` that may join."""
    # The HW first: a replica that lacks rows which this change commits is not in sync.
    partition = _advanced(partition, config)
    joined = [node for node in joining if may_join_isr(partition, node)]
    if not joined:
        return partition
    isr = in_preference_order(partition.replicas, {*partition.isr, *joined})
    return _advanced(msgspec.structs.replace(partition, isr=isr), config)


def in_preference_order(replicas: Sequence[NodeId], chosen: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """Return those of the replicas that are `chosen`, preferred leader first."""
    chosen = frozenset(chosen)
    return tuple(node for node in replicas if node in chosen)


def _advanced(partition: Partition, config: TopicConfig) -> Partition:
    ends, current = partition.log_end_offsets, partition.high_watermark
    if by_majority(config):
        mark = high_watermark.advance_by_majority(ends, current)
    else:
        factor = replication_factor(partition)
        mark = high_watermark.advance(ends, partition.isr, current, factor, config.min_insync_replicas)
    return partition if mark == current else msgspec.structs.replace(partition, high_watermark=mark)
