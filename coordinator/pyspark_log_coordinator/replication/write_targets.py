"""Write targets: the nodes to which a writing task writes its rows.

With acks=all these are the members of the ISR, with acks=1 and 0 the leader alone. A missing node is left out, and the
entry that sequences the batch changes the ISR accordingly. If the leader is missing, another member of the ISR gets the
rows, because it may be elected meanwhile. With replication.mode=quorum all replicas get them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import high_watermark

if TYPE_CHECKING:
    from collections.abc import Container

    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic


def write_targets(topic: Topic, acks: Acks, missing: Container[NodeId]) -> tuple[tuple[NodeId, ...], ...]:
    """Return the nodes of each partition: at least one, even if all are missing.

    Partitions on the same nodes get equal values, whichever node leads them: they share a file.
    """
    return tuple(_of(topic, partition, acks, missing) for partition in topic.partitions)


def enough(topic: Topic, acks: Acks) -> int | None:
    """Return the number of nodes that must have a file before the writer continues; None means all reachable ones."""
    if acks != "all" or topic.config.replication_mode != "quorum":
        return None
    return max(high_watermark.majority(len(each.replicas)) for each in topic.partitions)


def _of(topic: Topic, partition: Partition, acks: Acks, missing: Container[NodeId]) -> tuple[NodeId, ...]:
    wanted = partition.replicas if topic.config.replication_mode == "quorum" else partition.isr
    able = [node for node in wanted if node not in missing and node not in topic.fenced]
    if not able:
        return wanted[:1] or partition.replicas[:1]
    if acks == "all":
        return tuple(sorted(able))
    return (partition.leader if partition.leader in able else able[0],)
