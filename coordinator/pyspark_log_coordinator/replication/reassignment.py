"""Reassignment: a partition's replicas move to other nodes, or become more or fewer, while it is written and read.

The replicas are first those that were and those that will be; those that were, and will not be, leave when all that are
new are in the ISR, and another leads where the leader is one of them. A reassignment that is under way is replaced by
the next, and cancelled by one to what was. Source: KIP-455 (adding and removing replicas). Partitions can be added, and
never taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, Partition, empty
from pyspark_log_coordinator.model.topic_state import Topic, with_partition
from pyspark_log_coordinator.replication import election, node_changes, replicas
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.replication.election import LeaderElected
    from pyspark_log_coordinator.replication.node_changes import ReplicasRenewed
    from pyspark_log_coordinator.replication.row_loss import RowsLost


class PartitionReassignment(msgspec.Struct, frozen=True, array_like=True):
    """The nodes that a partition shall be on, preferred leader first."""

    partition: int
    nodes: tuple[NodeId, ...]


class AlterReplicas(msgspec.Struct, frozen=True):
    """Move partitions to other nodes. `incarnations` are those of all nodes that are named."""

    assignments: tuple[PartitionReassignment, ...]
    incarnations: dict[NodeId, str]


class AddPartitions(msgspec.Struct, frozen=True):
    """Add a partition for each assignment: its nodes, preferred leader first."""

    assignments: tuple[tuple[NodeId, ...], ...]
    incarnations: dict[NodeId, str]
    first: int | None = None
    """The number that the first of them gets. Where another has added partitions meanwhile, nothing is added."""


class ReplicasAltered(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The partition is on these nodes. While a reassignment lasts, `removing` are still among them."""

    partition: Count
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    incarnations: dict[NodeId, str]
    """Of the nodes that the topic did not know."""


class PartitionsAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic has more partitions, empty, behind those that it had."""

    assignments: tuple[tuple[NodeId, ...], ...]
    incarnations: dict[NodeId, str]


def original(partition: Partition) -> tuple[NodeId, ...]:
    """Return the nodes that the partition was on before the reassignment that is under way, preferred leader first."""
    return partition.before or partition.replicas


def target(partition: Partition) -> tuple[NodeId, ...]:
    """Return the nodes that the partition will be on when the reassignment that is under way has ended."""
    return tuple(node for node in partition.replicas if node not in partition.removing)


def decide(topic: Topic, command: AlterReplicas) -> list[ReplicasRenewed | RowsLost | LeaderElected | ReplicasAltered]:
    """Return how reassignments begin; nothing of those that are as asked for. Raises `InvalidInput`."""
    renewed = node_changes.renew(topic, command.incarnations)
    for event in renewed:
        topic = node_changes.folded(topic, event)
    altered: list[LeaderElected | ReplicasAltered] = []
    for each in command.assignments:
        if not 0 <= each.partition < len(topic.partitions):
            raise InvalidInput(
                f"topic {topic.name!r} has no partition {each.partition}: it has {len(topic.partitions)}, from 0; "
                "choose one of these"
            )
        _check(topic, each.nodes, command.incarnations)
        partition = topic.partitions[each.partition]
        before = original(partition)
        if each.nodes == target(partition):
            continue
        _check_in_service(topic, [node for node in each.nodes if node not in before])
        one = ReplicasAltered(
            partition=each.partition,
            replicas=(*each.nodes, *(node for node in before if node not in each.nodes)),
            adding=tuple(node for node in each.nodes if node not in before),
            removing=tuple(node for node in before if node not in each.nodes),
            incarnations=_new(topic, each.nodes, command.incarnations),
        )
        altered += [*_handed_over(topic, each.partition, one.replicas), one]
    return [*renewed, *altered] if altered else []


def _handed_over(topic: Topic, number: int, left: tuple[NodeId, ...]) -> list[LeaderElected]:
    """Return the election that must come before only `left` are replicas, none where the leader is one of them.

    The nodes that a reassignment was bringing leave at once where another takes its place, and one may lead by then.
    """
    partition = topic.partitions[number]
    is_led = partition.leader is None or partition.leader in left
    if is_led and (not partition.isr or any(node in left for node in partition.isr)):
        return []
    able = [node for node in left if node in election.fully_caught_up(topic, partition)]
    if not able:
        raise InvalidInput(
            f"topic {topic.name!r}, partition {number}: only {', '.join(partition.isr)} has every row, which would no "
            "longer be a replica; let the others catch up first, with pyspark-log node run"
        )
    return [election.leader_elected(partition, number, able[0], partition.isr)]


def decide_addition(
    topic: Topic, command: AddPartitions
) -> list[ReplicasRenewed | RowsLost | LeaderElected | PartitionsAdded]:
    """Return the addition of partitions. Raises `InvalidInput`."""
    if not command.assignments or command.first not in {None, len(topic.partitions)}:
        return []
    named = [node for nodes in command.assignments for node in nodes]
    for nodes in command.assignments:
        _check(topic, nodes, command.incarnations)
    new = _new(topic, named, command.incarnations)
    return [*node_changes.renew(topic, command.incarnations), PartitionsAdded(command.assignments, new)]


def decide_completion(topic: Topic) -> list[LeaderElected | ReplicasAltered]:
    """Return the ends of the reassignments whose new replicas are all in sync."""
    events: list[LeaderElected | ReplicasAltered] = []
    for number, partition in enumerate(topic.partitions):
        if not (partition.adding or partition.removing) or not set(partition.adding) <= set(partition.isr):
            continue
        left = target(partition)
        if not replicas.keeps_committed(partition, left, len(left), topic.config):
            continue  # a majority of them must have what is committed
        if partition.leader not in left:
            able = [node for node in election.fully_caught_up(topic, partition) if node in left]
            if not able:
                continue  # a moment later one of them has every row
            events.append(election.leader_elected(partition, number, able[0], partition.isr))
        events.append(ReplicasAltered(number, left, (), (), {}))
    return events


def evolve(topic: Topic, event: ReplicasAltered) -> Topic:
    """Return the topic with the partition's other replicas. A new one may hold rows already."""
    topic = _knowing(topic, event.incarnations)
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
    topic = _knowing(topic, event.incarnations)
    added = [empty(nodes, _in_service(topic, nodes)) for nodes in event.assignments]
    return msgspec.structs.replace(topic, partitions=(*topic.partitions, *added))


def _in_service(topic: Topic, nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node not in topic.fenced)


def _check(topic: Topic, nodes: tuple[NodeId, ...], incarnations: dict[NodeId, str]) -> None:
    unknown = [node for node in nodes if node not in incarnations]
    if not nodes or len(set(nodes)) != len(nodes) or unknown:
        raise InvalidInput(
            f"topic {topic.name!r}: a partition cannot be on {', '.join(nodes) or 'no node'}: name each node once, and "
            f"only nodes of the cluster{f' (not {unknown[0]})' if unknown else ''}"
        )


def _check_in_service(topic: Topic, nodes: Iterable[NodeId]) -> None:
    fenced = [node for node in nodes if node in topic.fenced]
    if fenced:
        raise InvalidInput(
            f"topic {topic.name!r}: node {fenced[0]} is fenced, so a partition cannot move to it; choose another, or "
            "unfence it first"
        )


def _new(topic: Topic, nodes: Iterable[NodeId], incarnations: dict[NodeId, str]) -> dict[NodeId, str]:
    return {node: incarnations[node] for node in nodes if node not in topic.incarnations}


def _knowing(topic: Topic, incarnations: dict[NodeId, str]) -> Topic:
    if not incarnations:
        return topic
    return msgspec.structs.replace(topic, incarnations={**topic.incarnations, **incarnations})
