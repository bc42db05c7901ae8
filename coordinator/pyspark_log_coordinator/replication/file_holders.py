"""Holding: a node tells the topic which files it has copied.

Whoever copies files to a node, a follower or a waiting commit, makes them durable there and says so in one entry, for
any number of files. Then the node is a holder, its LEO moves, the HW follows, and it is in the ISR again where it has
caught up. A file that has been replaced meanwhile is left out. What changes nothing is no entry.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import FileRef, Topic, with_partitions
from pyspark_log_coordinator.replication import replicas, suspicion
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing
from pyspark_log_storage.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Collection

SegmentId = tuple[Count, str]
"""A partition's number, and the name of a segment of it."""


class HoldFiles(msgspec.Struct, frozen=True):
    """Say that a node, in this incarnation, holds these files too: append files by number, segments by name."""

    node: NodeId
    incarnation: str
    files: tuple[int, ...] = ()
    segments: tuple[SegmentId, ...] = ()


class FilesHeld(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node holds these files too."""

    node: NodeId
    files: tuple[Count, ...]
    segments: tuple[SegmentId, ...]


class TopicFiles(msgspec.Struct, frozen=True):
    """What a topic's rows lie in, the oldest first: segments, then append files, then segments that are staged."""

    segments: tuple[tuple[int, SegmentRef], ...]
    files: tuple[tuple[int, FileRef], ...]
    staged: tuple[tuple[int, SegmentRef], ...]


def decide(topic: Topic, command: HoldFiles) -> list[FilesHeld]:
    """Return what the node holds from now on; nothing where that changes nothing.

    Raises `NodeMissing` where the node is of another incarnation by now, or none of the topic's.
    """
    node = command.node
    if topic.incarnations.get(node) != command.incarnation:
        raise NodeMissing(
            node,
            layout.KEY,
            f"topic {topic.name!r}: node {node!r} is no longer the one that these files were copied to, or has no part "
            "of the topic: it was wiped and joined again. Read its marker again and copy what it misses",
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
        for each in _segments(topic.partitions[number])
        if (number, each.name) in wanted and not replicas.is_held(each.holders, node)
    )
    changes_nothing = not files and not segments and node not in topic.suspects and not _may_join_any(topic, node)
    return [] if changes_nothing else [FilesHeld(node, files, segments)]


def evolve(topic: Topic, event: FilesHeld) -> Topic:
    """Return the topic with one more holder of the files; LEOs, HW and ISR follow."""
    node = event.node
    holder = Holder(node, topic.incarnations[node])
    if event.files:
        listed = topic.files[:]
        for number in event.files:
            index = number - topic.first_file
            if index < 0:
                raise IndexError(f"file {number} was rolled")
            listed[index] = msgspec.structs.replace(listed[index], holders=(*listed[index].holders, holder))
        topic = msgspec.structs.replace(topic, files=AppendList(listed))
    changed: dict[int, Partition] = {}
    for number, name in event.segments:
        partition = changed.get(number, topic.partitions[number])
        changed[number] = msgspec.structs.replace(
            partition,
            segments=_held_too(partition.segments, name, holder),
            staged=_held_too(partition.staged, name, holder),
        )
    joining = () if node in topic.fenced else (node,)
    for number, before in enumerate(topic.partitions):
        if node not in before.replicas:
            continue
        partition = changed.get(number, before)
        ends = partition.log_end_offsets
        if ends[node] < partition.log_end:
            end = replicas.log_end_offset(topic, partition, node, ends[node])
            partition = msgspec.structs.replace(partition, log_end_offsets={**ends, node: end})
        changed[number] = replicas.advance(partition, topic.config, joining)
    return suspicion.without_suspicions(with_partitions(topic, changed.items()), (node,))


def missing(topic: Topic, node: NodeId) -> TopicFiles:
    """Return what `node` has to copy to hold all of the partitions of which it is a replica."""
    return _pieces(topic, node, held=False)


def held(topic: Topic, node: NodeId) -> TopicFiles:
    """Return what `node` is said to hold of the partitions of which it is a replica."""
    return _pieces(topic, node, held=True)


def _pieces(topic: Topic, node: NodeId, *, held: bool) -> TopicFiles:
    def wanted(holders: Collection[Holder]) -> bool:
        return replicas.is_held(holders, node) == held

    mine = [(number, each) for number, each in enumerate(topic.partitions) if node in each.replicas]
    numbers = {chunk.file for _, each in mine for chunk in each.chunks_between(each.log_start, each.log_end)}
    return TopicFiles(
        segments=tuple((n, one) for n, each in mine for one in each.segments if wanted(one.holders)),
        files=tuple((n, topic.file(n)) for n in sorted(numbers) if wanted(topic.file(n).holders)),
        staged=tuple((n, one) for n, each in mine for one in each.staged if wanted(one.holders)),
    )


def newest_held(topic: Topic, node: NodeId) -> str | None:
    """Return the key below the topic's folder of the newest file that the node is said to hold; None of none.

    A disk that was restored from a backup has the right marker, and lacks this file: such a node may not lead.
    """
    numbers = [
        chunk.file
        for each in topic.partitions
        for chunk in itertools.islice((c for c in reversed(each.chunks) if _has(topic, node, c.file)), 1)
    ]
    if numbers:
        return f"append/{topic.file(max(numbers)).name}"
    segments = [(one.born, number, one) for number, each in enumerate(topic.partitions) for one in _segments(each)]
    mine = [(born, f"{number}/{one.name}.log") for born, number, one in segments if replicas.is_held(one.holders, node)]
    return max(mine)[1] if mine else None


def held_alone(topic: Topic, node: NodeId) -> tuple[str, ...]:
    """Return the keys below the topic's folder of the files of which a leader has the only copy, from the HW on.

    They hold up the HW until others have copied them. Where one is gone nobody ever will.
    """
    waiting = {
        chunk.file
        for each in topic.partitions
        if each.leader == node
        for chunk in each.chunks_between(each.high_watermark, each.log_end)
    }
    files = [topic.file(number) for number in sorted(waiting)]
    alone = [
        each
        for each in files
        if {holder.node for holder in replicas.of_current_incarnations(topic, each.holders)} == {node}
    ]
    return tuple(f"append/{each.name}" for each in alone)


def _has(topic: Topic, node: NodeId, file: int) -> bool:
    return replicas.is_held(topic.file(file).holders, node)


def _segments(partition: Partition) -> tuple[SegmentRef, ...]:
    return (*partition.segments, *partition.staged)


def _held_too(segments: Collection[SegmentRef], name: str, holder: Holder) -> tuple[SegmentRef, ...]:
    return tuple(
        msgspec.structs.replace(each, holders=(*each.holders, holder)) if each.name == name else each
        for each in segments
    )


def _may_join_any(topic: Topic, node: NodeId) -> bool:
    return node not in topic.fenced and any(replicas.may_join_isr(partition, node) for partition in topic.partitions)
