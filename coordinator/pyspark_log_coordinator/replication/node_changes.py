"""Node changes: what the cluster says of a node, as far as it concerns a topic.

A node that was wiped joins again in a new incarnation: what it held is gone, so it holds nothing, begins at the log
start and is out of every ISR. A node that is fenced leads nothing and is out of every ISR but those of which it is the
last member. Where it led, another member of the ISR leads from now on, taken to be live unless it is under suspicion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import election, replicas, row_loss
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.row_loss import RowsLost

if TYPE_CHECKING:
    from collections.abc import Mapping


class AlterReplicaNode(msgspec.Struct, frozen=True):
    """Tell the topic which incarnation a node has, and whether it is fenced."""

    node: NodeId
    incarnation: str
    fenced: bool = False


class ReplicasRenewed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is a new, empty one."""

    node: NodeId
    incarnation: str


class ReplicasFenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is out of service."""

    node: NodeId


class ReplicasUnfenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is in service again."""

    node: NodeId


Event = ReplicasRenewed | ReplicasFenced | ReplicasUnfenced | RowsLost | LeaderElected


def decide(topic: Topic, command: AlterReplicaNode) -> list[Event]:
    """Return the changes and the elections that they bring; nothing for a node that the topic does not know."""
    node = command.node
    if node not in topic.incarnations:
        return []
    events: list[Event] = list(renew(topic, {node: command.incarnation}))
    for event in events:
        topic = folded(topic, event)
    if command.fenced and node not in topic.fenced:
        fenced = ReplicasFenced(node)
        events += [fenced, *_elections(folded(topic, fenced), node)]
    elif not command.fenced and node in topic.fenced:
        unfenced = ReplicasUnfenced(node)
        events += [unfenced, *_elections(folded(topic, unfenced), node)]
    return events


def renew(topic: Topic, incarnations: Mapping[NodeId, str]) -> list[ReplicasRenewed | RowsLost | LeaderElected]:
    """Return what comes of other incarnations of nodes that the topic knows, nothing of those that it has already."""
    events: list[ReplicasRenewed | RowsLost | LeaderElected] = []
    for node, incarnation in incarnations.items():
        if topic.incarnations.get(node, incarnation) == incarnation:
            continue
        renewed = ReplicasRenewed(node, incarnation)
        topic = evolve(topic, renewed)
        elected = _elections(topic, node)
        for event in elected:
            topic = folded(topic, event)
        events += [renewed, *elected]
    return events


def evolve(topic: Topic, event: ReplicasRenewed | ReplicasFenced | ReplicasUnfenced) -> Topic:
    """Return the topic with what is known of the node."""
    match event:
        case ReplicasRenewed():
            return _emptied(topic, event)
        case ReplicasFenced():
            topic = msgspec.structs.replace(topic, fenced=(*topic.fenced, event.node))
            return _each(topic, [_without(topic, each, event.node, last=True) for each in topic.partitions])
        case ReplicasUnfenced():
            return msgspec.structs.replace(topic, fenced=tuple(each for each in topic.fenced if each != event.node))


def _emptied(topic: Topic, event: ReplicasRenewed) -> Topic:
    node = event.node
    files = [msgspec.structs.replace(each, holders=_others(each.holders, node)) for each in topic.files]
    topic = msgspec.structs.replace(
        topic,
        incarnations={**topic.incarnations, node: event.incarnation},
        suspects={each: number for each, number in topic.suspects.items() if each != node},
        files=AppendList(files),
    )
    partitions = []
    for partition in topic.partitions:
        emptied = msgspec.structs.replace(
            partition,
            segments=_not_held(partition.segments, node),
            staged=tuple(each for each in _not_held(partition.staged, node) if each.holders),
        )
        if node in partition.replicas:
            ends = {**partition.log_end_offsets, node: partition.log_start}
            emptied = _without(topic, msgspec.structs.replace(emptied, log_end_offsets=ends), node)
        partitions.append(emptied)
    return _each(topic, partitions)


def _without(topic: Topic, partition: Partition, node: NodeId, *, last: bool = False) -> Partition:
    """Return the partition with the node out of its ISR; with `last` it stays where it is the only member."""
    if node not in partition.isr or (last and partition.isr == (node,)):
        return partition
    isr = tuple(each for each in partition.isr if each != node)
    return replicas.advance(msgspec.structs.replace(partition, isr=isr), topic.config)


def _elections(topic: Topic, node: NodeId) -> list[RowsLost | LeaderElected]:
    """Return the elections where the node led and may not, and where nobody leads and it may."""
    live = [each for each in topic.incarnations if each not in topic.suspects]
    events: list[RowsLost | LeaderElected] = []
    for number, partition in enumerate(topic.partitions):
        led = partition.leader == node and (node not in partition.isr or node in topic.fenced)
        if led or (partition.leader is None and node in partition.isr):
            events += election.elect(topic, number, live, ())
    return events


def folded(topic: Topic, event: Event) -> Topic:
    """Return the topic after one of this module's events, or of the elections that they bring."""
    match event:
        case RowsLost():
            return row_loss.evolve(topic, event)
        case LeaderElected():
            return election.evolve(topic, event)
        case _:
            return evolve(topic, event)


def _others(holders: tuple[Holder, ...], node: NodeId) -> tuple[Holder, ...]:
    return tuple(holder for holder in holders if holder.node != node)


def _not_held(segments: tuple[SegmentRef, ...], node: NodeId) -> tuple[SegmentRef, ...]:
    return tuple(msgspec.structs.replace(each, holders=_others(each.holders, node)) for each in segments)


def _each(topic: Topic, partitions: list[Partition]) -> Topic:
    return msgspec.structs.replace(topic, partitions=tuple(partitions))
