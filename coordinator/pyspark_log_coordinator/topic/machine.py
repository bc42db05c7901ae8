"""The state machine of a topic: one journal for each topic id, with all partitions.

    command             events
    StartTopic       -> TopicStarted                        the journal's first entry
    BeginJournal     -> JournalBegun                        the first entry of a journal that begins anew
    CommitBatch      -> IsrShrunk, LeaderElected ..., BatchSequenced, SegmentsSwapped ...
    MaintainSegments -> SegmentsSwapped ...
    ApplyRetention, DeleteRecords -> LogStartMoved ...
    RaiseOrphanFloor -> OrphanFloorRaised, FloorMarked
    ConfirmDeletions -> DeletionsConfirmed
    AlterConfig      -> ConfigAltered, IsrShrunk ...
    EvolveSchema     -> SchemaEvolved
    DeleteTopic      -> TopicDeleted                        nothing but JournalEnded follows
    EndJournal       -> JournalEnded                        the last entry: the journal goes on at other stores
    HoldFiles        -> FilesHeld                           a node has copied files; its LEO, the HW and the ISR follow
    ShrinkIsr        -> IsrShrunk ...                       members have fallen behind
    Suspect          -> NodeSuspected                       cancelled by any entry that names the node as a holder
    CancelSuspicion  -> SuspicionCancelled                  a process reaches the node again
    ElectLeaders     -> RowsLost, LeaderElected ...
    ElectPreferred   -> LeaderElected ...
    AlterReplicaNode -> ReplicasRenewed, ReplicasFenced, ReplicasUnfenced, then RowsLost, LeaderElected ...
    AlterReplicas    -> ReplicasAltered ...                 and again when the new replicas are in sync
    AddPartitions    -> PartitionsAdded

One entry sequences a whole batch: readers see it in all partitions or in none. An entry with which replicas catch up
also ends reassignments (`reassignment.decide_completion`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

import msgspec

from pyspark_log_coordinator.journal.state_machine import (
    BeginJournal,
    EndJournal,
    JournalBegun,
    JournalEnded,
    Machine,
    decide_end,
    events_decoder,
)
from pyspark_log_coordinator.model import topic_config, topic_state
from pyspark_log_coordinator.model.partition import NodeId, empty
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand
from pyspark_log_coordinator.replication import (
    election,
    file_holders,
    isr_shrink,
    node_changes,
    reassignment,
    row_loss,
    suspicion,
)
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, Suspect
from pyspark_log_coordinator.segments import orphans, retention, swap
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_coordinator.topic import columns, integrity, sequencing
from pyspark_log_coordinator.topic.columns import EvolveSchema
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import UnknownTopic
from pyspark_log_storage.stored_fields import Int64


class StartTopic(TopicCommand, frozen=True):
    """Begin the topic's journal with the cluster's record of the topic."""

    topic: TopicStarted


class DeleteTopic(TopicCommand, frozen=True):
    """End the topic: nothing is sequenced or read afterwards."""


class TopicStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic exists, empty. `assignments[p]` are the nodes of partition p, preferred leader first."""

    name: str
    topic_id: str
    config: TopicConfig
    schemas: tuple[bytes, ...]
    incarnations: dict[NodeId, str]
    assignments: tuple[tuple[NodeId, ...], ...]


class TopicDeleted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic was deleted; its files may be deleted after `file.delete.delay.ms`."""

    at_ms: Int64


class AlterConfig(TopicCommand, frozen=True):
    """Change the configuration: settings by Kafka's names."""

    settings: dict[str, str]


