"""The event that takes a node out of the holders of files because its copies are damaged or lost.

`damage` decides about reports of such copies.

A node whose disk was set back answers, but lacks files that the journal says it holds: the disk was restored from an
old backup, or files were deleted by hand. The node may not lead while a replica that has the rows may come back. An
unclean election may elect it, with the rows that it really has, and records with this event what the disk lacks.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic, with_partitions
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage.stored_fields import Count

DamagedFile = tuple[Count, Count]
"""An append file's number, and the byte at which its first damaged chunk begins."""
DamagedSegment = tuple[Count, str, Count]
"""A partition's number, the name of one of its segments, and the byte of the .log at which the damage begins."""


class CopiesDamaged(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node no longer counts as a holder of these files."""

    node: NodeId
    files: tuple[DamagedFile, ...]
    segments: tuple[DamagedSegment, ...]


def evolve(topic: Topic, event: CopiesDamaged) -> Topic:
    """Return the topic in which the node does not hold the files; its LEOs end before them."""
    node = event.node
    numbers = {number for number, _ in event.files}
    if numbers:
        files = [
            replicas.without_holder(each, node) if number in numbers else each
            for number, each in enumerate(topic.files, topic.first_file)
        ]
        topic = msgspec.structs.replace(topic, files=AppendList(files))
    names: dict[int, set[str]] = defaultdict(set)
    for number, name, _ in event.segments:
        names[number].add(name)
    changed: dict[int, Partition] = {}
    for number, before in enumerate(topic.partitions):
        partition = before
        if number in names:
            segments, staged = (
                tuple(replicas.without_holder(each, node) if each.name in names[number] else each for each in some)
                for some in (partition.segments, partition.staged)
            )
            partition = replicas.without_unheld(msgspec.structs.replace(partition, segments=segments, staged=staged))
        ends = partition.log_end_offsets
        if node in ends:
            reached = min(ends[node], replicas.log_end_offset(topic, partition, node, partition.log_start))
            if reached < ends[node]:
                partition = msgspec.structs.replace(partition, log_end_offsets={**ends, node: reached})
        if partition is not before:
            changed[number] = partition
    return with_partitions(topic, changed)


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
