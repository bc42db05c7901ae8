"""The nodes of a cluster: how they join, are fenced, get a new store, and leave.

    command           events
    AddNode        -> NodeChanged
    FenceNode      -> NodeChanged                  the node gets no new replicas, and is in no ISR
    UnfenceNode    -> NodeChanged
    RenewNode      -> NodeChanged                  a store that replaces a lost one, or the same at another address
    RenewTogether  -> NodeChanged ...              the same for several nodes, which may exchange their addresses
    SetRack        -> NodeChanged                  existing replicas stay where they are
    RemoveNode     -> NodeRemoved                  a fenced node without replicas

A node's store has a new incarnation each time it is made or wiped. Neither an incarnation nor the id of a removed node
is ever reused, so that an old journal entry or disk is not taken for the current node's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, named
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.names import check_node, check_rack
from pyspark_log_storage.stored_fields import Count, NodeName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_log_coordinator.model.topic_state import Topic

AT_THE_ROOT = "."
"""The address of the node at the cluster root, wherever that is mounted."""


class Node(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A store that fails independently of others."""

    node_id: NodeName
    url: str
    rack: str
    """Nodes of one rack may fail together. Empty if unknown."""
    incarnation: str
    fenced: bool = False
    """Taken out of service by an operator: the node gets no new replicas."""
    fencings: Count = 0
    """How often the node was fenced."""


class FormerNode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A former incarnation of a node's store."""

    node_id: NodeId
    incarnation: str


class AddNode(msgspec.Struct, frozen=True):
    """Let a node join. Its store was tested and has the marker."""

    node: Node
    root: str = ""
    """The address of the cluster root, as the caller knows it; empty if the journals are on several nodes."""


class FenceNode(msgspec.Struct, frozen=True):
    """Take a node out of service."""

    node_id: NodeId
    again: bool = False
    """Whether to count one more fencing of a node that is fenced, and nothing else: it may have got replicas since."""


class UnfenceNode(msgspec.Struct, frozen=True):
    """Return a fenced node to service."""

    node_id: NodeId


class RenewNode(msgspec.Struct, frozen=True):
    """Continue with a new store, whose marker has this incarnation, or with the same one at another address."""

    node_id: NodeId
    url: str
    incarnation: str


class RenewTogether(msgspec.Struct, frozen=True):
    """Do several `RenewNode` in one entry. A node may get the address that another one of them had."""

    nodes: tuple[RenewNode, ...]


class SetRack(msgspec.Struct, frozen=True):
    """Set a node's rack; empty for unknown."""

    node_id: NodeId
    rack: str


class RemoveNode(msgspec.Struct, frozen=True):
    """Remove a node for good. `clear` are the ids of the topics whose journals have no replica on it."""

    node_id: NodeId
    clear: frozenset[str]
    fencings: int
    """How often the node had been fenced when the caller read the topics: since a later one they may have changed."""


