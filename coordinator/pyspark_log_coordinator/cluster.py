"""The cluster machine: one journal for the nodes and for the names of topics.

    command           events
    StartCluster   -> ClusterStarted, NodeAdded    the journal's first entry
    CreateTopic    -> TopicCreated
    RemoveTopic    -> TopicRemoved                 after the topic's own journal has ended

The cluster says which topics there are, and what each was created with. What becomes of a topic afterwards
(its present partitions, leaders, configuration) is in the topic's own journal, whose first entry is made from
the `TopicCreated` by whoever opens it first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log_coordinator.partition import NodeId
from pyspark_log_coordinator.replay import Machine
from pyspark_log_coordinator.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidOption, TopicExists, UnknownTopic
from pyspark_log_storage.names import check_topic

PARTITIONS_MAX = 100_000
AT_THE_ROOT = "."
"""The address of a node that is the cluster root itself, wherever that is mounted."""


class Node(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An independent place that can fail on its own."""

    node_id: NodeId
    url: str
    rack: str
    incarnation: str


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic's name, its id, and what it was created with. `assignments[p]` are the nodes of partition p."""

    name: str
    topic_id: str
    created_ms: int
    config: TopicConfig
    assignments: tuple[tuple[NodeId, ...], ...]
    schemas: tuple[bytes, ...]


class StartCluster(msgspec.Struct, frozen=True):
    """Begin a cluster of one node."""

    cluster_id: str
    node: Node


class CreateTopic(msgspec.Struct, frozen=True):
    """Create a topic with `partitions` partitions. `topic_id` is new."""

    name: str
    topic_id: str
    partitions: int
    config: TopicConfig
    schemas: tuple[bytes, ...]


class RemoveTopic(msgspec.Struct, frozen=True):
    """Take the name of a deleted topic away; another life of the same name stays."""

    name: str
    topic_id: str


class ClusterStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The cluster exists."""

    cluster_id: str


class NodeAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A node joined."""

    node: Node


class TopicCreated(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name belongs to this topic."""

    topic: TopicRecord


class TopicRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name is free again."""

    name: str


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a cluster."""

    cluster_id: str = ""
    nodes: dict[NodeId, Node] = {}
    topics: dict[str, TopicRecord] = {}


Command = StartCluster | CreateTopic | RemoveTopic
Event = ClusterStarted | NodeAdded | TopicCreated | TopicRemoved


def decide(state: Cluster, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none where it is done already. Raises where refused."""
    match command:
        case StartCluster():
            if state.cluster_id:
                return []
            return [ClusterStarted(command.cluster_id), NodeAdded(command.node)]
        case CreateTopic():
            return [TopicCreated(_create(state, command, now))]
        case RemoveTopic():
            known = state.topics.get(command.name)
            if known is None or known.topic_id != command.topic_id:
                return []
            return [TopicRemoved(command.name)]


def evolve(state: Cluster, event: Event) -> Cluster:
    """Return the state after `event`."""
    match event:
        case ClusterStarted():
            return msgspec.structs.replace(state, cluster_id=event.cluster_id)
        case NodeAdded():
            return msgspec.structs.replace(state, nodes={**state.nodes, event.node.node_id: event.node})
        case TopicCreated():
            return msgspec.structs.replace(state, topics={**state.topics, event.topic.name: event.topic})
        case TopicRemoved():
            topics = {name: topic for name, topic in state.topics.items() if name != event.name}
            return msgspec.structs.replace(state, topics=topics)


def topic_of(state: Cluster, name: str) -> TopicRecord:
    """Return the record of a topic. Raises `UnknownTopic`, which says what there is."""
    if name not in state.topics:
        there = ", ".join(sorted(state.topics)[:10]) or "none"
        raise UnknownTopic(name, f"there is no topic {name!r}; create it first (there are: {there})")
    return state.topics[name]


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
            f"topic {command.name!r} cannot ask for {command.config.min_insync_replicas} in-sync replicas: "
            f"the cluster has {len(state.nodes)} node(s); choose fewer",
        )
    leader = min(state.nodes)
    assignments = ((leader,),) * command.partitions
    return TopicRecord(command.name, command.topic_id, now, command.config, assignments, command.schemas)


MACHINE: Machine[Cluster, Command] = Machine(
    initial=Cluster(),
    decide=decide,
    evolve=evolve,
    event_types=Event,
    encode_state=msgspec.msgpack.encode,
    decode_state=msgspec.msgpack.Decoder(Cluster).decode,
)
