"""Leader balance: which partitions are to be led by their preferred leaders again.

After a failure the nodes that stayed lead more than their share, and the one that came back nothing. Of a node of which
more than some percent of the partitions that prefer it are led by others, all of these get their preferred leader back,
as far as it has every row. Source: Kafka's auto.leader.rebalance.enable, KafkaController's
checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.model.partition import NodeId, Partition

CHECK_INTERVAL_SECONDS = 300.0
"""Kafka's default of leader.imbalance.check.interval.seconds."""
IMBALANCE_PERCENTAGE = 10.0
"""Kafka's default of leader.imbalance.per.broker.percentage."""


def imbalanced(
    topics: Mapping[str, Sequence[Partition]], percentage: float = IMBALANCE_PERCENTAGE
) -> dict[str, tuple[int, ...]]:
    """Return the partitions, by topic, that their preferred leaders should lead.

    `topics` are all partitions of each topic. Those that are being reassigned count for nothing, nor do those that
    nobody leads: for these an election is due, and no balance.
    """
    preferring: dict[NodeId, int] = defaultdict(int)
    led_by_others: dict[NodeId, list[tuple[str, int]]] = defaultdict(list)
    for name, partitions in topics.items():
        for number, partition in enumerate(partitions):
            if partition.leader is None or partition.adding or partition.removing:
                continue
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                led_by_others[preferred].append((name, number))
    found: dict[str, list[int]] = defaultdict(list)
    for node, some in led_by_others.items():
        if 100 * len(some) > percentage * preferring[node]:
            for name, number in some:
                found[name].append(number)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}
