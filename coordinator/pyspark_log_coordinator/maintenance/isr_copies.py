"""Copies of new segments: before a swap is proposed, the segment is copied to the members of the ISR that lack it.

A roll task has written the segment to the members that it knew. One may have failed for a moment, or have joined the
ISR since. Without a copy the swap would be ignored, and the roll wasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync import faults, replica_file
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, SegmentRef
    from pyspark_log_coordinator.segments.swap import SwapSegments


def with_copies(
    handle: TopicHandle, swaps: Sequence[SwapSegments], failed: Collection[NodeId] = ()
) -> tuple[SwapSegments, ...]:
    """Copy the segments of swaps to the members of the ISR, by the known state; return the swaps with these holders.

    Nothing is copied to the nodes that have `failed`. What cannot be copied is logged, and `decide` ignores its swap.
    """
    return tuple(_with_copies(handle, each, failed) for each in swaps)


def _with_copies(handle: TopicHandle, swap: SwapSegments, failed: Collection[NodeId]) -> SwapSegments:
    made, partitions, away = swap.segments, handle.journal.state.partitions, {*failed, *handle.log.missing_nodes}
    isr = partitions[swap.partition].isr if swap.partition < len(partitions) else ()
    lacking = [node for node in isr if not all(replicas.is_held(each.holders, node) for each in made)]
    if away.intersection(lacking):
        return swap
    for node in lacking:
        what = "segment", handle.topic_id, node
        try:
            made = tuple(_copied(handle, swap.partition, each, node) for each in made)
        except LogError as error:
            message = "a new segment of topic %(topic)r was not copied to node %(node)r, and is not used: %(error)s"
            handle.log.failures.note(what, error, message, topic=handle.name, node=node)
            return swap
        message = "new segments of topic %(topic)r are copied to node %(node)r again"
        handle.log.failures.end(what, message, topic=handle.name, node=node)
    return msgspec.structs.replace(swap, segments=made)


def _copied(handle: TopicHandle, partition: int, segment: SegmentRef, node: NodeId) -> SegmentRef:
    """Copy a segment to a node that may lack it; return it with this holder. Raises `LogError`."""
    if replicas.is_held(segment.holders, node):
        return segment
    holder = faults.give_copy(handle, node, replica_file.of_segment(handle.journal.state, partition, segment))
    return msgspec.structs.replace(segment, holders=(*segment.holders, holder))
