"""Reassignment: a partition's replicas move to other nodes, or change in number, while it is written and read.

At first both the old and the new nodes are replicas. When all new ones are in the ISR, the old ones leave; if one of
these leads, another replica is elected first. A new reassignment replaces the current one, and one to the original
nodes cancels it. Source: KIP-455 (adding and removing replicas). Partitions can be added, but not removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, Partition, empty
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand, with_partition
from pyspark_log_coordinator.replication import election, replicas
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.replication.election import LeaderElected


class AlterReplicas(TopicCommand, frozen=True):
    """Move partitions, by number, to other nodes, preferred leader first.

    `incarnations` are those of all nodes of the assignments. They count for nodes that the topic does not know: it may
    have learned meanwhile that another was wiped.
    """

    assignments: dict[int, tuple[NodeId, ...]]
    incarnations: dict[NodeId, str]


class AddPartitions(TopicCommand, frozen=True):
    """Add a partition for each assignment: its nodes, preferred leader first."""

    assignments: tuple[tuple[NodeId, ...], ...]
    incarnations: dict[NodeId, str]
    first: int | None = None
    """The expected number of the first new partition. Nothing is added if another process has added partitions."""


class ReplicasAltered(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The partition is on these nodes. During a reassignment these include the nodes in `removing`."""

    partition: Count
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    incarnations: dict[NodeId, str]
    """The incarnations of nodes that the topic did not know."""


class PartitionsAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic has more partitions, empty, after the existing ones."""

    assignments: tuple[tuple[NodeId, ...], ...]
    incarnations: dict[NodeId, str]


def original(partition: Partition) -> tuple[NodeId, ...]:
    """Return the partition's nodes before the current reassignment, preferred leader first."""
    return partition.before or partition.replicas


def target(partition: Partition) -> tuple[NodeId, ...]:
    """Return the partition's nodes after the current reassignment, preferred leader first."""
    return tuple(node for node in partition.replicas if node not in partition.removing)


def decide(topic: Topic, command: AlterReplicas) -> list[LeaderElected | ReplicasAltered]:
    """Return the events that begin the reassignments, none for partitions that have or get these nodes already.

    Raise `InvalidInput` for an unknown partition and for nodes that it cannot move to.
    """
    altered: list[LeaderElected | ReplicasAltered] = []
    for number, nodes in command.assignments.items():
        partition = topic.partition(number)
        _check(topic, nodes, command.incarnations)
        before = original(partition)
        if nodes == target(partition):
            continue
        fenced = [node for node in nodes if node not in before and node in topic.fenced]
        if fenced:
            raise InvalidInput(
                f"topic {topic.name!r}: a partition cannot move to node {fenced[0]}, which is fenced; choose another "
                "node, or unfence it first"
            )
        one = ReplicasAltered(
            partition=number,
            replicas=(*nodes, *(node for node in before if node not in nodes)),
            adding=tuple(node for node in nodes if node not in before),
            removing=tuple(node for node in before if node not in nodes),
            incarnations=_new_nodes(topic, nodes, command.incarnations),
        )
        _check_committed(topic, number, one.replicas)
        altered += [*_hand_over(topic, number, one.replicas), one]
    return altered


def _check_committed(topic: Topic, number: int, left: tuple[NodeId, ...]) -> None:
    """Raise `InvalidInput` if nodes leave at once without which committed rows are on too few replicas.

    With replication.mode=quorum a majority that has them may be nodes that a reassignment is adding.
    """
    partition = topic.partitions[number]
    before = original(partition)
    if set(partition.replicas) <= set(left) or replicas.keeps_committed(partition, before, len(before), topic.config):
        return
    raise InvalidInput(
        f"topic {topic.name!r}, partition {number}: too few of its former replicas, {', '.join(before)}, have all "
        "committed rows; let them catch up first, with pyspark-log node run, or let the reassignment end"
    )


def _hand_over(topic: Topic, number: int, left: tuple[NodeId, ...]) -> list[LeaderElected]:
    """Return the election that must come before only `left` are replicas, none if the leader is one of them.

    When a reassignment is replaced, the nodes that it was adding leave at once, and one of these may lead.
    """
    partition = topic.partitions[number]
    is_led = partition.leader is None or partition.leader in left
    if is_led and (not partition.isr or any(node in left for node in partition.isr)):
        return []
    able = _able_to_lead(topic, partition, left)
    if not able:
        raise InvalidInput(
            f"topic {topic.name!r}, partition {number}: only {', '.join(partition.isr)} has every row, but would no "
            "longer be a replica; let the others catch up first, with pyspark-log node run"
        )
    return [election.leader_elected(partition, number, able[0], partition.isr)]


