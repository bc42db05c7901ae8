"""The state of a cluster, after the entries of its journal."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from pyspark_log_coordinator.cluster.journal_stores import JournalStores
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, FormerNode, Node
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import UnknownGroup, UnknownTopic
from pyspark_log_storage.names import check_group
from pyspark_log_storage.stored_fields import Int64, TopicName, UniqueId

_SIMILAR = 0.7
"""The `difflib` ratio from which on a known topic is suggested for an unknown name."""


class TopicRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A topic as it was created. `assignments[p]` are the nodes of partition p, preferred leader first."""

    name: TopicName
    topic_id: UniqueId
    created_ms: Int64
    config: TopicConfig
    assignments: tuple[tuple[NodeId, ...], ...]
    schemas: tuple[bytes, ...]


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group as it was created.

    It stays for ever: a group that is deleted keeps its journal, so that a member that slept finds a later generation
    there.
    """

    group_id: str
    """Kafka's `group.id`: the group's name."""
    journal_id: UniqueId
    """A part of the path of the group's journal; `group_id` is none."""
    created_ms: Int64


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster_id: str = ""
    nodes: dict[NodeId, Node] = {}
    topics: dict[str, TopicRecord] = {}
    former_nodes: tuple[FormerNode, ...] = ()
    journals: JournalStores = JournalStores()
    groups: dict[str, GroupRecord] = {}
    address: str = ""
    """The address of the root, as of when it had other nodes. Empty as long as the root is all there ever was."""
    deletions: dict[UniqueId, TopicName] = {}
    """The names of deleted topics that may have files to delete, by id: `cluster_cleanup` looks at no others."""

    @property
    def has_nodes_elsewhere(self) -> bool:
        """Whether the cluster has nodes besides the one at its root."""
        return any(node.url != AT_THE_ROOT for node in self.nodes.values())


def topic_of(state: Cluster, name: str) -> TopicRecord:
    """Return the record of a topic. Raise `UnknownTopic` if it does not exist."""
    if name not in state.topics:
        existing = ", ".join(sorted(state.topics)[:10]) or "none"
        close = difflib.get_close_matches(name, state.topics, n=1, cutoff=_SIMILAR)
        advice = f"did you mean {close[0]!r}?" if close else "create it first"
        raise UnknownTopic(name, f"topic {name!r} does not exist; {advice} (existing: {existing})")
    return state.topics[name]


def group_of(groups: Mapping[str, GroupRecord], name: str) -> GroupRecord:
    """Return the record of a group. Raise `UnknownGroup` if it does not exist."""
    check_group(name)
    if name not in groups:
        existing = ", ".join(sorted(groups)[:10]) or "none"
        message = f"group {name!r} does not exist; join it or commit offsets to it (existing: {existing})"
        raise UnknownGroup(name, message)
    return groups[name]
