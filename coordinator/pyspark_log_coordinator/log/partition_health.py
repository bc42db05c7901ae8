"""What may be wrong with a partition, in the words of Kafka's tools."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_config import TopicConfig


class Trouble(enum.Enum):
    """A kind of trouble."""

    UNDER_REPLICATED = "under-replicated"
    """A replica is not in the ISR."""
    UNAVAILABLE = "without a leader"
    UNDER_MIN_ISR = "below min.insync.replicas"
    AT_MIN_ISR = "at min.insync.replicas"


def troubles(partition: Partition, config: TopicConfig) -> set[Trouble]:
    """Return the kinds of trouble that a partition is in."""
    in_sync, needed = len(partition.isr), replicas.required_acks(partition, config)
    kinds = {
        Trouble.UNDER_REPLICATED: in_sync < replicas.replication_factor(partition),
        Trouble.UNAVAILABLE: partition.leader is None,
        Trouble.UNDER_MIN_ISR: in_sync < needed,
        Trouble.AT_MIN_ISR: in_sync == needed,
    }
    return {kind for kind, applies in kinds.items() if applies}