def _able_to_lead(topic: Topic, partition: Partition, left: tuple[NodeId, ...]) -> list[NodeId]:
    """Return those that may lead without loss, preferred leader first, and last those that may be unreachable."""
    able = election.fully_caught_up(topic, partition)
    return sorted((node for node in left if node in able), key=lambda node: node in topic.suspects)


def decide_addition(topic: Topic, command: AddPartitions) -> list[PartitionsAdded]:
    """Return the event that adds the partitions. Raise `InvalidInput` for nodes that they cannot be on."""
    if not command.assignments or command.first not in {None, len(topic.partitions)}:
        return []
    named = [node for nodes in command.assignments for node in nodes]
    for nodes in command.assignments:
        _check(topic, nodes, command.incarnations)
    new = _new_nodes(topic, named, command.incarnations)
    return [PartitionsAdded(command.assignments, new)]


def is_reassigning(partition: Partition) -> bool:
    """Return whether a reassignment of the partition has begun and not ended."""
    return bool(partition.adding or partition.removing)


def decide_completion(topic: Topic) -> list[LeaderElected | ReplicasAltered]:
    """Return the events that end the reassignments whose new replicas are all in the ISR."""
    events: list[LeaderElected | ReplicasAltered] = []
    for number, partition in enumerate(topic.partitions):
        if not is_reassigning(partition) or not set(partition.adding) <= set(partition.isr):
            continue
        left = target(partition)
        if not replicas.keeps_committed(partition, left, len(left), topic.config):
            continue  # a majority of them must have all committed rows
        if partition.leader not in left:
            able = _able_to_lead(topic, partition, left)
            if not able:
                continue  # one of them will soon have every row
            events.append(election.leader_elected(partition, number, able[0], partition.isr))
        events.append(ReplicasAltered(number, left, (), (), {}))
    return events


def evolve(topic: Topic, event: ReplicasAltered) -> Topic:
    """Return the topic with the partition's new replicas, which may hold rows already."""
    topic = _with_nodes(topic, event.incarnations)
    partition = topic.partitions[event.partition]
    ends = {
        node: partition.log_end_offsets[node]
        if node in partition.log_end_offsets
        else replicas.log_end_offset(topic, partition, node, partition.log_start)
        for node in event.replicas
    }
    changed = msgspec.structs.replace(
        partition,
        replicas=event.replicas,
        isr=replicas.in_preference_order(event.replicas, partition.isr),
        adding=event.adding,
        removing=event.removing,
        before=original(partition) if event.adding or event.removing else (),
        log_end_offsets=ends,
    )
    return with_partition(topic, event.partition, replicas.advance(changed, topic.config))


def evolve_addition(topic: Topic, event: PartitionsAdded) -> Topic:
    """Return the topic with its new partitions."""
    topic = _with_nodes(topic, event.incarnations)
    added = [empty(nodes, tuple(node for node in nodes if node not in topic.fenced)) for nodes in event.assignments]
    return msgspec.structs.replace(topic, partitions=(*topic.partitions, *added))


def _check(topic: Topic, nodes: tuple[NodeId, ...], incarnations: dict[NodeId, str]) -> None:
    unknown = [node for node in nodes if node not in incarnations]
    if not nodes or len(set(nodes)) != len(nodes) or unknown:
        raise InvalidInput(
            f"topic {topic.name!r}: a partition cannot be on {', '.join(nodes) or 'no node'}; name each node once, and "
            f"only nodes of the cluster{f' (not {unknown[0]})' if unknown else ''}"
        )


def _new_nodes(topic: Topic, nodes: Iterable[NodeId], incarnations: dict[NodeId, str]) -> dict[NodeId, str]:
    return {node: incarnations[node] for node in nodes if node not in topic.incarnations}


def _with_nodes(topic: Topic, incarnations: dict[NodeId, str]) -> Topic:
    if not incarnations:
        return topic
    return msgspec.structs.replace(topic, incarnations={**topic.incarnations, **incarnations})
