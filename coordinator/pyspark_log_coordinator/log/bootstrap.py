"""Founding: a cluster whose journals live on several stores from the beginning.

Each store gets its marker first, then all get the list of journal nodes, then the cluster's journal begins on them. The
marker says that the store is no root by itself, so nobody begins another cluster there meanwhile. What was cut short is
finished by the same call again.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import InvalidOption, NodeMissing
from pyspark_log_storage.layout import JOURNAL_NODES
from pyspark_log_storage.node import Marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_storage.store import Store

OPTION = "journal-nodes"


def mark(stores: Sequence[Store], environment: Environment) -> JournalNodes:
    """Try the stores and make them journal nodes "0", "1" and so on of one cluster, or find that they are.

    Raises `InvalidOption` where there are too few, or one belongs to another cluster; `StoreUnfit`, `StoreError`.
    """
    _check(stores)
    markers = [node.read_marker(store) for store in stores]
    cluster_id = next((marker.cluster for marker in markers if marker is not None), environment.nonce())
    for number, (store, marker) in enumerate(zip(stores, markers, strict=True)):
        if marker is not None:
            _check_marker(store, marker, cluster_id, str(number))
    for store, marker in zip(stores, markers, strict=True):
        if marker is None:
            node.self_test(store, environment.nonce())
    members = []
    for number, store in enumerate(stores):
        store.create(layout.KEY, node.encode(Marker(cluster_id, str(number), environment.nonce())))
        marker = node.read_marker(store)
        if marker is None:
            raise NodeMissing(store.url, layout.KEY, f"the marker of {store.url} vanished; is the disk mounted?")
        _check_marker(store, marker, cluster_id, str(number))
        members.append(JournalNode(marker.node, store.url, marker.incarnation))
    nodes = JournalNodes(cluster_id, tuple(members))
    for store in stores:
        if not store.create(JOURNAL_NODES, journal_nodes.encode(nodes)):
            found = journal_nodes.read(store)
            if found != nodes:
                urls = ", ".join(found.urls) if found is not None else "none"
                raise _refused(f"{store.url} is a journal node of a cluster whose journals are at {urls}")
    return nodes


def begin(journal: Journal[cluster.Cluster, cluster.Command], nodes: JournalNodes) -> None:
    """Begin the cluster's journal, with its journal nodes: one entry, so nobody finds some of them."""
    members = tuple(cluster.Node(each.node, each.url, "", each.incarnation) for each in nodes.nodes)
    journal.submit(cluster.StartCluster(nodes.cluster, members))


def _check(stores: Sequence[Store]) -> None:
    urls = [store.url for store in stores]
    if len(urls) < journal_nodes.LEAST:
        raise _refused(
            f"{len(urls)} of them cannot do without one: {journal_nodes.LEAST} survive the loss of one, 5 of two"
        )
    for url, other in itertools.permutations(urls, 2):
        if f"{other}/".startswith(f"{url}/"):
            raise _refused(f"{url} and {other} are one place, or lie in one another, and would be lost together")


def _check_marker(store: Store, marker: Marker, cluster_id: str, wanted: str) -> None:
    if (marker.cluster, marker.node) != (cluster_id, wanted) or marker.root:
        raise _refused(
            f"the store at {store.url} is node {marker.node!r} of the cluster {marker.cluster} already; give an empty "
            "one, or empty this one, its marker too, if that cluster is gone"
        )


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(OPTION, f"these cannot be journal nodes: {reason}")
