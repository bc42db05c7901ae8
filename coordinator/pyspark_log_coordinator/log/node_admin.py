"""Membership: letting nodes join a cluster, come back, and leave, with what that takes on their stores.

The marker is created on the store first, then the cluster's journal gets its entry. Whoever finds a marker that no
entry knows finishes what was cut short; of two that try at once one creates the marker, and both go on with it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.cluster.machine import (
    AT_THE_ROOT,
    AddNode,
    FenceNode,
    Node,
    RemoveNode,
    RenewNode,
    SetRack,
    UnfenceNode,
)
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NodeMissing, UnknownTopic
from pyspark_log_storage.node import Marker

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.store import Store


def join(log: Log, url: str, node_id: NodeId | None = None, rack: str = "") -> tuple[Node, bool]:
    """Let the store at `url`, which `absolute_url` made, join as a node; return the node, and whether it is new.

    Without an id it gets the lowest number that is free. Raises `InvalidInput` where the id, or the store, is another
    node's; `StoreUnfit` where the store would lose rows; `StoreError`. A store that is refused is left as it was.
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
    _check_apart(log, url)
    nodes.decide(state.nodes, state.former_nodes, AddNode(Node(mine.node, url, rack, mine.incarnation)))
    found = marker or _mark(log, store, mine)
    try:
        log.cluster.submit(AddNode(Node(found.node, url, rack, found.incarnation)))
    except InvalidInput:
        if marker is None and found == mine:
            store.delete(layout.KEY)  # another node was quicker to take the id
        raise
    return log.cluster.state.nodes[found.node], True


def renew(log: Log, node_id: NodeId, url: str | None = None) -> tuple[Node, bool]:
    """Go on with the store that is at a node's address now, or at `url`; return the node, and whether that changed it.

    An empty store gets a new incarnation, under which the node holds nothing. Raises `InvalidInput` where the store is
    another node's, or one that the node had before; `StoreUnfit`, `StoreError`.
    """
    known = nodes.node_of(log.cluster.refresh().nodes, node_id)
    address = known.url if url is None else url
    store = log.store_at(address)
    if address != known.url:
        _check_apart(log, address)
    marker = node.read_marker(store)
    if marker is None:
        is_root = known.url == AT_THE_ROOT
        marker = _mark(log, store, Marker(log.cluster.state.cluster_id, node_id, log.environment.nonce(), is_root))
    _check_cluster(log, store, marker)
    if marker.node != node_id:
        raise _refused(f"the store at {address} is node {marker.node!r}, not {node_id!r}; mount the right one")
    done = log.cluster.submit(RenewNode(node_id, address, marker.incarnation))
    tell_topics(log, node_id)
    return done.state.nodes[node_id], bool(done.events)


def set_fenced(log: Log, node_id: NodeId, *, fenced: bool) -> bool:
    """Fence a node, or use it again; return whether that changed anything. Raises `InvalidInput`."""
    done = log.cluster.submit(FenceNode(node_id) if fenced else UnfenceNode(node_id))
    tell_topics(log, node_id)
    return bool(done.events)


def set_rack(log: Log, node_id: NodeId, rack: str) -> bool:
    """Say where a node stands, empty for nowhere; return whether that changed anything. Raises `InvalidOption`."""
    return bool(log.cluster.submit(SetRack(node_id, rack)).events)


def check_removable(log: Log, node_id: NodeId) -> None:
    """Raise what `remove` raises if the node cannot be removed as things are now. Changes nothing."""
    command = _removal(log, node_id)
    cluster.decide(log.cluster.state, command, log.environment.now_ms())


def remove(log: Log, node_id: NodeId) -> bool:
    """Take a fenced node without replicas away for good; return whether it was there.

    Its store is left as it is. Raises `InvalidInput` where it is not fenced, or a topic has replicas on it.
    """
    return bool(log.cluster.submit(_removal(log, node_id)).events)


def _removal(log: Log, node_id: NodeId) -> RemoveNode:
    state = log.cluster.refresh()
    # Topics are looked at after it was fenced: who puts replicas on it makes sure afterwards that it is not fenced.
    journals = frozenset() if log.journal_nodes is None else frozenset(each.node for each in log.journal_nodes.nodes)
    nodes.decide_removal(state.nodes, node_id, (), journals | state.journals.holders())
    records = log.topics()
    clear = frozenset(record.topic_id for name, record in records.items() if not has_replicas(log, name, node_id))
    return RemoveNode(node_id, clear, journals)


def has_journals(log: Log, node_id: NodeId) -> bool:
    """Return whether the cluster's journals are on a node, or some may still be."""
    if log.journal_nodes is None:
        return log.cluster.state.nodes[node_id].url == AT_THE_ROOT
    return node_id in {each.node for each in log.journal_nodes.nodes} | log.cluster.state.journals.holders()


def tell_topics(log: Log, node_id: NodeId) -> None:
    """Tell every topic what the cluster says of a node, where it does not know that yet.

    The cluster's entry comes first, so whoever was cut short between the two does the same again.
    """
    for name in sorted(log.topics()):
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            add_node_to_topic(log.topic(name), node_id)


def add_node_to_topic(handle: TopicHandle, node_id: NodeId) -> None:
    """Tell a topic what the cluster says of a node, where it does not know that yet. Reads nothing."""
    state, member = handle.journal.state, handle.log.cluster.state.nodes[node_id]
    known = state.incarnations.get(node_id)
    if known is not None and (known != member.incarnation or (node_id in state.fenced) != member.fenced):
        handle.submit(AlterReplicaNode(node_id, member.incarnation, member.fenced))


def has_replicas(log: Log, topic: str, node_id: NodeId) -> bool:
    """Return whether a partition of a topic has a replica on a node now."""
    try:
        state = log.topic(topic).journal.state
    except UnknownTopic:
        return False  # it was deleted
    return any(node_id in each.replicas for each in state.partitions)


def _mark(log: Log, store: Store, mine: Marker) -> Marker:
    """Try the store and give it a marker; return the one that it has, which another may have created meanwhile."""
    node.self_test(store, log.environment.nonce())
    store.create(layout.KEY, node.encode(mine))
    found = node.read_marker(store)
    if found is None:
        raise NodeMissing(store.url, layout.KEY, f"the marker of {store.url} vanished; is the disk mounted?")
    return found


def _check_cluster(log: Log, store: Store, marker: Marker) -> None:
    if marker.cluster != log.cluster.state.cluster_id:
        raise _refused(
            f"the store at {store.url} is node {marker.node!r} of another cluster, {marker.cluster}; give an empty "
            "store, or empty this one, its marker too, if that cluster is gone"
        )


def _check_apart(log: Log, url: str) -> None:
    """Raise `InvalidOption` where one address lies in another: keys of one store would be seen in the other."""
    for each in log.cluster.state.nodes.values():
        other = log.store.url if each.url == AT_THE_ROOT else each.url
        if url.startswith(f"{other}/") or other.startswith(f"{url}/"):
            raise _refused(f"{url} and node {each.node_id!r} at {other} lie in one another; give it a place of its own")


def _refused(message: str) -> InvalidOption:
    return InvalidOption("node", message)
