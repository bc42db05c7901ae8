"""Placement: the nodes that get the replicas of new partitions, preferred leader first.

Leaders go round the nodes as in Kafka, and the other replicas follow at a distance that grows with each round, so that
the followers of one leader are spread, too. Nodes are ordered so that racks alternate, and no rack gets a second
replica of a partition before every rack has one. Nodes without a rack count as one rack, because they may fail
together.

No node leads two partitions more than another. Replicas are even after each full round of partitions if the racks have
the same size.

Source: Kafka's AdminUtils.assignReplicasToBrokers and getRackAlternatedBrokerList, with `seed` in the place of random
numbers; nodes without a rack are treated as in its StripedReplicaPlacer.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.partition import by_number, named
from pyspark_log_coordinator.model.settings import DEFAULT_REPLICATION_FACTOR
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_log_coordinator.model.partition import NodeId

Placement = tuple[tuple["NodeId", ...], ...]
"""The nodes of each partition."""


def default_replication_factor(nodes: int) -> int:
    """Return the replication factor of a topic that sets none: 3, or the number of nodes if that is smaller."""
    return min(DEFAULT_REPLICATION_FACTOR.default, nodes)


def spread(
    racks: Mapping[NodeId, str], partitions: int, replication_factor: int, seed: int, first: int = 0
) -> Placement:
    """Return the nodes of partitions `first` to `first + partitions - 1`.

    `racks` has the rack of each node, for at least `replication_factor` nodes. The same `seed` (not negative) gives the
    same spread, so that partitions that are added later continue it.
    """
    assert 1 <= replication_factor <= len(racks)
    nodes = alternated(racks)
    rack_count = len(set(racks.values()))
    count = len(nodes)
    start, shift = seed % count, seed // count % count
    spread_out = []
    for number in range(first, first + partitions):
        leader = (number + start) % count
        distance = (shift + number // count) * rack_count
        chosen = [nodes[leader]]
        while len(chosen) < replication_factor:
            node = nodes[(leader + 1 + distance % (count - 1)) % count]
            used = {racks[node] for node in chosen}
            if node not in chosen and (racks[node] not in used or len(used) == rack_count):
                chosen.append(node)
            distance += 1
        spread_out.append(tuple(chosen))
    return tuple(spread_out)


def alternated(racks: Mapping[NodeId, str]) -> list[NodeId]:
    """Return the nodes in an order in which neighbours are in different racks if possible."""
    by_rack: dict[str, list[NodeId]] = {rack: [] for rack in sorted(set(racks.values()))}
    for node in sorted(racks, key=by_number):
        by_rack[racks[node]].append(node)
    rounds = itertools.zip_longest(*by_rack.values())
    return [node for each in rounds for node in each if node is not None]


def check(
    assignment: Placement,
    live: Iterable[NodeId],
    known: Iterable[NodeId],
    topic: str,
    *,
    first: int = 0,
    replication_factor: int | None = None,
) -> None:
    """Raise `InvalidOption` unless all partitions have the same number of replicas, each on a different `live` node.

    `known` are all nodes, including fenced ones. `first` is the number of the first partition, `replication_factor`
    that of the existing partitions.
    """
    live, known = set(live), set(known)
    for number, nodes in enumerate(assignment, first):
        where = f"the assignment of topic {topic!r}, partition {number},"
        if not nodes:
            raise _wrong(f"{where} names no node; name at least one, preferred leader first")
        for node in nodes:
            if node not in known:
                raise _wrong(f"{where} names node {node!r}, which does not exist (existing: {named(known)})")
            if node not in live:
                raise _wrong(f"{where} names node {node!r}, which is fenced; unfence it, or name another")
        twice = [node for node in nodes if nodes.count(node) > 1]
        if twice:
            raise _wrong(f"{where} names node {twice[0]!r} twice; each replica must be on a different node")
        if len(nodes) != (replication_factor or len(assignment[0])):
            others = (
                f"partition {first} has {len(assignment[0])}"
                if replication_factor is None
                else f"the existing partitions have {replication_factor}"
            )
            replicas = "1 replica" if len(nodes) == 1 else f"{len(nodes)} replicas"
            raise _wrong(f"{where} has {replicas}, but {others}; give every partition the same number")


def _wrong(message: str) -> InvalidOption:
    return InvalidOption("replica.assignment", message)
