"""Creates a cluster: on one root store, or on several journal nodes.

With several stores, each gets its marker first, then all get the list of journal nodes, then the cluster's journal
begins on them. The marker says that the store is no root, so nobody creates another cluster there meanwhile. Repeating
the call finishes an interrupted creation.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_storage import layout, logs
from pyspark_log_storage.errors import InvalidOption, NoCluster, NodeMissing
from pyspark_log_storage.layout import JOURNAL_NODES
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.cluster_journals import ClusterJournals
    from pyspark_log_storage.stores.store import Store

OPTION = "journal-nodes"
FIRST_NODE = "0"


def mark(stores: Sequence[Store], environment: Environment) -> JournalNodes:
    """Test the stores and make them journal nodes "0", "1" and so on of one cluster, unless they are already.

    Raises `InvalidOption` if there are too few stores or one belongs to another cluster; `NoCluster` if files of a lost
    one are in it; `StoreUnfit`, `StoreError`.
    """
    _check(stores)
    lists = [journal_nodes.read(store) for store in stores]  # first: whoever wrote one had written all markers
    markers = [node.read_marker(store) for store in stores]
    cluster_id = next((marker.cluster for marker in markers if marker is not None), environment.nonce())
    for number, (store, marker) in enumerate(zip(stores, markers, strict=True)):
        if marker is not None:
            _check_marker(store, marker, cluster_id, str(number))
    _check_lists(stores, lists, markers)
    for store, marker in zip(stores, markers, strict=True):
        if marker is None:
            remains = _remains(store)
            if remains:
                raise NoCluster(_over_remains(store, remains))
            self_test(store, environment.nonce(), environment.store_threads)
    members = []
    for number, store in enumerate(stores):
        marker = create_marker(store, Marker(cluster_id, str(number), environment.nonce()))
        _check_marker(store, marker, cluster_id, str(number))
        members.append(JournalNode(marker.node, store.url, marker.incarnation))
    nodes = JournalNodes(cluster_id, tuple(members))
    for store in stores:
        if not store.create(JOURNAL_NODES, journal_nodes.encode(nodes)):
            listed = journal_nodes.read(store)
            if listed != nodes:
                raise _of_another(store, listed)
    return nodes


def begin(journals: ClusterJournals, environment: Environment) -> None:
    """Begin the cluster's journal with one entry that names its first nodes: the journal nodes, or the root.

    Raises what `check_place` raises, and `StoreUnfit` if the root fails its self-test.
    """
    check_place(journals)
    if journals.nodes is not None:
        members = tuple(Node(member.node, member.url, "", member.incarnation) for member in journals.nodes.nodes)
        journals.cluster.submit(cluster.StartCluster(journals.nodes.cluster, members))
        return
    root = journals.place.stores[0]
    marker = node.read_marker(root)
    if marker is None:
        self_test(root, environment.nonce(), environment.store_threads)
        marker = create_marker(root, Marker(environment.nonce(), FIRST_NODE, environment.nonce(), root=True))
        _check_root(root, marker)  # another process may have been first
    first = Node(marker.node, AT_THE_ROOT, "", marker.incarnation)
    if journals.cluster.submit(cluster.StartCluster(marker.cluster, (first,))).events:
        logs.warning(
            "created a new log at %(url)s (cluster %(cluster)s); if you expected an existing log there, mount its disk",
            url=root.url,
            cluster=marker.cluster,
        )


def check_place(journals: ClusterJournals) -> None:
    """Raise `NoCluster` unless a cluster may begin where none was found: in stores that have nothing of another one."""
    if journals.nodes is None:
        root = journals.place.stores[0]
        _check_root(root, node.read_marker(root))
    for store in journals.place.stores:
        remains = _remains(store)
        if remains and not journals.cluster.refresh().cluster_id:  # another process may have begun it just now
            raise NoCluster(_over_remains(store, remains))


def _check_root(store: Store, marker: Marker | None) -> None:
    """Raise `NoCluster` if the store is a node of a cluster whose root is elsewhere."""
    if marker is not None and not marker.root:
        raise NoCluster(
            f"the store at {store.url} is node {marker.node!r} of cluster {marker.cluster}, not a root; give the "
            "address of that cluster's root or journal nodes, or repeat `pyspark-log cluster create` if it was "
            "interrupted"
        )


def _remains(store: Store) -> str | None:
    """Return the key of a file that only a log leaves behind, if there is one. Journals know their own gaps."""
    return next((key for folder in (layout.TOPICS, layout.GROUPS, layout.BACKUPS) for key in store.list(folder)), None)


def _over_remains(store: Store, remains: str) -> str:
    return (
        f"there is no log at {store.url}, but what is left of one, such as {remains}: its cluster's journal is "
        "missing, and a new log over it would hide its rows. If the journal is on a disk that is not mounted, mount "
        "it; if it was deleted, put it back, or make a log of these files (pyspark-log cluster rebuild --nodes "
        "ADDRESS,... with the addresses of all nodes); if a restore or a rebuild was interrupted, repeat it. To begin "
        "anew, choose another address, or delete what is there"
    )


def create_marker(store: Store, marker: Marker) -> Marker:
    """Create a store's marker; return the stored one, which another process may have created first."""
    store.create(layout.MARKER, node.encode(marker))
    stored = node.read_marker(store)
    if stored is None:
        raise NodeMissing(store.url, layout.MARKER, f"the marker of {store.url} vanished; is the disk mounted?")
    reserve.fill(store)
    return stored