class ConfigAltered(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic has this configuration from now on."""

    config: TopicConfig


Command = TopicCommand | BeginJournal | EndJournal


def decide(state: Topic, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    if isinstance(command, EndJournal):
        return list(decide_end(state.generation, command))
    events = _decide(state, command, now)
    if events and (isinstance(command, AlterReplicas) or _is_reassigning(state)):
        return [*events, *reassignment.decide_completion(_after(state, events))]
    return events


def _is_reassigning(state: Topic) -> bool:
    """Return whether a partition is being reassigned; cheap for a topic on one node."""
    return state.is_replicated and any(map(reassignment.is_reassigning, state.partitions))


def was_deleted(name: str, topic_id: str) -> UnknownTopic:
    """Return the error for a topic that was deleted. A new one may have its name by now."""
    advice = "create it again unless somebody has, then assign it again, or start again"
    return UnknownTopic(name, f"topic {name!r} ({topic_id}) was deleted; {advice}")


def _decide(state: Topic, command: Command, now: int) -> list[Any]:
    if isinstance(command, (BeginJournal, StartTopic)):
        return _begin(state, command)
    assert not isinstance(command, EndJournal)
    assert state.started, "TopicHandle.refresh begins the journal before any other command"
    if state.deleted and not isinstance(command, DeleteTopic):
        raise was_deleted(state.name, state.topic_id)
    return list(_DECIDE[type(command)](state, command, now))


def _commit(state: Topic, command: CommitBatch, now: int) -> list[Any]:
    batch = sequencing.decide(state, command, now)
    # A replica that joins the ISR with the batch must hold a segment before that is swapped in.
    return [*batch, *swap.decide(_after(state, batch), command.swaps, now)] if command.swaps else batch


def _alter(state: Topic, command: AlterConfig) -> list[Any]:
    changed = state.config.alter(command.settings)
    if changed.min_insync_replicas != state.config.min_insync_replicas:
        topic_config.check_min_insync(
            state.name, changed, min(len(partition.replicas) for partition in state.partitions)
        )
    if changed != state.config:
        changed = columns.with_columns(state, changed)
    if changed == state.config:
        return []
    altered = ConfigAltered(changed)
    return [altered, *isr_shrink.decide_altered(evolve(state, altered))]


def _begin(state: Topic, command: BeginJournal | StartTopic) -> list[Any]:
    if state.started:
        return []
    return [JournalBegun(command.state) if isinstance(command, BeginJournal) else command.topic]


def _after(state: Topic, events: list[Any]) -> Topic:
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: Topic, event: Any) -> Topic:
    return _EVOLVE[type(event)](state, event)


def _begin_anew(state: Topic, event: JournalBegun) -> Topic:
    _check_begins(state)
    return topic_state.decode(event.state)


def _check_begins(state: Topic) -> None:
    if state.started:
        raise ValueError("the topic is started twice")


def _start(state: Topic, event: TopicStarted) -> Topic:
    _check_begins(state)
    partitions = tuple(empty(nodes, nodes) for nodes in event.assignments)
    return Topic(
        name=event.name,
        topic_id=event.topic_id,
        config=event.config,
        schemas=event.schemas,
        incarnations=event.incarnations,
        partitions=partitions,
        started=True,
    )


def _end(state: Topic, event: TopicDeleted) -> Topic:
    """Return the deleted topic without its lists of files, because its last snapshot is kept forever."""
    emptied = (msgspec.structs.replace(partition, segments=(), chunks=()) for partition in state.partitions)
    return msgspec.structs.replace(
        state,
        partitions=tuple(emptied),
        files=(),
        pending_deletions=(),
        producers={},
        deleted_ms=event.at_ms,
    )


_DECIDE: dict[type, Callable[[Topic, Any, int], Sequence[Any]]] = {
    CommitBatch: _commit,
    MaintainSegments: lambda topic, command, now: swap.decide(topic, command.swaps, now),
    ApplyRetention: lambda topic, _, now: retention.decide_retention(topic, now),
    DeleteRecords: retention.decide_deletion,
    RaiseOrphanFloor: orphans.decide,
    ConfirmDeletions: orphans.decide,
    AlterConfig: lambda topic, command, _: _alter(topic, command),
    EvolveSchema: columns.decide,
    DeleteTopic: lambda topic, _, now: [] if topic.deleted else [TopicDeleted(now)],
    HoldFiles: lambda topic, command, _: file_holders.decide(topic, command),
    ShrinkIsr: lambda topic, command, _: isr_shrink.decide(topic, command),
    Suspect: lambda topic, command, _: suspicion.decide(topic, command),
    CancelSuspicion: lambda topic, command, _: suspicion.decide(topic, command),
    ElectLeaders: lambda topic, command, _: election.decide(topic, command),
    ElectPreferred: lambda topic, command, _: election.decide_preferred(topic, command),
    AlterReplicaNode: lambda topic, command, _: node_changes.decide(topic, command),
    AlterReplicas: lambda topic, command, _: reassignment.decide(topic, command),
    AddPartitions: lambda topic, command, _: reassignment.decide_addition(topic, command),
}
"""What each command to a topic that has begun leads to."""

_EVOLVE: dict[type, Callable[[Topic, Any], Topic]] = {
    TopicStarted: _start,
    JournalBegun: _begin_anew,
    sequencing.BatchSequenced: sequencing.evolve,
    swap.SegmentsSwapped: swap.evolve,
    retention.LogStartMoved: retention.evolve,
    orphans.OrphanFloorRaised: orphans.evolve,
    orphans.FloorMarked: orphans.evolve,
    orphans.DeletionsConfirmed: orphans.evolve,
    ConfigAltered: lambda state, event: msgspec.structs.replace(state, config=event.config),
    columns.SchemaEvolved: columns.evolve,
    TopicDeleted: _end,
    JournalEnded: lambda state, event: msgspec.structs.replace(state, generation=event.generation),
    file_holders.FilesHeld: file_holders.evolve,
    isr_shrink.IsrShrunk: isr_shrink.evolve,
    suspicion.NodeSuspected: suspicion.evolve,
    suspicion.SuspicionCancelled: suspicion.evolve,
    row_loss.RowsLost: row_loss.evolve,
    election.LeaderElected: election.evolve,
    node_changes.ReplicasRenewed: node_changes.evolve,
    node_changes.ReplicasFenced: node_changes.evolve,
    node_changes.ReplicasUnfenced: node_changes.evolve,
    reassignment.ReplicasAltered: reassignment.evolve,
    reassignment.PartitionsAdded: reassignment.evolve_addition,
}
"""What each event does. No other events are read."""
Event: Any = Union[tuple(_EVOLVE)]  # noqa: UP007 -- of so many types as the table has

MACHINE: Machine[Topic, Command] = Machine(
    initial=Topic(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(Event),
    check=integrity.check,
    encode_state=msgspec.msgpack.encode,
    decode_state=topic_state.decode,
    generation=lambda state: state.generation,
    answer=sequencing.answer,
)
