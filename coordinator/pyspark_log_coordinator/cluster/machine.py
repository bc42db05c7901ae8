"""The state machine of the cluster: its nodes, its journal nodes and the names of its topics.

    command           events
    StartCluster   -> ClusterStarted, NodeChanged ...  the journal's first entry
    BeginJournal   -> JournalBegun                     the first entry of a journal that begins anew
    CreateTopic    -> TopicCreated
    RemoveTopic    -> TopicRemoved                     after the topic's own journal has ended
    FinishDeletions-> DeletionsFinished                no files of these topics are left to delete
    CreateGroup    -> GroupCreated
    MoveCluster    -> AddressSet                       the root is at another address now

    MoveJournals   -> JournalEnded                     the last entry: the journals go on at other stores

The commands about nodes are in `nodes`.

The cluster's journal records the topics as they were created. A topic's own journal has its current partitions, leaders
and configuration; the first process that opens it makes its first entry from the `TopicCreated`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from pyspark_log_coordinator.cluster import journal_stores, nodes, placement
from pyspark_log_coordinator.cluster.cluster_state import Cluster, GroupRecord, TopicRecord
from pyspark_log_coordinator.cluster.journal_stores import JournalStores, MoveJournals
from pyspark_log_coordinator.cluster.nodes import AddNode, Node, NodeChanged, RemoveNode
from pyspark_log_coordinator.journal.journal_nodes import LEAST, JournalNode
from pyspark_log_coordinator.journal.state_machine import (
    BeginJournal,
    JournalBegun,
    JournalEnded,
    Machine,
    events_decoder,
)
from pyspark_log_coordinator.model import topic_config
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.settings import NUM_PARTITIONS
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidOption, TopicExists
from pyspark_log_storage.names import check_group, check_topic

PARTITIONS_MAX = NUM_PARTITIONS.highest
_decode_state = msgspec.msgpack.Decoder(Cluster).decode


class StartCluster(msgspec.Struct, frozen=True):
    """Begin a cluster with one node, or with its journal nodes."""

    cluster_id: str
    nodes: tuple[Node, ...]


class CreateTopic(msgspec.Struct, frozen=True):
    """Create a topic. `topic_id` is new."""

    name: str
    topic_id: str
    partitions: int
    config: TopicConfig
    schemas: tuple[bytes, ...]
    replication_factor: int | None = None
    """None for the default, see `placement`."""
    replicas: tuple[tuple[NodeId, ...], ...] | None = None
    """The nodes of each partition if the caller has chosen them; otherwise replicas are spread."""


class RemoveTopic(msgspec.Struct, frozen=True):
    """Free the name of a deleted topic, unless it already belongs to another topic id."""

    name: str
    topic_id: str


class FinishDeletions(msgspec.Struct, frozen=True):
    """Forget deleted topics of which no store has files to delete, nor will get any."""

    topic_ids: tuple[str, ...]


class CreateGroup(msgspec.Struct, frozen=True):
    """Create a group, unless it exists. The first process that joins it or commits offsets to it does this."""

    group_id: str
    journal_id: str
    """A new one."""


class MoveCluster(msgspec.Struct, frozen=True):
    """Make this the address of the cluster root."""

    url: str


class ClusterStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    cluster_id: str
    journals: tuple[JournalNode, ...] = ()
    """The journal nodes; none if the journals are at the root."""


class AddressSet(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """This is the address of the cluster root. At another one the log is not opened while it has other nodes."""

    url: str


class TopicCreated(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name belongs to this topic."""

    topic: TopicRecord


class TopicRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name is free again. The topic's files are deleted later."""

    name: str