def _check(stores: Sequence[Store]) -> None:
    urls = [store.url for store in stores]
    if len(urls) < journal_nodes.LEAST:
        raise _refused(
            f"need at least {journal_nodes.LEAST} (3 tolerate the failure of one, 5 of two); got {len(urls)}"
        )
    for url, other in itertools.combinations(urls, 2):
        if url == other:
            raise _refused(f"{url} is given twice; use a store of its own for each")
        if overlap(url, other):
            raise _refused(f"{url} and {other} overlap: one contains the other; use separate directories")


def overlap(url: str, other: str) -> bool:
    """Return whether one of two addresses contains the other, so that keys of one store would appear in the other."""
    inner, outer = sorted(f"{address}/" for address in (url, other))
    return inner != outer and outer.startswith(inner)


def _check_marker(store: Store, marker: Marker, cluster_id: str, expected: str) -> None:
    if (marker.cluster, marker.node) != (cluster_id, expected) or marker.root:
        raise _refused(
            f"the store at {store.url} is already node {marker.node!r} of cluster {marker.cluster}; use an empty one, "
            "or delete everything in this one, with its marker, if that cluster no longer exists"
        )


def _check_lists(
    stores: Sequence[Store], lists: Sequence[JournalNodes | None], markers: Sequence[Marker | None]
) -> None:
    """Raise `InvalidOption` if a store has a list of other journal nodes than the markers name.

    Every store had its marker before the first list was written. One that has lost it has lost its votes, too: with
    another marker in another list it would vote again, and entries that were decided could be decided otherwise.
    """
    incarnations = [None if marker is None else marker.incarnation for marker in markers]
    for store, listed in zip(stores, lists, strict=True):
        if listed is None:
            continue
        if listed.generation > 1 or listed.urls != tuple(store.url for store in stores):
            raise _of_another(store, listed)
        for member, incarnation in zip(listed.nodes, incarnations, strict=True):
            if member.incarnation != incarnation:
                raise _refused(
                    f"according to {store.url} they are already, and {member.url} is another disk than that of node "
                    f"{member.node!r}, or was wiped: is it mounted? If it is lost, use `pyspark-log nodes renew "
                    f"{member.node}` and `pyspark-log cluster migrate-journals`"
                )


def _of_another(store: Store, listed: JournalNodes | None) -> InvalidOption:
    urls = "none" if listed is None else ", ".join(listed.urls)
    return _refused(f"{store.url} is a journal node of a cluster whose journals are at {urls}")


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(OPTION, f"these stores cannot be journal nodes: {reason}")
