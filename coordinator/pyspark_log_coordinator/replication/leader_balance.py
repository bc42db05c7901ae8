"""Leader balance: the partitions that should be led by their preferred leaders again.

After a failure the nodes that survived lead more than their share, and a node that came back leads nothing. If other
nodes lead more than some percentage of the partitions that prefer a node, it should lead all of these again. Source:
Kafka's auto.leader.rebalance.enable, KafkaController's checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.settings import LEADER_IMBALANCE_PER_BROKER_PERCENTAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.model.partition import NodeId, Partition


def imbalanced(
    topics: Mapping[str, Sequence[Partition]], percentage: float = LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default
) -> dict[str, tuple[int, ...]]:
    """Return the partitions, by topic, that their preferred leaders should lead.

    `topics` has all partitions of each topic. Those that are leaderless or being reassigned do not count.
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
