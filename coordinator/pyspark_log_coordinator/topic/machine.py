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

The commands about replicas are in `replica_commands`. One entry sequences a whole batch: readers see it in all
partitions or in none.
"""

from __future__ import annotations

from typing import Any

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
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder, NodeId, empty
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import isr_shrink, reassignment
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas, PartitionReassignment
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, Suspect, Suspicion
from pyspark_log_coordinator.segments import orphans, retention, swap
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords, LogStartMoved
from pyspark_log_coordinator.segments.swap import SegmentsSwapped, SwapSegments
from pyspark_log_coordinator.topic import batch_offsets, columns, integrity, replica_commands, sequencing
from pyspark_log_coordinator.topic.columns import EvolveSchema, SchemaEvolved
from pyspark_log_coordinator.topic.sequencing import BatchSequenced, CommitBatch
from pyspark_log_storage.errors import UnknownTopic
from pyspark_log_storage.stored_fields import Int64


class StartTopic(msgspec.Struct, frozen=True):
    """Begin the topic's journal with the cluster's record of the topic."""

    name: str
    topic_id: str
    config: TopicConfig
    schemas: tuple[bytes, ...]
    incarnations: dict[NodeId, str]
    assignments: tuple[tuple[NodeId, ...], ...]


class DeleteTopic(msgspec.Struct, frozen=True):
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


class MaintainSegments(msgspec.Struct, frozen=True):
    """Swap in segments without a batch."""

    swaps: tuple[SwapSegments, ...]


class AlterConfig(msgspec.Struct, frozen=True):
    """Change the configuration: settings by Kafka's names."""

    settings: dict[str, str]


class ConfigAltered(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic has this configuration from now on."""

    config: TopicConfig


Command = (
    StartTopic
    | BeginJournal
    | CommitBatch
    | MaintainSegments
    | ApplyRetention
    | DeleteRecords
    | RaiseOrphanFloor
    | ConfirmDeletions
    | AlterConfig
    | EvolveSchema
    | DeleteTopic
    | EndJournal
    | replica_commands.Command
)
Event = (
    TopicStarted
    | JournalBegun
    | BatchSequenced
    | SegmentsSwapped
    | LogStartMoved
    | orphans.Event
    | ConfigAltered
    | SchemaEvolved
    | TopicDeleted
    | JournalEnded
    | replica_commands.Event
)


def decide(state: Topic, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    if isinstance(command, EndJournal):
        return list(decide_end(state.generation, command))
    events = _decide(state, command, now)
    if events and replica_commands.may_end_reassignment(state, command):
        return [*events, *reassignment.decide_completion(_after(state, events))]
    return events


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
    match command:
        case CommitBatch():
            batch = sequencing.decide(state, command, now)
            # A replica that joins the ISR with the batch must hold a segment before that is swapped in.
            return [*batch, *swap.decide(_after(state, batch), command.swaps, now)] if command.swaps else batch
        case MaintainSegments():
            return list(swap.decide(state, command.swaps, now))
        case ApplyRetention() | DeleteRecords():
            if isinstance(command, ApplyRetention):
                moved = retention.decide_retention(state, now)
            else:
                moved = retention.decide_deletion(state, command, now)
            return list(moved)
        case RaiseOrphanFloor() | ConfirmDeletions():
            return list(orphans.decide(state, command, now))
        case AlterConfig():
            return _alter(state, command)
        case EvolveSchema():
            return list(columns.decide(state, command, now))
        case DeleteTopic():
            return [] if state.deleted else [TopicDeleted(now)]
        case _:
            return list(replica_commands.decide(state, command))


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
    if isinstance(command, BeginJournal):
        return [JournalBegun(command.state)]
    return [TopicStarted(**{name: getattr(command, name) for name in TopicStarted.__struct_fields__})]


def _after(state: Topic, events: list[Any]) -> Topic:
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: Topic, event: Event) -> Topic:
    """Return the state after `event`."""
    match event:
        case TopicStarted() | JournalBegun():
            if state.started:
                raise ValueError("the topic is started twice")
            return _start(event) if isinstance(event, TopicStarted) else topic_state.decode(event.state)
        case BatchSequenced():
            return sequencing.evolve(state, event)
        case SegmentsSwapped():
            return swap.evolve(state, event)
        case LogStartMoved():
            return retention.evolve(state, event)
        case orphans.OrphanFloorRaised() | orphans.FloorMarked() | orphans.DeletionsConfirmed():
            return orphans.evolve(state, event)
        case ConfigAltered():
            return msgspec.structs.replace(state, config=event.config)
        case JournalEnded():
            return msgspec.structs.replace(state, generation=event.generation)
        case SchemaEvolved():
            return columns.evolve(state, event)
        case TopicDeleted():
            return _end(state, event)
        case _:
            return replica_commands.evolve(state, event)


def _start(event: TopicStarted) -> Topic:
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


MACHINE: Machine[Topic, Command] = Machine(
    initial=Topic(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(Event),
    check=integrity.check,
    encode_state=topic_state.encode,
    decode_state=topic_state.decode,
    generation=lambda state: state.generation,
    answer=batch_offsets.answer,
)

__all__ = [
    "MACHINE",
    "AddPartitions",
    "AlterConfig",
    "AlterReplicaNode",
    "AlterReplicas",
    "ApplyRetention",
    "CancelSuspicion",
    "CommitBatch",
    "ConfirmDeletions",
    "DeleteRecords",
    "DeleteTopic",
    "ElectLeaders",
    "ElectPreferred",
    "EvolveSchema",
    "HoldFiles",
    "Holder",
    "MaintainSegments",
    "PartitionReassignment",
    "RaiseOrphanFloor",
    "SequencedFile",
    "ShrinkIsr",
    "StartTopic",
    "Suspect",
    "Suspicion",
    "Topic",
    "decide",
    "evolve",
]
