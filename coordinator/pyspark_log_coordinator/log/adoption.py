"""Adoption: an operator says that the folders of a log were moved, and are the original at their new addresses.

The new address of a root is an entry of the cluster's journal. Those of journal nodes are in one, too, and in lists on
their stores, which are replaced one after the other. Nodes and incarnations stay, so that everything that the stores
decided counts as before. The call finishes what an interrupted one has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, RenewNode, RenewTogether
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_storage.errors import InvalidOption, LogMoved, NoCluster
from pyspark_log_storage.objects.node import read_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.cluster.cluster_state import Cluster
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store

OPTION = "moved"


class MovedLog:
    """A log in its root, or in all its journal nodes, at whatever addresses these are now."""

    def __init__(self, stores: Sequence[Store], log: Log) -> None:
        """Read what it has recorded. `log` is that of the stores, and not open yet.

        Raises `InvalidOption` if the stores are not all journal nodes of one log; `NoCluster`, `StoreError`.
        """
        self._stores, self._log = stores, log
        lists = [listed for listed in map(journal_nodes.read, stores) if listed is not None]
        self._recorded = max(lists, key=lambda listed: listed.generation, default=None)
        self._present: dict[NodeId, RenewNode] = {}
        """Where each journal node is."""
        if self._recorded is None:
            log.locate()
        else:
            self._present = _present(self._recorded, stores)
            moved = (
                msgspec.structs.replace(member, url=self._present[member.node].url) for member in self._recorded.nodes
            )
            self._moved = msgspec.structs.replace(self._recorded, nodes=tuple(moved))
            log.journals.locate_at(self._moved)
        try:
            state = log.cluster.refresh()
        except LogMoved as error:
            raise InvalidOption(
                OPTION,
                "the journals were moved to other nodes, or were being moved when the log was: give the addresses of "
                "the newest journal nodes; if some journals did not get there, open the log at the former addresses, "
                "and move it again",
            ) from error
        if not state.cluster_id:
            raise NoCluster(f"there is no log at {log.journals.place.url}; check the path")
        self._check(state)
        self.cluster_id = state.cluster_id
        self.was = state.address if self._recorded is None else ", ".join(self._recorded.urls)
        """Where it was; empty if it never had a node besides its root."""
        others = (node.url for node in state.nodes.values() if node.node_id not in self._present)
        self.elsewhere = tuple(url for url in others if url != AT_THE_ROOT)
        """The addresses of its nodes that have no journals. They stay where they are."""

    def record(self) -> bool:
        """Record the present addresses. Return whether that changes anything."""
        if self._recorded is None:
            return bool(self._log.cluster.submit(cluster.MoveCluster(self._log.store.url)).events)
        # The journal comes first: a store opens with its new list, and then nothing must name the former addresses.
        done = self._log.cluster.submit(RenewTogether(tuple(self._present.values()))).events
        return any([bool(done), *[journal_nodes.replace(self._moved, store) for store in self._stores]])

    def _check(self, state: Cluster) -> None:
        for node in self._present.values():
            if node.node_id in state.nodes and state.nodes[node.node_id].incarnation != node.incarnation:
                raise InvalidOption(
                    OPTION,
                    f"the store at {node.url} is not the present one of journal node {node.node_id!r}, whose disk was "
                    "replaced; give the address of that one",
                )


def _present(nodes: journal_nodes.JournalNodes, stores: Sequence[Store]) -> dict[NodeId, RenewNode]:
    """Return where each journal node is.

    One that was renewed has another incarnation than in the list: it does not vote until the journals migrate.
    """
    former = {member.node: member.url for member in nodes.nodes}
    present = {}
    for store in stores:
        marker = read_marker(store)
        if marker is None or marker.cluster != nodes.cluster or marker.node not in former:
            raise InvalidOption(OPTION, f"{store.url} is not a journal node of cluster {nodes.cluster}")
        present[marker.node] = RenewNode(marker.node, store.url, marker.incarnation)
    absent = [f"{node!r}, which was at {url}" for node, url in former.items() if node not in present]
    if absent:
        raise InvalidOption(
            OPTION, f"the address of journal node {', '.join(absent)}, is not given; give those of all of them"
        )
    return present
