"""Adoption: an operator says that a copy of a log is that log now, because the log was moved.

On one root this is an entry of the cluster's journal, with the new address. The addresses of journal nodes are in the
journal, and in lists on their stores, which are replaced one after the other. Nodes and incarnations stay, so that
everything that the stores decided counts as before. The call finishes what an interrupted one has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.nodes import RenewNode, RenewTogether
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_storage.errors import CopiedLog, InvalidOption, NoCluster
from pyspark_log_storage.objects.node import read_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store

OPTION = "moved"


class Records(msgspec.Struct, frozen=True):
    """What the records of a log, or of a copy, say about it."""

    cluster: str
    addresses: tuple[str, ...]
    """Where its journals are; none if it never had a node besides its root."""
    elsewhere: tuple[str, ...]
    """The addresses of its nodes that have no journals. A copy that is made the log itself uses the same ones."""


def records(stores: Sequence[Store], log: Log) -> Records:
    """Return what the records in these stores say, the root or all journal nodes. `log` is theirs, and not open yet.

    Raises `InvalidOption`, `NoCluster`, `StoreError`.
    """
    nodes, _ = _locate(stores, log)
    state = log.cluster.refresh()
    if not state.cluster_id:
        raise NoCluster(f"there is no log at {log.journals.place.url}; check the path")
    others = [each for each in state.nodes.values() if each.node_id not in log.journals.node_ids]
    elsewhere = tuple(each.url for each in others if each.url != cluster.AT_THE_ROOT)
    return Records(state.cluster_id, state.addresses if nodes is None else nodes.urls, elsewhere)


def adopt(stores: Sequence[Store], log: Log, *, keep: bool = False) -> bool:
    """Make the log in these stores, its root or all its journal nodes, the log itself. Return whether that is new.

    With `keep` the root can be used at its other addresses, too. `log` is theirs, and not open yet. Raises
    `InvalidOption`, `CopiedLog`, `StoreError`.
    """
    nodes, present = _locate(stores, log)
    if nodes is None:
        return bool(log.cluster.submit(cluster.MoveCluster(log.store.url, keep)).events)
    if keep:
        raise InvalidOption("same-storage", "the addresses of journal nodes must be the same for every process")
    if log.cluster.refresh().journals.are_moving:
        raise CopiedLog(
            "the journals were being migrated when this copy was made, and some may not be in it; finish the "
            "migration of the original with `pyspark-log cluster migrate-journals`, and copy it again"
        )
    # The journal comes first: with a new list, a store is no copy, and the journal must not name the former addresses.
    done = log.cluster.submit(RenewTogether(tuple(present[each.node] for each in nodes.nodes))).events
    moved = tuple(msgspec.structs.replace(each, url=present[each.node].url) for each in nodes.nodes)
    listed = msgspec.structs.replace(nodes, nodes=moved)
    return any([bool(done), *[journal_nodes.replace(listed, each) for each in stores]])


def _locate(stores: Sequence[Store], log: Log) -> tuple[JournalNodes | None, dict[NodeId, RenewNode]]:
    """Let `log` find its journals in these stores. Return the journal nodes, and what says where each is now.

    One that was renewed has another incarnation than in the list: it does not vote until the journals migrate.
    """
    lists = [each for each in map(journal_nodes.read, stores) if each is not None]
    if not lists:
        log.locate()
        return None, {}
    newest = max(lists, key=lambda each: each.generation)
    names = {each.node for each in newest.nodes}
    places: dict[NodeId, int] = {}
    present: dict[NodeId, RenewNode] = {}
    for number, store in enumerate(stores):
        marker = read_marker(store)
        if marker is None or marker.cluster != newest.cluster or marker.node not in names:
            raise InvalidOption(OPTION, f"{store.url} is not a journal node of cluster {newest.cluster}, nor its copy")
        places[marker.node] = number
        present[marker.node] = RenewNode(marker.node, store.url, marker.incarnation)
    absent = [each for each in newest.nodes if each.node not in places]
    if absent:
        named = ", ".join(f"{each.node!r}, which was at {each.url}" for each in absent)
        raise InvalidOption(OPTION, f"the address of journal node {named}, is not given; give those of all of them")
    log.journals.locate_moved(newest, places)
    nodes = log.cluster.refresh().nodes
    for each in present.values():
        if each.node_id in nodes and nodes[each.node_id].incarnation != each.incarnation:
            raise InvalidOption(
                OPTION,
                f"the store at {each.url} is not the present one of journal node {each.node_id!r}, whose disk was "
                "replaced; give the address of that one",
            )
    return newest, present