class DeletionsFinished(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    topic_ids: tuple[str, ...]


class GroupCreated(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name belongs to this group."""

    group: GroupRecord


Command = (
    StartCluster
    | BeginJournal
    | nodes.Command
    | RemoveNode
    | MoveJournals
    | CreateTopic
    | RemoveTopic
    | FinishDeletions
    | CreateGroup
    | MoveCluster
)
Event = (
    ClusterStarted
    | JournalBegun
    | nodes.Event
    | JournalEnded
    | TopicCreated
    | TopicRemoved
    | DeletionsFinished
    | GroupCreated
    | AddressSet
)


def decide(state: Cluster, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    match command:
        case StartCluster():
            journals = journal_stores.journal_nodes(node for node in command.nodes if node.url != nodes.AT_THE_ROOT)
            started = [ClusterStarted(command.cluster_id, journals), *map(NodeChanged, command.nodes)]
            return [] if state.cluster_id else started
        case BeginJournal():
            return [] if state.cluster_id else [JournalBegun(command.state)]
        case RemoveNode():
            unclear = sorted(name for name, topic in state.topics.items() if topic.topic_id not in command.clear)
            holders = state.journals.holders()
            return list(nodes.decide_removal(state.nodes, command.node_id, unclear, holders, command.fencings))
        case MoveJournals():
            return list(journal_stores.decide(state.journals, state.nodes, command))
        case CreateTopic():
            return [TopicCreated(_create(state, command, now))]
        case RemoveTopic() | FinishDeletions():
            return list(_delete(state, command))
        case CreateGroup():
            check_group(command.group_id)
            created = GroupCreated(GroupRecord(command.group_id, command.journal_id, now))
            return [] if command.group_id in state.groups else [created]
        case MoveCluster():
            return [] if state.address == command.url else [AddressSet(command.url)]
        case _:
            changes = nodes.decide(state.nodes, state.former_nodes, command)
            recorded = _record(state, command.root) if isinstance(command, AddNode) and changes else []
            return [*recorded, *changes]


def evolve(state: Cluster, event: Event) -> Cluster:
    match event:
        case ClusterStarted() | JournalBegun() if state.cluster_id:
            raise ValueError("the cluster is started twice")
        case ClusterStarted():
            journals = JournalStores(nodes=event.journals)
            return msgspec.structs.replace(state, cluster_id=event.cluster_id, journals=journals)
        case JournalBegun():
            return _decode_state(event.state)
        case JournalEnded():
            if event.generation <= state.journals.generation or len(event.nodes) < LEAST:
                raise ValueError(f"the journals move from generation {state.journals.generation} to {event.generation}")
            return msgspec.structs.replace(state, journals=JournalStores(event.generation, event.nodes))
        case TopicCreated():
            if event.topic.name in state.topics:
                raise ValueError(f"topic {event.topic.name!r} is created twice")
            return msgspec.structs.replace(state, topics={**state.topics, event.topic.name: event.topic})
        case TopicRemoved():
            if event.name not in state.topics:
                raise ValueError(f"topic {event.name!r} is removed, but does not exist")
            topics = {name: topic for name, topic in state.topics.items() if name != event.name}
            deletions = {**state.deletions, state.topics[event.name].topic_id: event.name}
            return msgspec.structs.replace(state, topics=topics, deletions=deletions)
        case DeletionsFinished():
            left = {topic_id: name for topic_id, name in state.deletions.items() if topic_id not in event.topic_ids}
            return msgspec.structs.replace(state, deletions=left)
        case AddressSet():
            return msgspec.structs.replace(state, address=event.url)
        case GroupCreated():
            if event.group.group_id in state.groups:
                raise ValueError(f"group {event.group.group_id!r} is created twice")
            return msgspec.structs.replace(state, groups={**state.groups, event.group.group_id: event.group})
        case _:
            present, former = nodes.evolve(state.nodes, state.former_nodes, event)
            return msgspec.structs.replace(state, nodes=present, former_nodes=former)


def _record(state: Cluster, url: str) -> list[AddressSet]:
    """Return the event that the root is at `url`. A root without other nodes may have been moved since it had some."""
    return [] if state.has_nodes_elsewhere or url in {"", state.address} else [AddressSet(url)]


def _delete(state: Cluster, command: RemoveTopic | FinishDeletions) -> Iterator[TopicRemoved | DeletionsFinished]:
    if isinstance(command, RemoveTopic):
        known = state.topics.get(command.name)
        if known is not None and known.topic_id == command.topic_id:
            yield TopicRemoved(command.name)
    elif known_ids := tuple(topic_id for topic_id in command.topic_ids if topic_id in state.deletions):
        yield DeletionsFinished(known_ids)


def _create(state: Cluster, command: CreateTopic, now: int) -> TopicRecord:
    check_topic(command.name)
    if command.name in state.topics:
        raise TopicExists(command.name)
    if not 1 <= command.partitions <= PARTITIONS_MAX:
        raise InvalidOption(
            "num.partitions",
            f"topic {command.name!r} cannot have {command.partitions} partitions; choose 1 to {PARTITIONS_MAX}",
        )
    if command.config.min_insync_replicas > len(state.nodes):
        raise InvalidOption(
            "min.insync.replicas",
            f"topic {command.name!r} cannot require {command.config.min_insync_replicas} in-sync replicas: "
            f"the cluster has {_node_count(len(state.nodes))}; choose fewer",
        )
    replicas = _assign(state, command)
    topic_config.check_min_insync(command.name, command.config, len(replicas[0]))
    config = topic_config.with_columns(command.name, command.config, command.schemas)
    return TopicRecord(command.name, command.topic_id, now, config, replicas, command.schemas)


def _assign(state: Cluster, command: CreateTopic) -> tuple[tuple[NodeId, ...], ...]:
    """Return the nodes of each partition. Raise `InvalidOption` if there are too few."""
    live = nodes.live(state.nodes)
    if command.replicas is not None:
        assert len(command.replicas) == command.partitions
        placement.check(command.replicas, live, state.nodes, command.name)
        return command.replicas
    factor = command.replication_factor
    if factor is None:
        factor = placement.default_replication_factor(len(live))
    if not 1 <= factor <= len(live):
        fenced = len(state.nodes) - len(live)
        more = f" in service and {fenced} fenced" if fenced else ""
        raise InvalidOption(
            "replication.factor",
            f"topic {command.name!r} cannot have {factor} replicas of each partition: the cluster has "
            f"{_node_count(len(live))}{more}; choose {'1' if len(live) == 1 else f'1 to {len(live)}'}, or add nodes",
        )
    racks = {node.node_id: node.rack for node in live.values()}
    return placement.spread(racks, command.partitions, factor, seed_of(command.topic_id))


def _node_count(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def seed_of(topic_id: str) -> int:
    """Return the seed of a topic's placement, so that topics begin at different nodes."""
    return int.from_bytes(hashlib.blake2b(topic_id.encode(), digest_size=8).digest(), "big")


MACHINE: Machine[Cluster, Command] = Machine(
    initial=Cluster(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(Event),
    encode_state=msgspec.msgpack.encode,
    decode_state=_decode_state,
    generation=lambda state: state.journals.generation,
)
