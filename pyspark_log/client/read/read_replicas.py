"""Read replicas: the nodes from which a split's files are read, as a task needs them: their ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.client.read.failover import ReadReplica
from pyspark_log_coordinator.log import nearest_holders

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.model.partition import Holder
    from pyspark_log_coordinator.model.topic_state import Topic


def holding(topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> tuple[ReadReplica, ...]:
    """Return the nodes that hold a file, in their order."""
    return tuple(ReadReplica(each.node_id, each.url) for each in nearest_holders.holding(topic, nodes, holders))
