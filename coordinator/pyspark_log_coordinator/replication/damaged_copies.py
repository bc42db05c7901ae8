"""The event that takes a node out of the holders of files because its copies are damaged or lost.

`damage` decides about reports of such copies. An unclean election that elects a node whose disk was set back records
with this event what the disk lacks.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import NodeId, Partition
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
