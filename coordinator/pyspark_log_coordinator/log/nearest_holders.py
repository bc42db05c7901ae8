"""The order in which the nodes that hold a file are read.

Nodes in the reader's rack come first (`client.rack`, KIP-392), then the partition's leader, then the others by number.
Fenced nodes, and nodes that were missing when the log was last opened, come last. Any holder may be read, in the ISR or
not: a file has the same bytes on every node, and the high watermark limits what is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.partition import Holder, by_number
from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic


def nearest_first(log: Log, *, rack: str = "", leader: NodeId | None = None) -> list[Node]:
    """Return all nodes of the cluster, nearest first. `rack` is the reader's, empty if it is not known."""

    def distance(node: Node) -> tuple[bool, bool, bool, tuple[bool, int, str]]:
        is_last = node.fenced or node.node_id in log.missing_nodes
        is_far = rack == "" or node.rack != rack
        return is_last, is_far, node.node_id != leader, by_number(node.node_id)

    return sorted(log.nodes.values(), key=distance)


def holding(topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> list[Node]:
    """Return the nodes that hold a file, in their order. The only node of a cluster holds every file."""
    if len(nodes) == 1:
        return list(nodes)
    current = replicas.of_current_incarnations(topic, holders)
    return [node for node in nodes if Holder(node.node_id, node.incarnation) in current]


def reachable_holders(log: Log, topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> list[NodeId]:
    """Return the ids of the nodes that hold a file and were not missing when the log was last opened."""
    return [node.node_id for node in holding(topic, nodes, holders) if node.node_id not in log.missing_nodes]
