"""The nodes of a cluster: who joins, is fenced, loses its store and comes back, and leaves for good.

    command           events
    AddNode        -> NodeAdded
    FenceNode      -> NodeFenced                   nothing new is put on the node, and it is in no ISR
    UnfenceNode    -> NodeUnfenced
    RenewNode      -> NodeRenewed                  a store in the place of one that was lost, or at another address
    SetRack        -> RackSet                      where the node stands; replicas that are there stay where they are
    RemoveNode     -> NodeRemoved                  a fenced node without replicas

An incarnation is one life of a node's store. Neither an incarnation nor the id of a removed node is ever used again:
what an old journal entry, or a disk from a drawer, says of the former one must not be taken for the present one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.node_order import named
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.names import check_node, check_rack
from pyspark_log_storage.stored_names import NodeName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

AT_THE_ROOT = "."
"""The address of a node that is the cluster root itself, wherever that is mounted."""


class Node(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An independent place that can fail on its own."""

    node_id: NodeName
    url: str
    rack: str
    """Where it stands; what stands together fails together. Empty where nobody said."""
    incarnation: str
    fenced: bool = False
    """Kept out by an operator: nothing new is put on it."""


class FormerNode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A life of a node's store that has ended."""

    node_id: NodeId
    incarnation: str


class AddNode(msgspec.Struct, frozen=True):
    """Let a node join. Its store has been tried, and has the marker."""

    node: Node


class FenceNode(msgspec.Struct, frozen=True):
    """Put nothing new on a node, and count on it for nothing."""

    node_id: NodeId


class UnfenceNode(msgspec.Struct, frozen=True):
    """Use a fenced node again."""

    node_id: NodeId


class RenewNode(msgspec.Struct, frozen=True):
    """Go on with another store, whose marker has this incarnation, or with the same one at another address."""

    node_id: NodeId
    url: str
    incarnation: str


class SetRack(msgspec.Struct, frozen=True):
    """Say where a node stands; empty for nowhere."""

    node_id: NodeId
    rack: str


class RemoveNode(msgspec.Struct, frozen=True):
    """Take a node away for good. `clear` are the ids of the topics without replicas on it, as their journals say."""

    node_id: NodeId
    clear: frozenset[str]
    journals: frozenset[NodeId]
    """The nodes where the journals are, as far as the caller knows."""


