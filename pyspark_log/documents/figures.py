"""Sums over partitions: rows, bytes, troubles, and what each node has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.partition_health import Trouble, troubles

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_config import TopicConfig
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
    return _together([_of_partition(each, (topic.config, broken)) for each in topic.partitions])


def size_of(partition: Partition) -> int:
    """Return the bytes of a partition's rows on one node, as they are stored."""
    return sum(each.length for kind in (partition.segments, partition.chunks) for each in kind)


def _of_partition(partition: Partition, context: tuple[TopicConfig, frozenset[NodeId]]) -> Figures:
    size = size_of(partition)
    rows = partition.log_end - partition.log_start
    nodes = {}
    for node in partition.replicas:
        behind = partition.log_end - partition.log_end_offsets.get(node, partition.log_start)
        held = size if not behind or not rows else round(size * (rows - min(behind, rows)) / rows)
        nodes[node] = OnNode(1, int(partition.leader == node), int(node in partition.isr), behind, held)
    return Figures(
        rows=partition.rows_between(partition.log_start, partition.high_watermark),
        ends=partition.high_watermark,
        bytes=size,
        troubles=dict.fromkeys(troubles(partition, *context), 1),
        nodes=nodes,
    )


def _together(several: list[Figures]) -> Figures:
    counted: Counter[Trouble] = Counter()
    nodes: dict[str, OnNode] = {}
    for each in several:
        counted.update(each.troubles)
        for node, found in each.nodes.items():
            nodes[node] = nodes[node] + found if node in nodes else found
    return Figures(
        rows=sum(each.rows for each in several),
        ends=sum(each.ends for each in several),
        bytes=sum(each.bytes for each in several),
        troubles=dict(counted),
        nodes=nodes,
    )
