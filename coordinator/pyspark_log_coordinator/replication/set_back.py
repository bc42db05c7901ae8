"""Set back: a node answers as itself, and its disk lacks files that the journal says it holds.

It was restored from an old backup, or files were removed by hand. Such a node leads nothing as long as a replica that
has the rows may come back. In an unclean election none may: there it can lead, with the rows that it really has.
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
    """What a node, in this incarnation, was found to lack: append files by number, segments by partition and name."""

    node: NodeId
    incarnation: str
    files: tuple[int, ...] = ()
    segments: tuple[tuple[int, str], ...] = ()


def real_end(topic: Topic, number: int, found: SetBack) -> int:
    """Return the end of the rows of a partition that the node really has, without a gap from the log start on."""
    partition = topic.partitions[number]
    end = partition.log_start
    pieces: list[SegmentRef | ChunkRef] = [
        *partition.segments_between(end, partition.log_end),
        *partition.chunks_between(end, partition.log_end),
    ]
    for piece in pieces:
        if _is_lost(found, number, piece) or not replicas.is_held(replicas.holders(topic, piece), found.node):
            break
        end = piece.end_offset
    return end


def _is_lost(found: SetBack, number: int, piece: SegmentRef | ChunkRef) -> bool:
    if isinstance(piece, SegmentRef):
        return (number, piece.name) in found.segments
    return piece.file in found.files


def told(topic: Topic, number: int, found: SetBack) -> list[CopiesDamaged]:
    """Return the event that the node does not hold the segments of a partition that it lacks; none if it has all.

    The election cuts the log before the first append file that its leader lacks. But a staged segment would come into
    the place of rows that the leader has.
    """
    partition = topic.partitions[number]
    lacking = tuple(
        (number, each.name, 0)
        for each in (*partition.segments, *partition.staged)
        if (number, each.name) in found.segments and replicas.is_held(each.holders, found.node)
    )
    return [CopiesDamaged(found.node, (), lacking)] if lacking else []
