"""Node changes: what follows in a topic when one of its nodes is wiped, fenced or unfenced.

A wiped node joins again in a new incarnation: it holds nothing, begins at the log start and leaves every ISR. A fenced
node leads nothing and leaves every ISR except those of which it is the last member. In its place another member of the
ISR leads, which counts as live unless it is suspected.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand
from pyspark_log_coordinator.replication import election, replicas, suspicion
from pyspark_log_coordinator.replication.election import Elected


class AlterReplicaNode(TopicCommand, frozen=True):
    """Record a node's incarnation and whether it is fenced."""

    node: NodeId
    incarnation: str
    fenced: bool = False
    instead_of: tuple[str, bool] | None = None
    """What the topic must still know of the node, in the same order; None for anything: the caller knows no older."""


class ReplicasRenewed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node was wiped: this is its new, empty incarnation."""

    node: NodeId
    incarnation: str


class ReplicasFenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node was fenced."""

    node: NodeId


class ReplicasUnfenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node was unfenced."""

    node: NodeId


NodeChanged = ReplicasRenewed | ReplicasFenced | ReplicasUnfenced


def decide(topic: Topic, command: AlterReplicaNode) -> list[NodeChanged | Elected]:
    """Return the changes and the elections that follow, none for a node of which the topic knows nothing or more."""
    node = command.node
    if node not in topic.incarnations or command.instead_of not in {None, known_of(topic, node)}:
        return []
    changes: list[NodeChanged] = []
    if topic.incarnations[node] != command.incarnation:
        changes.append(ReplicasRenewed(node, command.incarnation))
    if command.fenced != (node in topic.fenced):
        changes.append(ReplicasFenced(node) if command.fenced else ReplicasUnfenced(node))
    for change in changes:
        topic = evolve(topic, change)
    return [*changes, *_elections(topic, node)] if changes else []


def known_of(topic: Topic, node: NodeId) -> tuple[str, bool]:
    """Return the incarnation of one of the topic's nodes, and whether it is fenced."""
    return topic.incarnations[node], node in topic.fenced


def evolve(topic: Topic, event: NodeChanged) -> Topic:
    """Return the topic after the change of the node."""
    match event:
        case ReplicasRenewed():
            return _wiped(topic, event)
        case ReplicasFenced():
            partitions = tuple(
                each if each.isr == (event.node,) else _out_of_isr(topic, each, event.node) for each in topic.partitions
            )
            return msgspec.structs.replace(topic, fenced=(*topic.fenced, event.node), partitions=partitions)
        case ReplicasUnfenced():
            return msgspec.structs.replace(topic, fenced=tuple(each for each in topic.fenced if each != event.node))


def _wiped(topic: Topic, event: ReplicasRenewed) -> Topic:
    node = event.node
    partitions = []
    for partition in topic.partitions:
        segments = tuple(replicas.without_holder(each, node) for each in partition.segments)
        wiped = msgspec.structs.replace(partition, segments=segments)
        if node in partition.replicas:
            ends = {**partition.log_end_offsets, node: partition.log_start}
            wiped = _out_of_isr(topic, msgspec.structs.replace(wiped, log_end_offsets=ends), node)
        partitions.append(wiped)
    topic = msgspec.structs.replace(
        topic,
        incarnations={**topic.incarnations, node: event.incarnation},
        files=tuple(replicas.without_holder(each, node) for each in topic.files),
        partitions=tuple(partitions),
    )
    return suspicion.without_suspicions(topic, (node,))


def _out_of_isr(topic: Topic, partition: Partition, node: NodeId) -> Partition:
    if node not in partition.isr:
        return partition
    isr = tuple(each for each in partition.isr if each != node)
    return replicas.advance(msgspec.structs.replace(partition, isr=isr), topic.config)


def _elections(topic: Topic, node: NodeId) -> list[Elected]:
    """Return the elections of partitions that the node may no longer lead, and of leaderless ones that it may lead."""
    live = [each for each in topic.incarnations if each not in topic.suspects]
    events: list[Elected] = []
    for number, partition in enumerate(topic.partitions):
        led = partition.leader == node and (node not in partition.isr or node in topic.fenced)
        if led or (partition.leader is None and node in partition.isr):
            events += election.elect(topic, number, live, ())
    return events
