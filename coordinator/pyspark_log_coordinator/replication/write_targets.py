"""Write targets: the nodes to which a writing task writes its rows.

With acks=all these are the members of the ISR, with acks=1 and 0 the leader alone. A missing node is left out, and the
entry that sequences the batch changes the ISR accordingly. If the leader is missing, another member of the ISR gets the
rows, because it may be elected meanwhile. With replication.mode=quorum all replicas get them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import high_watermark, replicas

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic


def write_targets(topic: Topic, acks: Acks, missing: Collection[NodeId]) -> tuple[tuple[NodeId, ...], ...]:
    """Return the nodes of each partition: at least one, even if all are missing.

    Partitions on the same nodes get equal values, whichever node leads them: they share a file.
    """
    found: dict[object, tuple[NodeId, ...]] = {}
    targets = []
    for number, each in enumerate(topic.partitions):
        what = each.isr, each.leader, each.replicas
        if what not in found:
            found[what] = targets_of(topic, number, acks, missing)
        targets.append(found[what])
    return tuple(targets)


def targets_of(topic: Topic, number: int, acks: Acks, missing: Collection[NodeId]) -> tuple[NodeId, ...]:
    """Return the nodes of one partition."""
    partition = topic.partitions[number]
    wanted = replicas.voters(partition, topic.config)
    able = [node for node in wanted if node not in missing and node not in topic.fenced]
    if not able:
        return wanted[:1] or partition.replicas[:1]
    if acks == "all":
        return tuple(sorted(able))
    return (partition.leader if partition.leader in able else able[0],)


def used_nodes(targets: Iterable[tuple[NodeId, ...]]) -> frozenset[NodeId]:
    """Return the nodes of all partitions together, given those of each."""
    return frozenset(itertools.chain.from_iterable({*targets}))


def enough(topic: Topic, acks: Acks) -> int | None:
    """Return the number of nodes that must have a file before the writer continues; None means all reachable ones."""
    if acks != "all" or not replicas.by_majority(topic.config):
        return None
    return high_watermark.majority(max(len(each.replicas) for each in topic.partitions))
