"""Node administration: adds nodes to a cluster, renews, fences and removes them, on their stores and in the journals.

A node's marker is created on its store before the cluster's journal names the node. A marker that no entry names was
left by an interrupted call, which the next one finishes. Of two concurrent calls one creates the marker, both use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.cluster.nodes import (
    AT_THE_ROOT,
    AddNode,
    FenceNode,
    Node,
    RemoveNode,
    RenewNode,
    SetRack,
    UnfenceNode,
)
from pyspark_log_coordinator.log.bootstrap import create_marker, overlap
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode, known_of
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidInput,
    InvalidOption,
    LogError,
    NewerFormat,
    ObjectMissing,
    UnknownTopic,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store


def join(log: Log, url: str, node_id: NodeId | None = None, rack: str = "") -> tuple[Node, bool]:
    """Add the store at `url`, which `absolute_url` made, as a node; return the node, and whether it is new.

    The default id is the lowest free number. Raises `InvalidInput` if the id or the store belongs to another node,
    `StoreUnfit` if the store would lose rows, `StoreError`. A refused store is left unchanged.
    """
    state = log.cluster.refresh()
    store = log.store_at(url)
    marker = node.read_marker(store)
    if marker is not None:
        _check_cluster(log, store, marker)
        if node_id is not None and node_id != marker.node:
            raise _refused(f"the store at {url} has the marker of node {marker.node!r}; give that id, or another store")
        known = state.nodes.get(marker.node)
        if known is not None and known.incarnation == marker.incarnation:
            return known, False
    wanted = node_id or nodes.free_id(state.nodes, state.former_nodes)
    mine = marker or Marker(state.cluster_id, wanted, log.environment.nonce())
    _check_overlap(log, url)
    nodes.decide(state.nodes, state.former_nodes, AddNode(Node(mine.node, url, rack, mine.incarnation)))
    placed = marker or _mark(log, store, mine)
    try:
        root = log.store.url if log.journals.nodes is None else ""
        log.cluster.submit(AddNode(Node(placed.node, url, rack, placed.incarnation), root))
    except InvalidInput:
        taken = log.cluster.state.nodes.get(placed.node)
        # If it is this store's, the disk was wiped after another process had added it, and is renewed with our marker.
        if marker is None and placed == mine and (taken is None or taken.url != url):
            store.delete(layout.MARKER)  # another node took the id first
        raise
    return log.cluster.state.nodes[placed.node], True


def renew(log: Log, node_id: NodeId, url: str | None = None, *, is_set_back: bool = False) -> tuple[Node, bool]:
    """Use the store now at a node's address, or at `url`, for the node; return the node, and whether that changed it.

    An empty store gets a new incarnation, which holds nothing yet. So does one that `is_set_back`: it lacks files that
    the node holds. What is left on it is found by the node's next catch-up. Raises `InvalidInput` if the store belongs
    to another node, is one that the node had before, or is a copy of the one that it has, and if the root gets a `url`;
    `StoreUnfit`, `StoreError`.
    """
    known = nodes.node_of(log.cluster.refresh().nodes, node_id)
    if known.url == AT_THE_ROOT and url is not None:
        raise _refused(
            f"node {node_id!r} is the cluster root, which is at the log's own address; give no address. If the log was "
            "moved, run `pyspark-log cluster adopt --moved`"
        )
    address = known.url if url is None else url
    store = log.store_at(address)
    if address != known.url:
        _check_overlap(log, address)
    marker = renewable_marker(store, node_id)
    if marker is None:
        is_root = known.url == AT_THE_ROOT
        marker = _mark(log, store, Marker(log.cluster.state.cluster_id, node_id, log.environment.nonce(), is_root))
    _check_cluster(log, store, marker)
    if marker.node != node_id:
        raise _refused(f"the store at {address} is node {marker.node!r}, not {node_id!r}; mount the right one")
    if address != known.url:
        _check_moved(log, known, store, marker)
    if is_set_back and marker.incarnation == known.incarnation:
        marker = msgspec.structs.replace(marker, incarnation=log.environment.nonce())
        store.put(layout.MARKER, node.encode(marker))
    done = log.cluster.submit(RenewNode(node_id, address, marker.incarnation))
    update_topics(log, node_id)
    return done.state.nodes[node_id], bool(done.events)


def renewable_marker(store: Store, node_id: NodeId) -> Marker | None:
    """Return the marker of a store with which a node is to be renewed. Raises `InvalidOption` if it is damaged."""
    try:
        return node.read_marker(store)
    except CorruptObject as error:
        # It may be the disk of another node or cluster.
        message = f"{error.object} is damaged; if this is the store of node {node_id!r}, delete that file and try again"
        raise _refused(message) from error


def set_fenced(log: Log, node_id: NodeId, *, fenced: bool) -> bool:
    """Fence or unfence a node; return whether that changed anything. Raises `InvalidInput`."""
    done = log.cluster.submit(FenceNode(node_id) if fenced else UnfenceNode(node_id))
    update_topics(log, node_id)
    return bool(done.events)


def set_rack(log: Log, node_id: NodeId, rack: str) -> bool:
    """Set a node's rack, empty for none; return whether that changed anything. Raises `InvalidOption`."""
    return bool(log.cluster.submit(SetRack(node_id, rack)).events)


