"""Nodes whose disk was set back: they answer, but lack files that the journal says they hold.

Such a disk was restored from an old backup, or files were deleted by hand. The node may not lead while a replica that
has the rows may come back. An unclean election may elect it, with the rows that it really has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, SegmentRef
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.topic_state import Topic


class SetBack(msgspec.Struct, frozen=True):
    """The files that a node, in this incarnation, lacks: append files by number, segments by partition and name."""

    node: NodeId
    incarnation: str
    files: tuple[int, ...] = ()
    segments: tuple[tuple[int, str], ...] = ()


def real_end(topic: Topic, number: int, found: SetBack) -> int:
    """Return the end of the rows of a partition that the node really has, without a gap from the log start on."""
    partition = topic.partitions[number]
    end = partition.log_start
    for piece in partition.pieces_between(end, partition.log_end):
        if _is_lost(found, number, piece) or not replicas.is_held(replicas.holders(topic, piece), found.node):
            break
        end = piece.end_offset
    return end


def _is_lost(found: SetBack, number: int, piece: SegmentRef | ChunkRef) -> bool:
    if isinstance(piece, SegmentRef):
        return (number, piece.name) in found.segments
    return piece.file in found.files


def lost_segments(topic: Topic, number: int, found: SetBack) -> list[CopiesDamaged]:
    """Return the event that the node lost segments of a partition, none if it has all that it is said to hold.

    Lost append files need no event: the election cuts the log before the first one. But a lost segment that is staged
    would later replace rows that the node has.
    """
    lost = tuple(
        (number, each.name, 0)
        for each in topic.partitions[number].all_segments
        if (number, each.name) in found.segments and replicas.is_held(each.holders, found.node)
    )
    return [CopiesDamaged(found.node, (), lost)] if lost else []
