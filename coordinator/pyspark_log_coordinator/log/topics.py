"""The topics that have replicas on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId


def topics_on(log: Log, node_id: NodeId) -> Iterator[TopicHandle]:
    """Yield the topics that have replicas on a node, refreshed, by name."""
    node_of(log.cluster.refresh().nodes, node_id)
    for name in sorted(log.topics()):
        try:
            handle = log.topic(name)
        except UnknownTopic:
            continue  # deleted meanwhile
        if any(node_id in each.replicas for each in handle.journal.state.partitions):
            yield handle
