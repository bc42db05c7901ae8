"""What may be wrong with a partition, in the words of Kafka's tools.

A broker that fails leaves the ISR at once. Here nobody may have noticed: the ISR shrinks when a writer or a watching
process fails to reach a node. So what is asked is which of its members answer now.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_config import TopicConfig


class Trouble(enum.Enum):
    """A kind of trouble."""

    UNDER_REPLICATED = "under-replicated"
    """A replica is not in the ISR, or its node does not answer."""
    UNAVAILABLE = "without a leader"
    UNDER_MIN_ISR = "below min.insync.replicas"
    AT_MIN_ISR = "at min.insync.replicas"


def troubles(partition: Partition, config: TopicConfig, broken: Collection[NodeId]) -> set[Trouble]:
    """Return the kinds of trouble that a partition is in; `broken` are the nodes that do not answer (`Log`).

    A partition whose leader alone is broken is available: the next writer or watching process elects another.
    """
    in_sync, needed = sum(node_id not in broken for node_id in partition.isr), replicas.required_acks(partition, config)
    kinds = {
        Trouble.UNDER_REPLICATED: in_sync < replicas.replication_factor(partition),
        Trouble.UNAVAILABLE: partition.leader is None or in_sync == 0,
        Trouble.UNDER_MIN_ISR: in_sync < needed,
        Trouble.AT_MIN_ISR: in_sync == needed,
    }
    return {kind for kind, applies in kinds.items() if applies}
