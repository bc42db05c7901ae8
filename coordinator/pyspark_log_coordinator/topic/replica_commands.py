"""The commands of a topic that are about replicas.

    command             events
    HoldFiles        -> FilesHeld                       a node has copied files; its LEO, the HW and the ISR follow
    ShrinkIsr        -> IsrShrunk ...                   members have fallen behind
    Suspect          -> NodeSuspected                   cancelled by any entry that names the node as a holder
    CancelSuspicion  -> SuspicionCancelled              a process reaches the node again
    ReportDamage     -> IsrShrunk, LeaderElected ..., CopiesDamaged
    ElectLeaders     -> CopiesDamaged, RowsLost, LeaderElected ...
    ElectPreferred   -> LeaderElected ...
    AlterReplicaNode -> ReplicasRenewed, ReplicasFenced, ReplicasUnfenced, then RowsLost, LeaderElected ...
    AlterReplicas    -> ReplicasAltered ...             and again when the new replicas are in sync
    AddPartitions    -> PartitionsAdded

An entry with which replicas catch up also swaps in the staged segments that the whole ISR then holds, and ends
reassignments (`decide_follow_ups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import (
    damage,
    damaged_copies,
    election,
    file_holders,
    isr,
    node_changes,
    reassignment,
    row_loss,
    suspicion,
)
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld, HoldFiles
from pyspark_log_coordinator.replication.isr import IsrShrunk, ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import (
    AlterReplicaNode,
    ReplicasFenced,
    ReplicasRenewed,
    ReplicasUnfenced,
)
from pyspark_log_coordinator.replication.reassignment import (
    AddPartitions,
    AlterReplicas,
    PartitionsAdded,
    ReplicasAltered,
)
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, NodeSuspected, Suspect, SuspicionCancelled
from pyspark_log_coordinator.segments import swap

Command = (
    HoldFiles
    | ShrinkIsr
    | Suspect
    | CancelSuspicion
    | ReportDamage
    | ElectLeaders
    | ElectPreferred
    | AlterReplicaNode
    | AlterReplicas
    | AddPartitions
)
Event = (
    FilesHeld
    | IsrShrunk
    | NodeSuspected
    | SuspicionCancelled
    | CopiesDamaged
    | RowsLost
    | LeaderElected
    | ReplicasRenewed
    | ReplicasFenced
    | ReplicasUnfenced
    | ReplicasAltered
    | PartitionsAdded
)


def decide(topic: Topic, command: Command) -> Sequence[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    match command:
        case HoldFiles():
            return file_holders.decide(topic, command)
        case ShrinkIsr():
            return isr.decide(topic, command)
        case Suspect():
            return suspicion.decide(topic, command)
        case CancelSuspicion():
            return suspicion.decide_cancel(topic, command)
        case ReportDamage():
            return damage.decide(topic, command)
        case ElectLeaders():
            return election.decide(topic, command)
        case ElectPreferred():
            return election.decide_preferred(topic, command)
        case AlterReplicaNode():
            return node_changes.decide(topic, command)
        case AlterReplicas():
            return reassignment.decide(topic, command)
        case AddPartitions():
            return reassignment.decide_addition(topic, command)


def decide_follow_ups(topic: Topic, now: int) -> list[Any]:
    """Return the events that follow from those that led to this state, at `now` (ms)."""
    return [*swap.decide_staged(topic, now), *reassignment.decide_completion(topic)]


def may_need_follow_ups(topic: Topic, command: object) -> bool:
    """Return whether events may follow from those of a command; cheap for a batch."""
    if isinstance(command, Command):
        return True
    return len(topic.incarnations) > 1 and any(each.staged or each.adding or each.removing for each in topic.partitions)


def evolve(topic: Topic, event: Event) -> Topic:
    """Return the topic after `event`."""
    match event:
        case FilesHeld():
            return file_holders.evolve(topic, event)
        case IsrShrunk():
            return isr.evolve(topic, event)
        case NodeSuspected():
            return suspicion.evolve(topic, event)
        case SuspicionCancelled():
            return suspicion.evolve_cancel(topic, event)
        case CopiesDamaged():
            return damaged_copies.evolve(topic, event)
        case RowsLost():
            return row_loss.evolve(topic, event)
        case LeaderElected():
            return election.evolve(topic, event)
        case ReplicasRenewed() | ReplicasFenced() | ReplicasUnfenced():
            return node_changes.evolve(topic, event)
        case ReplicasAltered():
            return reassignment.evolve(topic, event)
        case PartitionsAdded():
            return reassignment.evolve_addition(topic, event)