def check_removable(log: Log, node_id: NodeId) -> None:
    """Raise what `remove` would raise now. Changes nothing."""
    command = _removal(log, node_id)
    cluster.decide(log.cluster.state, command, log.clock.now_ms())


def remove(log: Log, node_id: NodeId) -> bool:
    """Remove a fenced node without replicas for good; return whether it existed. Its store is left unchanged.

    Raises `InvalidInput` if the node is not fenced, or a topic has replicas on it.
    """
    return bool(log.cluster.submit(_removal(log, node_id)).events)


def _removal(log: Log, node_id: NodeId) -> RemoveNode:
    state = log.cluster.refresh()
    nodes.decide_removal(state.nodes, node_id, (), state.journals.holders())
    fencings = state.nodes[node_id].fencings if node_id in state.nodes else 0
    # Read the topics after the node was fenced: a reassignment to it checks afterwards that it is not.
    known = {record.topic_id for record in log.topics().values()}
    on_it = {handle.topic_id for handle in log.topics_on(node_id)} if node_id in state.nodes else set()
    return RemoveNode(node_id, frozenset(known - on_it), fencings)


def update_topics(log: Log, node_id: NodeId) -> None:
    """Copy the cluster's state of a node to every topic that has an older one.

    The cluster's entry comes first, so repeating an interrupted call completes this. Raises the error of the first
    topic whose journal is damaged, after the others.
    """
    damaged: LogError | None = None
    for name in sorted(log.topics()):
        try:
            update_topic(log.topic(name), node_id)
        except UnknownTopic:
            continue  # deleted meanwhile
        except (CorruptObject, NewerFormat, ObjectMissing) as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged


def update_topic(handle: TopicHandle, node_id: NodeId) -> None:
    """Copy the cluster's state of a node to a topic that has an older one. Reads nothing if they agree.

    Otherwise the topic may have the newer one, of a change that this process has not read. An older one would bring
    back a node's former store, or take a fenced node into the ISR.
    """
    cluster, journal = handle.log.cluster, handle.journal
    while node_id in journal.state.incarnations:
        known = known_of(journal.state, node_id)
        if _is_as_known(cluster.state.nodes, node_id, known) or _is_as_known(cluster.refresh().nodes, node_id, known):
            return
        member = cluster.state.nodes[node_id]
        handle.submit(AlterReplicaNode(node_id, member.incarnation, member.fenced, known))
        cluster.refresh()  # it may have changed meanwhile


def _is_as_known(members: Mapping[NodeId, Node], node_id: NodeId, known: tuple[str, bool]) -> bool:
    """Return whether a node is as a topic knows it, or was removed."""
    member = members.get(node_id)
    return member is None or (member.incarnation, member.fenced) == known


def _mark(log: Log, store: Store, mine: Marker) -> Marker:
    """Test the store and give it a marker; return the stored one, which another process may have created first."""
    self_test(store, log.environment.nonce(), log.environment.store_threads)
    return create_marker(store, mine)


def _check_cluster(log: Log, store: Store, marker: Marker) -> None:
    if marker.cluster != log.cluster.state.cluster_id:
        raise _refused(
            f"the store at {store.url} is node {marker.node!r} of another cluster, {marker.cluster}; use an empty "
            "store, or delete everything in this one, with its marker, if that cluster no longer exists"
        )


def _check_moved(log: Log, known: Node, store: Store, marker: Marker) -> None:
    """Raise `InvalidOption` if the store at a node's new address is a copy of the one that is at its present address.

    A process that has not read of the move would write rows to that one, and they would count.
    """
    former = log.store_at(known.url)
    try:
        if node.read_marker(former) != marker:
            return
    except LogError:
        return  # nobody can use it
    probe = f"{layout.SELF_TEST}{log.environment.nonce()}"
    store.create(probe, b"")
    try:
        is_same = former.exists(probe)
    finally:
        store.delete(probe)
    if not is_same:
        raise _refused(
            f"{former.url} still has the store of node {known.node_id!r}, of which {store.url} is a copy; a process "
            "that knows the former address would write rows there alone. Unmount it, or delete its object "
            f"{layout.MARKER!r}; then copy what was written meanwhile, and try again"
        )


def _check_overlap(log: Log, url: str) -> None:
    """Raise `InvalidOption` if one address contains the other: keys of one store would appear in the other."""
    for member in log.cluster.state.nodes.values():
        other = log.store.url if member.url == AT_THE_ROOT else member.url
        if overlap(url, other):
            raise _refused(
                f"{url} and node {member.node_id!r} at {other} overlap: one contains the other; use separate "
                "directories"
            )


def _refused(message: str) -> InvalidOption:
    return InvalidOption("node", message)
