"""Assignment: which nodes get the replicas of a new topic's partitions, preferred leader first.

Spread as Kafka does it: leaders go round the nodes, and the other replicas follow at a distance that grows with each
round, so that the followers of one leader are spread too. The nodes are ordered so that racks alternate, and no rack
gets a second replica of a partition before every rack has one. Nodes of which nobody said where they stand count as one
rack: they may stand together.

Leaders are even: no node leads two partitions more than another. Replicas are even after each full round of partitions,
if the racks are of one size.

Source: Kafka's AdminUtils.assignReplicasToBrokers and getRackAlternatedBrokerList, whose random numbers come from
`seed` here; the rack of nodes without one is as in its StripedReplicaPlacer. With one rack this is Kafka's spread
without racks.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.node_order import by_number, named
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_log_coordinator.model.partition import NodeId

Placement = tuple[tuple["NodeId", ...], ...]
"""The nodes of each partition."""

DEFAULT_REPLICATION_FACTOR = 3
"""Of a topic that asks for none, where there are as many nodes. One may be lost, and two copies are left."""


def default_replication_factor(nodes: int) -> int:
    """Return how many replicas a partition gets where nobody says: 3, or as many as there are nodes."""
    return min(DEFAULT_REPLICATION_FACTOR, nodes)


def spread(
    racks: Mapping[NodeId, str], partitions: int, replication_factor: int, seed: int, first: int = 0
) -> Placement:
    """Return the nodes of partitions `first` to `first + partitions - 1`.

    `racks` is by node, with at least `replication_factor` of them. The same `seed`, which is not negative, gives the
    same spread: partitions that are added later go on where the first ended.
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
            used = {racks[each] for each in chosen}
            if node not in chosen and (racks[node] not in used or len(used) == rack_count):
                chosen.append(node)
            distance += 1
        spread_out.append(tuple(chosen))
    return tuple(spread_out)


def alternated(racks: Mapping[NodeId, str]) -> list[NodeId]:
    """Return the nodes ordered so that neighbours are of different racks, as far as that can be."""
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
    """Raise `InvalidOption` unless every partition has as many replicas, on distinct nodes that are `live`.

    `known` are all nodes, fenced ones among them. `first` is the number of the first partition, `replication_factor`
    that of the partitions that are there already.
    """
    live, known = set(live), set(known)
    for number, nodes in enumerate(assignment, first):
        where = f"the assignment of topic {topic!r}, partition {number},"
        if not nodes:
            raise _wrong(f"{where} names no node; name one at least, preferred leader first")
        for node in nodes:
            if node not in known:
                raise _wrong(f"{where} names node {node!r}, which is not there; there are {named(known)}")
            if node not in live:
                raise _wrong(f"{where} names node {node!r}, which is fenced; unfence it, or name another")
        twice = [node for node in nodes if nodes.count(node) > 1]
        if twice:
            raise _wrong(f"{where} names node {twice[0]!r} twice; replicas of a partition are on different nodes")
        if len(nodes) != (replication_factor or len(assignment[0])):
            others = (
                f"that of partition {first} has {len(assignment[0])}"
                if replication_factor is None
                else f"the partitions that are there have {replication_factor}"
            )
            raise _wrong(f"{where} has {len(nodes)} replicas and {others}; give every partition as many")


def _wrong(message: str) -> InvalidOption:
    return InvalidOption("replica.assignment", message)
