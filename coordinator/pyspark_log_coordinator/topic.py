"""The topic machine: one journal for each life of a topic, with all of its partitions.

    command           events
    StartTopic     -> TopicStarted                     the journal's first entry; no event where it is there
    CommitBatch    -> IsrShrunk ..., BatchSequenced    no event for a batch that is in the log already
    DeleteTopic    -> TopicDeleted                     the last entry

One entry sequences a whole batch: readers see it in all partitions or in none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log_coordinator import producers, sequencing
from pyspark_log_coordinator.journal import Machine
from pyspark_log_coordinator.partition import ChunkRef, NodeId, Partition
from pyspark_log_coordinator.sequencing import (
    BatchSequenced,
    CommitBatch,
    Holder,
    IsrShrunk,
    SequencedFile,
)
from pyspark_log_coordinator.tail import Tail, to_builtin
from pyspark_log_coordinator.topic_config import TopicConfig
from pyspark_log_storage.errors import UnknownTopic


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A sequenced append file and the nodes on which it is durable."""

    name: str
    holders: tuple[Holder, ...]


class StartTopic(msgspec.Struct, frozen=True):
    """Begin the topic's journal with what the cluster says about the topic."""

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
    """The topic is gone; its files may be removed."""


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a topic."""

    name: str = ""
    topic_id: str = ""
    config: TopicConfig = TopicConfig()
    schemas: tuple[bytes, ...] = ()
    incarnations: dict[NodeId, str] = {}
    partitions: tuple[Partition, ...] = ()
    files: Tail[FileRef] = msgspec.field(default_factory=Tail)
    producers: dict[str, producers.Producer] = {}
    started: bool = False
    deleted: bool = False


Command = StartTopic | CommitBatch | DeleteTopic
Event = TopicStarted | BatchSequenced | IsrShrunk | TopicDeleted


def decide(state: Topic, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none where it is done already. Raises where refused."""
    del now  # no rule of this machine depends on time yet
    if isinstance(command, StartTopic):
        if state.started:
            return []
        fields = {name: getattr(command, name) for name in TopicStarted.__struct_fields__}
        return [TopicStarted(**fields)]
    assert state.started, "TopicHandle.refresh begins the journal before anything else is asked of it"
    if state.deleted and not isinstance(command, DeleteTopic):
        raise UnknownTopic(state.name, f"topic {state.name!r} ({state.topic_id}) was deleted; create it again")
    match command:
        case CommitBatch():
            return sequencing.decide(state, command)
        case DeleteTopic():
            return [] if state.deleted else [TopicDeleted()]


def evolve(state: Topic, event: Event) -> Topic:
    """Return the state after `event`."""
    match event:
        case TopicStarted():
            return _start(event)
        case IsrShrunk():
            partitions = list(state.partitions)
            partitions[event.partition] = msgspec.structs.replace(partitions[event.partition], isr=event.isr)
            return msgspec.structs.replace(state, partitions=tuple(partitions))
        case BatchSequenced():
            return _sequence(state, event)
        case TopicDeleted():
            return msgspec.structs.replace(state, deleted=True)


def _start(event: TopicStarted) -> Topic:
    partitions = tuple(
        Partition(
            replicas=nodes,
            isr=nodes,
            leader=nodes[0],
            leader_epoch=0,
            epoch_starts=((0, 0),),
            log_start=0,
            log_end=0,
            high_watermark=0,
            log_end_offsets=dict.fromkeys(nodes, 0),
            chunks=Tail(),
        )
        for nodes in event.assignments
    )
    return Topic(
        name=event.name,
        topic_id=event.topic_id,
        config=event.config,
        schemas=event.schemas,
        incarnations=event.incarnations,
        partitions=partitions,
        started=True,
    )


def _sequence(state: Topic, event: BatchSequenced) -> Topic:
    known = state.producers
    if event.claim is not None:
        moved = producers.move(known.get(event.claim.producer), event.claim, event.rows)
        known = {**known, event.claim.producer: moved}
    partitions = list(state.partitions)
    for index, growth in sequencing.lay_out(state.partitions, event.files, len(state.files)).items():
        partitions[index] = sequencing.grow(partitions[index], growth, state.config.min_insync_replicas)
    files = state.files.append([FileRef(file.name, file.holders) for file in event.files])
    return msgspec.structs.replace(state, partitions=tuple(partitions), files=files, producers=known)


def _encode_state(state: Topic) -> bytes:
    return msgspec.msgpack.encode(state, enc_hook=to_builtin)


def _from_builtin(kind: Any, value: Any) -> Any:
    return Tail(msgspec.convert(value, _STORED_TAILS[kind]))


_STORED_TAILS: dict[Any, Any] = {Tail[ChunkRef]: list[ChunkRef], Tail[FileRef]: list[FileRef]}
_state_decoder = msgspec.msgpack.Decoder(Topic, dec_hook=_from_builtin)

MACHINE: Machine[Topic, Command] = Machine(
    initial=Topic(),
    decide=decide,
    evolve=evolve,
    event_types=Event,
    encode_state=_encode_state,
    decode_state=_state_decoder.decode,
)

__all__ = [
    "MACHINE",
    "CommitBatch",
    "DeleteTopic",
    "Event",
    "FileRef",
    "Holder",
    "SequencedFile",
    "StartTopic",
    "Topic",
    "decide",
    "evolve",
]
