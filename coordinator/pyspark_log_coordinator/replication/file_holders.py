"""The holders of files: which nodes have copied which append files and segments.

A process that copies files to a node (a follower or a waiting commit) makes them durable there and records them all in
one entry. The node is then a holder, its LEO and the HW move, and it rejoins the ISR if it has caught up. Files that
were replaced meanwhile are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand, with_partitions
from pyspark_log_coordinator.replication import replicas, suspicion
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Collection

SegmentId = tuple[Count, str]
"""A partition's number and the name of one of its segments."""


class HoldFiles(TopicCommand, frozen=True):
    """Record that a node, in this incarnation, now holds these files."""

    node: NodeId
    incarnation: str
    files: tuple[int, ...] = ()
    segments: tuple[SegmentId, ...] = ()


class FilesHeld(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node now holds these files: append files by number, segments by partition and name."""

    node: NodeId
    files: tuple[Count, ...]
    segments: tuple[SegmentId, ...]


def decide(topic: Topic, command: HoldFiles) -> list[FilesHeld]:
    """Return the event that the node holds the files, none if it changes nothing.

    Raise `NodeMissing` if the node has another incarnation by now, or is unknown to the topic.
    """
    node = command.node
    if topic.incarnations.get(node) != command.incarnation:
        raise NodeMissing(
            node,
            layout.MARKER,
            f"topic {topic.name!r}: the files were copied to an incarnation of node {node!r} that is not the topic's: "
            "the node was wiped and joined again. Read its marker again and copy the files that it lacks",
        )
    numbers = range(topic.first_file, topic.next_file)
    files = tuple(
        number
        for number in sorted(set(command.files))
        if number in numbers and not replicas.is_held(topic.file(number).holders, node)
    )
    wanted = set(command.segments)
    segments = tuple(
        (number, each.name)
        for number in sorted({number for number, _ in wanted})
        if 0 <= number < len(topic.partitions)
        for each in topic.partitions[number].segments
        if (number, each.name) in wanted and not replicas.is_held(each.holders, node)
    )
    if files or segments or node in topic.suspects or _may_join_any(topic, node):
        return [FilesHeld(node, files, segments)]
    return []


def evolve(topic: Topic, event: FilesHeld) -> Topic:
    """Return the topic with the node as a holder of the files, and the LEOs, HW and ISR that follow."""
    node = event.node
    holder = Holder(node, topic.incarnations[node])
    if event.files:
        listed = list(topic.files)
        for number in event.files:
            index = number - topic.first_file
            if index < 0:
                raise IndexError(f"file {number} was rolled")
            listed[index] = msgspec.structs.replace(listed[index], holders=(*listed[index].holders, holder))
        topic = msgspec.structs.replace(topic, files=tuple(listed))
    changed: dict[int, Partition] = {}
    for number, name in event.segments:
        partition = changed.get(number, topic.partitions[number])
        segments = _with_holder(partition.segments, name, holder)
        changed[number] = msgspec.structs.replace(partition, segments=segments)
    joining = () if node in topic.fenced else (node,)
    for number in {*changed, *(number for number, each in enumerate(topic.partitions) if _is_unsettled(each))}:
        partition = changed.get(number, topic.partitions[number])
        if node not in partition.replicas:
            continue
        ends = partition.log_end_offsets
        if ends[node] < partition.log_end:
            end = replicas.log_end_offset(topic, partition, node, ends[node])
            partition = msgspec.structs.replace(partition, log_end_offsets={**ends, node: end})
        changed[number] = replicas.advance(partition, topic.config, joining)
    return suspicion.without_suspicions(with_partitions(topic, changed), (node,))


def _is_unsettled(partition: Partition) -> bool:
    """Return whether a replica lacks rows, or is out of the ISR. Nothing follows for others from what a node holds."""
    end = partition.log_end
    if partition.high_watermark < end or len(partition.isr) < len(partition.replicas):
        return True
    return any(each < end for each in partition.log_end_offsets.values())


def newest_held(topic: Topic, node: NodeId) -> str | None:
    """Return the key, below the topic's folder, of the newest file that the node holds according to the journal.

    A disk that was restored from a backup has the right marker, but lacks this file: such a node may not lead.
    """
    newest = _newest_file_of(topic, node)
    if newest != _NO_FILE:
        return f"append/{topic.file(newest).name}"
    segments = (
        (each.born, each.name, number)
        for number, partition in enumerate(topic.partitions)
        for each in partition.segments
        if replicas.is_held(each.holders, node)
    )
    last = max(segments, default=None)
    return None if last is None else layout.segment_file(f"{last[2]}/{last[1]}")


def _newest_file_of(topic: Topic, node: NodeId) -> int:
    """Return the number of the newest append file with unrolled chunks that the node holds, or `_NO_FILE`."""
    newest = max((each.chunks[-1].file for each in topic.partitions if each.chunks), default=_NO_FILE)
    if newest == _NO_FILE or _has(topic, node, newest):
        return newest
    newest = _NO_FILE
    for each in topic.partitions:
        for chunk in reversed(each.chunks):
            if chunk.file <= newest:
                break
            if _has(topic, node, chunk.file):
                newest = chunk.file
                break
    return newest


_NO_FILE = -1


def held_alone(topic: Topic, node: NodeId) -> tuple[str, ...]:
    """Return the keys, below the topic's folder, of the files above the HW of which the leader has the only copy.

    The HW waits until other replicas have copied them, which can never happen if one is lost.
    """
    waiting = {
        chunk.file
        for each in topic.partitions
        if each.leader == node
        for chunk in each.chunks_between(each.high_watermark, each.log_end)
    }
    return tuple(
        f"append/{each.name}"
        for each in map(topic.file, sorted(waiting))
        if {holder.node for holder in replicas.of_current_incarnations(topic, each.holders)} == {node}
    )


def _has(topic: Topic, node: NodeId, file: int) -> bool:
    return replicas.is_held(topic.file(file).holders, node)


def _with_holder(segments: Collection[SegmentRef], name: str, holder: Holder) -> tuple[SegmentRef, ...]:
    return tuple(
        msgspec.structs.replace(each, holders=(*each.holders, holder)) if each.name == name else each
        for each in segments
    )


def _may_join_any(topic: Topic, node: NodeId) -> bool:
    return node not in topic.fenced and any(
        _is_unsettled(each) and replicas.may_join_isr(each, node) for each in topic.partitions
    )
