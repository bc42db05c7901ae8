"""The integrity of a cluster: checks of stored entries and snapshots that have the right types but impossible values.

Names of topics and nodes become paths, and node ids lead to stores, so they must be valid. The checks raise
`ValueError` or `InvalidName`, which replay turns into an error that names the entry or the snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.cluster import groups
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.journal.journal_nodes import LEAST
from pyspark_log_coordinator.journal.state_machine import check_ordinals
from pyspark_log_storage.layout import is_id
from pyspark_log_storage.names import check_node, check_rack, check_topic

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.cluster_state import TopicRecord
    from pyspark_log_coordinator.cluster.nodes import Node


def check_entry(before: Cluster, events: list[Any], after: Cluster, number: int) -> None:
    """Raise if an entry cannot lead from one state to the other. Only what is new is checked."""
    del events, number
    if not after.cluster_id:
        raise ValueError("the cluster has not been started")
    if before.cluster_id and after.cluster_id != before.cluster_id:
        raise ValueError(f"the cluster is {after.cluster_id} now")
    if not after.nodes:
        raise ValueError("the cluster has no node")
    for name, node in after.nodes.items():
        if before.nodes.get(name) is not node:
            _check_node(name, node)
    for name, topic in after.topics.items():
        if before.topics.get(name) is not topic:
            _check_topic(name, topic)
    for topic_id, name in after.deletions.items():
        if topic_id not in before.deletions:
            check_topic(name)
            _check_id(name, topic_id)
    for name, group in after.groups.items():
        if before.groups.get(name) is not group:
            groups.check(name, group)
    if after.journals is not before.journals:
        _check_journals(after)


def check_snapshot(state: Cluster, number: int) -> None:
    """Raise if a state is impossible."""
    check_entry(Cluster(), [], state, number)


def _check_node(name: str, node: Node) -> None:
    if node.node_id != name:
        raise ValueError(f"node {node.node_id!r} is stored as {name!r}")
    check_node(name)
    check_rack(node.rack)
    check_ordinals(node, ("fencings",))


def _check_topic(name: str, topic: TopicRecord) -> None:
    if topic.name != name:
        raise ValueError(f"topic {topic.name!r} is stored as {name!r}")
    check_topic(name)
    _check_id(name, topic.topic_id)
    topic.config.check()
    if not topic.assignments:
        raise ValueError(f"topic {name!r} has no partition")
    for nodes in topic.assignments:
        if not nodes or len(set(nodes)) != len(nodes):
            raise ValueError(f"a partition of topic {name!r} is on {', '.join(nodes) or 'no node'}")


def _check_id(name: str, topic_id: str) -> None:
    if not is_id(topic_id):
        raise ValueError(f"topic {name!r} has the id {topic_id[:300]!r}")


def _check_journals(state: Cluster) -> None:
    journals = state.journals
    check_ordinals(journals, ("generation",))
    if journals.nodes and len(journals.nodes) < LEAST:
        raise ValueError(f"there are {len(journals.nodes)} journal nodes, and {LEAST} are required")
