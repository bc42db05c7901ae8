"""Sums over partitions: rows, bytes, troubles, and what each node has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.partition_health import Trouble, troubles

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic


class OnNode(msgspec.Struct, frozen=True):
    """What a node has of one or several topics. `behind` is in rows, `bytes` as they are stored."""

    replicas: int = 0
    leads: int = 0
    in_sync: int = 0
    behind: int = 0
    bytes: int = 0

    def __add__(self, other: OnNode) -> OnNode:
        return OnNode(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Figures(msgspec.Struct, frozen=True):
    """The sums over some partitions. `ends` is the sum of their high watermarks; `bytes` are those of one copy."""

    rows: int = 0
    ends: int = 0
    bytes: int = 0
    troubles: dict[Trouble, int] = {}
    nodes: dict[str, OnNode] = {}

    @property
    def stored(self) -> int:
        """The bytes of all copies."""
        return sum(each.bytes for each in self.nodes.values())


def figures_of(topic: Topic, broken: frozenset[NodeId]) -> Figures:
    """Return the sums over a topic's partitions; `broken` are the nodes that do not answer now."""
    rows = ends = stored = 0
    counted: Counter[Trouble] = Counter()
    nodes: dict[str, OnNode] = {}
    for each in topic.partitions:
        size, length = size_of(each), each.log_end - each.log_start
        rows += each.rows_between(each.log_start, each.high_watermark)
        ends += each.high_watermark
        stored += size
        counted.update(troubles(each, topic.config, broken))
        for node in each.replicas:
            behind = each.log_end - each.log_end_offsets.get(node, each.log_start)
            held = size if not behind or not length else round(size * (length - min(behind, length)) / length)
            here = OnNode(1, int(each.leader == node), int(node in each.isr), behind, held)
            nodes[node] = nodes[node] + here if node in nodes else here
    return Figures(rows, ends, stored, dict(counted), nodes)


def size_of(partition: Partition) -> int:
    """Return the bytes of a partition's rows on one node, as they are stored."""
    return sum(each.length for kind in (partition.segments, partition.chunks) for each in kind)