class NodeAdded(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A node joined."""

    node: Node


class NodeFenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Nothing new is put on the node."""

    node_id: NodeId


class NodeUnfenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is used again."""

    node_id: NodeId


class NodeRenewed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node's store is this one from now on. In another incarnation it holds nothing."""

    node_id: NodeId
    url: str
    incarnation: str


class RackSet(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node stands there from now on, as far as where new replicas go and which are near."""

    node_id: NodeId
    rack: str


class NodeRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The node is gone."""

    node_id: NodeId


Command = AddNode | FenceNode | UnfenceNode | RenewNode | SetRack
Event = NodeAdded | NodeFenced | NodeUnfenced | NodeRenewed | RackSet | NodeRemoved


def decide(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], command: Command) -> list[Event]:
    """Return the events that carry out `command`, none where it is done. Raises `InvalidOption` where refused."""
    match command:
        case AddNode():
            return _add(nodes, former, command.node)
        case FenceNode():
            if node_of(nodes, command.node_id).fenced:
                return []
            if list(live(nodes)) == [command.node_id]:
                raise _wrong(f"node {command.node_id!r} is the last that is not fenced; unfence or add another first")
            return [NodeFenced(command.node_id)]
        case UnfenceNode():
            return [NodeUnfenced(command.node_id)] if node_of(nodes, command.node_id).fenced else []
        case RenewNode():
            return _renew(nodes, former, command)
        case SetRack():
            check_rack(command.rack)
            is_there = node_of(nodes, command.node_id).rack == command.rack
            return [] if is_there else [RackSet(command.node_id, command.rack)]


def decide_removal(
    nodes: Mapping[NodeId, Node], node_id: NodeId, topics: Sequence[str], journals: Collection[NodeId]
) -> list[Event]:
    """Return the event that removes a node, none where it is gone.

    `topics` are those that may have replicas on it, `journals` the nodes where the journals are, or were before a move
    that is under way. Raises `InvalidOption` where refused.
    """
    if node_id not in nodes:
        return []
    if node_id in journals:
        raise _wrong(
            f"node {node_id!r} is one of those where the journals are; it cannot be removed. Move them to others "
            "first, with `pyspark-log cluster move-journals`"
        )
    node = nodes[node_id]
    if node.url == AT_THE_ROOT:
        raise _wrong(f"node {node_id!r} is the cluster root, where the journals are; it cannot be removed")
    if not node.fenced:
        raise _wrong(f"node {node_id!r} is in use; fence it first, so that nothing new is put on it")
    if topics:
        more = f" and {len(topics) - 10} more" if len(topics) > 10 else ""  # noqa: PLR2004 -- enough to see which
        raise _wrong(
            f"node {node_id!r} has replicas of {', '.join(topics[:10])}{more}; move these to other nodes, or "
            "delete the topics, and try again"
        )
    return [NodeRemoved(node_id)]


def evolve(
    nodes: Mapping[NodeId, Node], former: tuple[FormerNode, ...], event: Event
) -> tuple[dict[NodeId, Node], tuple[FormerNode, ...]]:
    """Return the nodes after `event`, and the former ones."""
    if isinstance(event, NodeAdded):
        if event.node.node_id in nodes:
            raise ValueError(f"node {event.node.node_id!r} is added a second time")
        return {**nodes, event.node.node_id: event.node}, former
    before = nodes[event.node_id]
    gone = FormerNode(before.node_id, before.incarnation)
    if isinstance(event, NodeRemoved):
        return {name: each for name, each in nodes.items() if name != event.node_id}, (*former, gone)
    if isinstance(event, NodeRenewed):
        after = msgspec.structs.replace(before, url=event.url, incarnation=event.incarnation)
        if event.incarnation != before.incarnation:
            former = (*former, gone)
    elif isinstance(event, RackSet):
        after = msgspec.structs.replace(before, rack=event.rack)
    else:
        after = msgspec.structs.replace(before, fenced=isinstance(event, NodeFenced))
    return {**nodes, event.node_id: after}, former


def live(nodes: Mapping[NodeId, Node]) -> dict[NodeId, Node]:
    """Return the nodes that may be given something: those that are not fenced."""
    return {name: each for name, each in nodes.items() if not each.fenced}


def node_of(nodes: Mapping[NodeId, Node], node_id: NodeId) -> Node:
    """Return a node. Raises `InvalidOption`, which says what there is."""
    if node_id not in nodes:
        raise _wrong(f"there is no node {node_id!r}; there are {named(nodes)}")
    return nodes[node_id]


def free_id(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode]) -> NodeId:
    """Return the lowest number that no node has or had."""
    used = {*nodes, *(each.node_id for each in former)}
    return next(str(number) for number in range(len(used) + 1) if str(number) not in used)


def _add(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], node: Node) -> list[Event]:
    check_node(node.node_id)
    check_rack(node.rack)
    known = nodes.get(node.node_id)
    if known is not None and known.incarnation == node.incarnation:
        return []
    if known is not None:
        raise _wrong(f"there is a node {node.node_id!r} already, at {known.url}; give another id, or none")
    if any(each.node_id == node.node_id for each in former):
        raise _wrong(f"there was a node {node.node_id!r}, and ids are never used again; give another id, or none")
    _check_store(nodes, former, node.node_id, node.url, node.incarnation)
    return [NodeAdded(node)]


def _renew(nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], command: RenewNode) -> list[Event]:
    known = node_of(nodes, command.node_id)
    if (known.url, known.incarnation) == (command.url, command.incarnation):
        return []
    _check_store(nodes, former, command.node_id, command.url, command.incarnation)
    return [NodeRenewed(command.node_id, command.url, command.incarnation)]


def _check_store(
    nodes: Mapping[NodeId, Node], former: Sequence[FormerNode], node_id: NodeId, url: str, incarnation: str
) -> None:
    for other in nodes.values():
        if other.node_id != node_id and other.url == url:
            raise _wrong(f"{url} is node {other.node_id!r} already; give an address of its own to each node")
        if other.node_id != node_id and other.incarnation == incarnation:
            raise _wrong(f"the store at {url} is node {other.node_id!r} already, by another address")
    for each in former:
        if each.incarnation == incarnation:
            raise _wrong(
                f"the store at {url} was node {each.node_id!r} before that was renewed or removed, and what it holds "
                "may be old; empty it, its marker too, and try again"
            )


def _wrong(message: str) -> InvalidOption:
    return InvalidOption("node", message)
