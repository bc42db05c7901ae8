"""Read replicas: the nodes that a range can be read from, the nearest first.

Nodes of the reader's rack come first (`client.rack`, KIP-392), then the partition's leader, then the others; fenced
ones and those that were missing when the log was opened come last. Any node that holds a file may be read, in the ISR
or not: a file has the same bytes wherever it is, and what may be read of it the HW says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.client.read.failover import ReadReplica
from pyspark_log_coordinator.model.node_order import by_number
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log_coordinator.cluster.machine import Node
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic


def nearest_first(log: Log, partition: Partition, rack: str) -> list[Node]:
    """Return all nodes of the cluster, by where a reader in this rack, empty for none, should read the partition."""

    def distance(node: Node) -> tuple[bool, bool, bool, tuple[bool, int, str]]:
        is_last = node.fenced or node.node_id in log.missing_nodes
        is_far = rack == "" or node.rack != rack
        return is_last, is_far, node.node_id != partition.leader, by_number(node.node_id)

    nodes = log.cluster.state.nodes.values()
    return sorted(nodes, key=distance) if len(nodes) > 1 else list(nodes)


def holding(topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> tuple[ReadReplica, ...]:
    """Return which of the nodes hold a file, in their order. The only node of a cluster holds all that there is."""
    if len(nodes) == 1:
        return (ReadReplica(nodes[0].node_id, nodes[0].url),)
    there = replicas.of_current_incarnations(topic, holders)
    return tuple(
        ReadReplica(each.node_id, each.url) for each in nodes if Holder(each.node_id, each.incarnation) in there
    )
