"""The plan of a reassignment: new nodes for the replicas of a topic, such that as few replicas as possible move.

A replica stays on its node if that is allowed. Otherwise, and if the replication factor grows, a replica is placed in a
rack without one, on the node with the fewest replicas of the topic. If it shrinks, a replica that is out of sync is
removed, also the preferred leader; otherwise one in the rack with the most, on the node with the most replicas, and the
preferred leader stays.

`even_out` moves replicas one by one from the node with the most to the node with the fewest, until these differ by one
or racks forbid it; so a new node gets its share. Then it balances preferred leaders in the same way, which copies
nothing.

The same request again gives the same plan, so an interrupted reassignment continues.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.partition import by_number, named
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark_log_coordinator.cluster.placement import Placement
    from pyspark_log_coordinator.model.partition import NodeId


def relocate(
    current: Placement,
    racks: Mapping[NodeId, str],
    replication_factor: int | None = None,
    closed: Collection[NodeId] = (),
    *,
    behind: Sequence[Collection[NodeId]] = (),
) -> Placement:
    """Return the nodes of each partition, preferred leader first.

    `racks` has the racks of the nodes that replicas may be on; the `closed` ones keep theirs but get no new ones, and
    become preferred leaders only of partitions without another node.
    `behind` are the nodes of each partition that are out of sync. Without a replication factor each partition keeps its
    own. Raise `InvalidOption` if there are too few nodes.
    """
    placed = [[node for node in nodes if node in racks] for nodes in current]
    held = Counter(node for nodes in placed for node in nodes)
    leaders = Counter(nodes[0] for nodes in current if nodes[0] in racks)
    for number, (before, nodes) in enumerate(zip(current, placed, strict=True)):
        wanted = len(before) if replication_factor is None else replication_factor
        while len(nodes) > wanted:
            worst = _worst(nodes, racks, held, behind[number] if behind else ())
            nodes.remove(worst)
            held[worst] -= 1
        while len(nodes) < wanted:
            able = [node for node in sorted(racks, key=by_number) if node not in closed and node not in nodes]
            if not able:
                raise _too_few(number, wanted, {*nodes, *(racks.keys() - closed)})
            in_rack = Counter(racks[node] for node in nodes)
            best = min(able, key=lambda node: (in_rack[racks[node]], held[node]))  # of equals the first
            nodes.append(best)
            held[best] += 1
        if before[0] not in racks:
            first = min(nodes, key=lambda node: (node in closed, leaders[node]))
            leaders[first] += 1
            _to_front(nodes, first)
    return tuple(map(tuple, placed))


def _worst(
    nodes: Sequence[NodeId], racks: Mapping[NodeId, str], held: Mapping[NodeId, int], behind: Collection[NodeId]
) -> NodeId:
    """Return the replica of a partition to remove, first one of those that are `behind`."""
    in_rack = Counter(racks[node] for node in nodes)
    able = [node for node in nodes if node in behind] or nodes[1:]
    return max(able, key=lambda node: (in_rack[racks[node]], held[node], nodes.index(node)))


def _too_few(number: int, wanted: int, usable: Collection[NodeId]) -> InvalidOption:
    replicas = "1 replica" if wanted == 1 else f"{wanted} replicas"
    where = f"only these nodes can be used: {named(usable)}" if usable else "no node can be used"
    return InvalidOption(
        "replication.factor",
        f"partition {number} cannot have {replicas}: {where}; choose fewer replicas, or add or unfence nodes",
    )


def even_out(placement: Placement, racks: Mapping[NodeId, str]) -> Placement:
    """Return the nodes of each partition after some replicas have moved, so that all nodes have about as many.

    `racks` has the rack of each node, also of those without a replica.
    """
    placed = [list(nodes) for nodes in placement]

    def may_hold(number: int, before: NodeId, after: NodeId) -> bool:
        """Return whether the partition is in at least as many racks if `after` replaces `before`."""
        others = {racks[node] for node in placed[number] if node != before}
        return len({*others, racks[after]}) >= len({*others, racks[before]})

    held = {node: {number for number, nodes in enumerate(placed) if node in nodes} for node in racks}
    for number, before, after in _evening_moves(held, may_hold):
        placed[number][placed[number].index(before)] = after
    led = {node: {number for number, nodes in enumerate(placed) if nodes[0] == node} for node in racks}
    for number, _, after in _evening_moves(led, lambda number, _, after: after in placed[number]):
        _to_front(placed[number], after)
    return tuple(map(tuple, placed))


def _evening_moves(
    has: dict[NodeId, set[int]], is_allowed: Callable[[int, NodeId, NodeId], bool]
) -> Iterator[tuple[int, NodeId, NodeId]]:
    """Yield which partition moves from which node to which other, one after the other, until all have about as many.

    `has` are the partitions of each node. `is_allowed` is asked after each move was carried out.
    """
    while True:
        fewest = sorted(has, key=lambda node: (len(has[node]), by_number(node)))
        most = sorted(has, key=lambda node: (-len(has[node]), by_number(node)))
        able = (
            (number, heavy, light)
            for heavy, light in itertools.product(most, fewest)
            if len(has[heavy]) - len(has[light]) > 1
            for number in sorted(has[heavy] - has[light])
            if is_allowed(number, heavy, light)
        )
        move = next(able, None)
        if move is None:
            return
        number, heavy, light = move
        has[heavy].remove(number)
        has[light].add(number)
        yield move


def _to_front(nodes: list[NodeId], first: NodeId) -> None:
    nodes.remove(first)
    nodes.insert(0, first)
