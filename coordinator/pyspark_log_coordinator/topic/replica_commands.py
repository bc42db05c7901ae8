"""The commands of a topic that are about replicas.

    command             events
    HoldFiles        -> FilesHeld                       a node has copied files; its LEO, the HW and the ISR follow
    ShrinkIsr        -> IsrShrunk ...                   members have fallen behind
    Suspect          -> NodeSuspected                   cancelled by any entry that names the node as a holder
    CancelSuspicion  -> SuspicionCancelled              a process reaches the node again
    ElectLeaders     -> RowsLost, LeaderElected ...
    ElectPreferred   -> LeaderElected ...
    AlterReplicaNode -> ReplicasRenewed, ReplicasFenced, ReplicasUnfenced, then RowsLost, LeaderElected ...
    AlterReplicas    -> ReplicasAltered ...             and again when the new replicas are in sync
    AddPartitions    -> PartitionsAdded

An entry with which replicas catch up also ends reassignments (`reassignment.decide_completion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import (
    election,
    file_holders,
    isr_shrink,
    node_changes,
    reassignment,
    row_loss,
    suspicion,
)

Command = (
    file_holders.HoldFiles
    | isr_shrink.ShrinkIsr
    | suspicion.Command
    | election.ElectLeaders
    | election.ElectPreferred
    | node_changes.AlterReplicaNode
    | reassignment.AlterReplicas
    | reassignment.AddPartitions
)
Event = (
    file_holders.FilesHeld
    | isr_shrink.IsrShrunk
    | suspicion.Event
    | row_loss.RowsLost
    | election.LeaderElected
    | node_changes.NodeChanged
    | reassignment.ReplicasAltered
    | reassignment.PartitionsAdded
)


def decide(topic: Topic, command: Command) -> Sequence[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    match command:
        case file_holders.HoldFiles():
            return file_holders.decide(topic, command)
        case isr_shrink.ShrinkIsr():
            return isr_shrink.decide(topic, command)
        case suspicion.Suspect() | suspicion.CancelSuspicion():
            return suspicion.decide(topic, command)
        case election.ElectLeaders():
            return election.decide(topic, command)
        case election.ElectPreferred():
            return election.decide_preferred(topic, command)
        case node_changes.AlterReplicaNode():
            return node_changes.decide(topic, command)
        case reassignment.AlterReplicas():
            return reassignment.decide(topic, command)
        case reassignment.AddPartitions():
            return reassignment.decide_addition(topic, command)


def may_end_reassignment(topic: Topic, command: object) -> bool:
    """Return whether a command may end a reassignment; cheap for a batch."""
    if isinstance(command, Command):
        return True
    return len(topic.incarnations) > 1 and any(map(reassignment.is_reassigning, topic.partitions))


def evolve(topic: Topic, event: Event) -> Topic:
    """Return the topic after `event`."""
    match event:
        case file_holders.FilesHeld():
            return file_holders.evolve(topic, event)
        case isr_shrink.IsrShrunk():
            return isr_shrink.evolve(topic, event)
        case suspicion.NodeSuspected() | suspicion.SuspicionCancelled():
            return suspicion.evolve(topic, event)
        case row_loss.RowsLost():
            return row_loss.evolve(topic, event)
        case election.LeaderElected():
            return election.evolve(topic, event)
        case node_changes.ReplicasRenewed() | node_changes.ReplicasFenced() | node_changes.ReplicasUnfenced():
            return node_changes.evolve(topic, event)
        case reassignment.ReplicasAltered():
            return reassignment.evolve(topic, event)
        case reassignment.PartitionsAdded():
            return reassignment.evolve_addition(topic, event)