class NodeChanged(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is so from now on; it may be a new one. In another incarnation it holds nothing."""

    node: Node


class NodeRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    node_id: NodeId


Command = AddNode | FenceNode | UnfenceNode | RenewNode | RenewTogether | SetRack
Event = NodeChanged | NodeRemoved


def decide(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], command: Command) -> list[Event]:
    """Return the events that carry out `command`, none if it is done. Raise `InvalidOption` if it is refused."""
    match command:
        case AddNode():
            return _add(nodes, former, command.node)
        case FenceNode(again=True):
            fenced = nodes.get(command.node_id)
            return [_fenced(fenced)] if fenced is not None and fenced.fenced else []
        case FenceNode():
            known = node_of(nodes, command.node_id)
            if known.fenced:
                return []
            if list(live(nodes)) == [command.node_id]:
                raise _wrong(f"node {command.node_id!r} is the only one that is not fenced; unfence or add another")
            return [_fenced(known)]
        case UnfenceNode():
            known = node_of(nodes, command.node_id)
            return [_changed(known, fenced=False)] if known.fenced else []
        case RenewNode():
            return _renew(nodes, former, (command,))
        case RenewTogether():
            return _renew(nodes, former, command.nodes)
        case SetRack():
            check_rack(command.rack)
            known = node_of(nodes, command.node_id)
            return [] if known.rack == command.rack else [_changed(known, rack=command.rack)]


def decide_removal(
    nodes: Mapping[NodeId, Node],
    node_id: NodeId,
    topics: Sequence[str],
    journals: Collection[NodeId],
    fencings: int | None = None,
) -> list[Event]:
    """Return the event that removes a node, none if it is removed.

    `topics` are those that may have replicas on it, `journals` the journal nodes. `fencings` is how often the node had
    been fenced when the topics were read; None if they were not. Raise `InvalidOption` if the removal is refused.
    """
    if node_id not in nodes:
        return []
    if node_id in journals:
        raise _wrong(
            f"node {node_id!r} is a journal node and cannot be removed; first migrate the journals to other nodes, "
            "with `pyspark-log cluster migrate-journals`"
        )
    node = nodes[node_id]
    if node.url == AT_THE_ROOT:
        raise _wrong(f"node {node_id!r} is the cluster root, which holds the journals, and cannot be removed")
    if not node.fenced:
        raise _wrong(f"node {node_id!r} is not fenced; fence it first, so that it gets no new replicas")
    if topics:
        more = f" and {len(topics) - 10} more" if len(topics) > 10 else ""  # noqa: PLR2004 -- enough to see which
        raise _wrong(
            f"node {node_id!r} has replicas of topics {', '.join(topics[:10])}{more}; reassign these to other nodes, "
            "or delete the topics, then try again"
        )
    if fencings not in {None, node.fencings}:
        raise _wrong(f"node {node_id!r} was fenced again meanwhile, and may have got replicas before that; try again")
    return [NodeRemoved(node_id)]


def evolve(
    nodes: Mapping[NodeId, Node], former: tuple[FormerNode, ...], event: Event
) -> tuple[dict[NodeId, Node], tuple[FormerNode, ...]]:
    if isinstance(event, NodeRemoved):
        gone = nodes[event.node_id]
        after = {name: node for name, node in nodes.items() if name != event.node_id}
        return after, (*former, FormerNode(gone.node_id, gone.incarnation))
    node = event.node
    known = nodes.get(node.node_id)
    if known is not None and known.incarnation != node.incarnation:
        former = (*former, FormerNode(known.node_id, known.incarnation))
    return {**nodes, node.node_id: node}, former


def live(nodes: Mapping[NodeId, Node]) -> dict[NodeId, Node]:
    """Return the nodes that are not fenced."""
    return {name: node for name, node in nodes.items() if not node.fenced}


def node_of(nodes: Mapping[NodeId, Node], node_id: NodeId) -> Node:
    """Return a node. Raise `InvalidOption` if it does not exist."""
    if node_id not in nodes:
        raise _wrong(f"node {node_id!r} does not exist (existing: {named(nodes)})")
    return nodes[node_id]


def holding(topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> list[Node]:
    """Return the nodes that hold a file, in their order. The only node of a cluster holds every file."""
    from pyspark_log_coordinator.replication import replicas  # imports the state of topics, which tasks do without

    if len(nodes) == 1:
        return list(nodes)
    current = replicas.of_current_incarnations(topic, holders)
    return [node for node in nodes if Holder(node.node_id, node.incarnation) in current]


def free_id(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode]) -> NodeId:
    """Return the lowest number that was never a node's id."""
    used = {*nodes, *(node.node_id for node in former)}
    return next(str(number) for number in range(len(used) + 1) if str(number) not in used)


def _add(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], node: Node) -> list[Event]:
    check_node(node.node_id)
    check_rack(node.rack)
    known = nodes.get(node.node_id)
    if known is not None and known.incarnation == node.incarnation:
        return []
    if known is not None:
        where = "the cluster's root" if known.url == AT_THE_ROOT else known.url
        raise _wrong(f"node {node.node_id!r} already exists, at {where}; give another id, or none")
    if any(other.node_id == node.node_id for other in former):
        raise _wrong(f"node {node.node_id!r} was removed, and ids are never reused; give another id, or none")
    _check_store(nodes, former, node.node_id, node.url, node.incarnation)
    return [NodeChanged(node)]


def _renew(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], commands: Sequence[RenewNode]) -> list[Event]:
    events = [
        _changed(known, url=renewal.url, incarnation=renewal.incarnation)
        for renewal in commands
        if (known := node_of(nodes, renewal.node_id)).url != renewal.url or known.incarnation != renewal.incarnation
    ]
    changed = {event.node.node_id: event.node for event in events}
    for node in changed.values():
        _check_store({**nodes, **changed}, former, node.node_id, node.url, node.incarnation)
    return [*events]


def _fenced(node: Node) -> NodeChanged:
    return _changed(node, fenced=True, fencings=node.fencings + 1)


def _changed(node: Node, **fields: object) -> NodeChanged:
    return NodeChanged(msgspec.structs.replace(node, **fields))


def _check_store(
    nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], node_id: NodeId, url: str, incarnation: str
) -> None:
    for other in nodes.values():
        if other.node_id != node_id and other.url == url:
            raise _wrong(f"{url} is already node {other.node_id!r}; each node needs an address of its own")
        if other.node_id != node_id and other.incarnation == incarnation:
            raise _wrong(f"the store at {url} is already node {other.node_id!r}, at another address")
    for gone in former:
        if gone.incarnation == incarnation:
            raise _wrong(
                f"the store at {url} was node {gone.node_id!r} before that was renewed or removed, so its files may be "
                "old; empty it, including its marker, and try again"
            )


def _wrong(message: str) -> InvalidOption:
    return InvalidOption("node", message)
