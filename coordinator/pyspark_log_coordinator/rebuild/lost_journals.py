"""The nodes given for a rebuild, proof that the cluster's journal cannot be read, and where the new journals will be.

Two clusters that continue with the same offsets could never be merged again. So a cluster with a readable journal is
refused, and the survey says if a journal may be alive on nodes that were not given.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, Member, OneStore, SeveralStores
from pyspark_log_coordinator.log.bootstrap import FIRST_NODE
from pyspark_log_coordinator.model.partition import NodeId, by_number, named
from pyspark_log_coordinator.rebuild import folder_scan
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, InvalidOption, LogError, LogMoved, NewerFormat, ObjectMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment

_PATIENCE_MS = 2_000
"""How long to look for a journal on several stores that do not answer."""


class GivenNode(msgspec.Struct, frozen=True):
    """A store, and the marker that says which node it is."""

    store: Store
    marker: Marker
    has_marker: bool = True
    """False if it is lost: `marker` is that of a new cluster, and the store has none."""

    @property
    def node_id(self) -> NodeId:
        return self.marker.node


def identify(stores: Sequence[Store], environment: Environment) -> tuple[GivenNode, ...]:
    """Return the nodes of the stores, in order. Raises `InvalidOption` if two are one node, or of two clusters.

    One that is given alone may have lost its marker together with the journal, such as to a rule of a bucket that
    deletes old objects: its topics become those of a new cluster.
    """
    found: dict[NodeId, GivenNode] = {}
    for store in stores:
        marker = node.read_marker(store)
        if marker is None and len(stores) == 1 and any(store.list(layout.TOPICS)):
            return (GivenNode(store, Marker(environment.nonce(), FIRST_NODE, environment.nonce()), has_marker=False),)
        if marker is None:
            raise refusal(
                f"the store at {store.url} has no marker: it is not a node, or its disk is not mounted; mount it, or "
                "leave it out"
            )
        if marker.node in found:
            other = found[marker.node].store.url
            raise refusal(f"{other} and {store.url} are both node {marker.node!r}; give the one that was in use last")
        found[marker.node] = GivenNode(store, marker)
    if not found:
        raise refusal("no nodes given; give the addresses of all nodes that are left")
    first = next(iter(found.values()))
    for each in found.values():
        if each.marker.cluster != first.marker.cluster:
            raise refusal(
                f"{first.store.url} is a node of cluster {first.marker.cluster}, and {each.store.url} of cluster "
                f"{each.marker.cluster}; give the nodes of one cluster"
            )
    return tuple(found[name] for name in sorted(found, key=by_number))


def refusal(message: str) -> InvalidOption:
    return InvalidOption("nodes", message)


class LostJournals:
    """What the given nodes know of the cluster's journals."""

    def __init__(self, given: Sequence[GivenNode]) -> None:
        self._given = given
        self._known: dict[NodeId, JournalNodes | None] = {each.node_id: _journal_nodes(each.store) for each in given}
        """The journal nodes that each node names; None if it names none: they were at the root."""
        self._lists = sorted(filter(None, self._known.values()), key=lambda each: each.generation, reverse=True)
        """The newest first: a node that was away during a migration names former journal nodes."""

    @property
    def generation(self) -> int:
        """The generation of new journals on several stores: one that no node knows, or 1 if they were at the root.

        A node that was not given and returns later names an older one.
        """
        return self._newest_named + 1 if self._lists else 1

    @property
    def _newest_named(self) -> int:
        """The newest generation that a node or a journal names."""
        return self._lists[0].generation if self._lists else 1

    @property
    def newest(self) -> int:
        """The largest number of an entry in the remains of the cluster's journal."""
        journal = layout.CLUSTER_JOURNAL
        return max(folder_scan.newest_in(journal, each.store.list(journal)) for each in self._given)

    def stores_to_begin_on(self, urls: Sequence[str]) -> tuple[Store, ...]:
        """Return the stores of the new journals: those at `urls`, or if it is empty, where the journals were.

        Raises `InvalidOption`.
        """
        by_url = {each.store.url: each.store for each in self._given}
        for url in urls:
            if url not in by_url:
                raise refusal(f"the journals cannot be at {url}: it is not one of the given nodes")
        if urls:
            count = len(set(urls))
            if 1 < count < journal_nodes.LEAST:
                raise refusal(
                    f"need one journal node, or at least {journal_nodes.LEAST} to tolerate a failure; got {count}"
                )
            return tuple(by_url[url] for url in dict.fromkeys(urls))
        for nodes in self._lists:
            if all(each.node in self._known for each in nodes.nodes):
                by_id = {each.node_id: each.store for each in self._given}
                return tuple(by_id[each.node] for each in nodes.nodes)
        return (next((each.store for each in self._given if each.marker.root), self._given[0].store),)

    def refuse_readable(self, environment: Environment, open_node: Callable[[str], Store]) -> None:
        """Raise `InvalidOption` if the cluster's journal can be read, where a node names it or where it migrated to.

        Otherwise note where it migrated to, which the nodes may not name yet.
        A journal node is known by its marker: its folder may have been moved or copied to the address that was given.
        """
        here = {(each.node_id, each.marker.incarnation): each.store for each in self._given}
        newest_named = self._newest_named
        addresses: dict[str, str] = {}
        """The addresses that the journal names, of given nodes that are at others."""

        def place_of(nodes: Sequence[JournalNode], generation: int) -> JournalPlace:
            members = [
                Member(here.get((one.node, one.incarnation)) or open_node(one.url), one.node, one.incarnation)
                for one in nodes
            ]
            addresses.update((each.store.url, one.url) for each, one in zip(members, nodes, strict=True))
            return SeveralStores(members, environment, generation, _PATIENCE_MS)

        def journal_at(place: JournalPlace) -> Journal[Cluster, cluster.Command]:
            journal = Journal(place, layout.CLUSTER_JOURNAL, cluster.MACHINE)
            with contextlib.suppress(LogMoved):
                journal.refresh()
            return journal

        for each in self._given:
            nodes = self._known[each.node_id]
            place = OneStore(each.store, environment) if nodes is None else place_of(nodes.nodes, nodes.generation)
            try:
                journal = journal_at(place)
                while journal.has_ended:
                    moved = journal.state.journals
                    if moved.generation > self._newest_named:
                        self._lists.insert(0, JournalNodes(journal.state.cluster_id, moved.nodes, moved.generation))
                    there = journal_at(place_of(moved.nodes, moved.generation))
                    if not there.state.cluster_id and moved.generation > newest_named:
                        break  # who opens the log finishes the move
                    journal = there
            except NewerFormat:
                raise
            except (CorruptObject, ObjectMissing):
                continue  # it exists, but cannot be used
            except LogError:
                if nodes is None:
                    raise
                continue  # no majority of the journal nodes answers
            if journal.state.cluster_id:
                moves = [f"mount {given} at {known}" for given, known in addresses.items() if given != known]
                advice = "Use `pyspark-log nodes renew` to bring back a node that was wiped"
                if moves:
                    advice = f"The cluster finds its nodes by their addresses: {'; '.join(moves)}"
                raise refusal(
                    f"the journal of cluster {journal.state.cluster_id} at {journal.place.url} can be read: there is "
                    f"nothing to rebuild. {advice}"
                )

    @property
    def may_live(self) -> str | None:
        """Why a journal may be alive on nodes that were not given, or None if it cannot be."""
        if any(each.marker.root for each in self._given):
            return None
        if not self._lists:
            return "none of the given nodes is known to have had the journals"
        newest = self._lists[0].nodes
        absent = [each for each in newest if each.node not in self._known]
        # The given nodes do not count for the old journals any more, once they have new incarnations.
        if len(absent) <= len(newest) // 2:
            return None
        urls = ", ".join(each.url for each in absent)
        nodes = named({each.node for each in absent})
        return f"the journals were also at {urls} (node {nodes}), of which nothing is given"


def _journal_nodes(store: Store) -> JournalNodes | None:
    with contextlib.suppress(CorruptObject):
        return journal_nodes.read(store)
    return None
