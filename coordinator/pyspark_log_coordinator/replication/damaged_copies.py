"""The event that takes a node out of the holders of files because its copies are damaged or lost.

`damage` decides about reports of it; an unclean election also tells it of a leader whose disk was set back.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic, with_partitions
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage.ranges import Count

DamagedFile = tuple[Count, Count]
"""An append file's number among the topic's files, and where in it the first chunk begins that is damaged."""
DamagedSegment = tuple[Count, str, Count]
"""A partition's number, the name of a segment of it, and at which byte of the .log the damage begins."""


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
            msgspec.structs.replace(each, holders=_without(each.holders, node)) if number in numbers else each
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
            partition = msgspec.structs.replace(
                partition,
                segments=_not_held(partition.segments, names[number], node),
                staged=_not_held(partition.staged, names[number], node),
            )
        ends = partition.log_end_offsets
        if node in ends:
            reached = min(ends[node], replicas.log_end_offset(topic, partition, node, partition.log_start))
            if reached < ends[node]:
                partition = msgspec.structs.replace(partition, log_end_offsets={**ends, node: reached})
        if partition is not before:
            changed[number] = partition
    return with_partitions(topic, changed.items())


def _without(holders: tuple[Holder, ...], node: NodeId) -> tuple[Holder, ...]:
    return tuple(each for each in holders if each.node != node)


def _not_held(segments: tuple[SegmentRef, ...], names: set[str], node: NodeId) -> tuple[SegmentRef, ...]:
    return tuple(
        msgspec.structs.replace(each, holders=_without(each.holders, node)) if each.name in names else each
        for each in segments
    )
