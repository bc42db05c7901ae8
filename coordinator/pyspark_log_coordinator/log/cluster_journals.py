"""The journals of a cluster, and the stores that hold them: the root alone, or several journal nodes.

Each move of the journals begins a new generation, which is a new list of journal nodes (`journal_move`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.journal_stores import replaced
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.journal import journal_nodes, paxos
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, Member, OneStore, SeveralStores
from pyspark_log_coordinator.journal.registers import journals_behind
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CopiedLog, CorruptObject, LogError, StoreUnfit
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.stores.addresses import is_same_place
from pyspark_log_storage.stores.self_test import check_condition
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store

CHECK_EVERY_SECONDS = 24 * 60 * 60.0
"""How often `check_stores` does something."""
PATIENCE_MS = 5000
"""How long to wait for journal nodes that do not answer."""
CHECK_PATIENCE_MS = 2000
"""How long it waits for the answers of several stores."""


class OpenStores:
    """The stores that a process has opened, by their addresses, so that each is opened once."""

    def __init__(self, roots: Sequence[Store], open_store: Callable[[str], Store]) -> None:
        self.roots = tuple(roots)
        """The stores that the user named."""
        self._open_store = open_store
        self._opened = {store.url: store for store in roots}

    def at(self, url: str) -> Store:
        """Return the store at an address. Reads nothing.

        Raises `InvalidOption`, and `CorruptObject` for a node at the root of a cluster that has journal nodes instead.
        """
        if url == AT_THE_ROOT:
            raise CorruptObject(f"the cluster at {self.roots[0].url}", f"a node's address is {url!r}")
        if url not in self._opened:
            self._opened[url] = self._open_store(url)
        return self._opened[url]

    def all(self) -> tuple[Store, ...]:
        return tuple(self._opened.values())


class ClusterJournals:
    """Finds and opens the journals of one cluster."""

    def __init__(self, stores: OpenStores, environment: Environment) -> None:
        """Assume the first root, until `locate` finds journal nodes. Reads nothing."""
        self._stores = stores
        self._environment = environment
        self._generations: dict[int, tuple[JournalNodes, SeveralStores]] = {}
        self.are_located = False
        """Whether it is certain where the journals are."""
        self._check_due = -float("inf")
        """When to check the stores next, by the monotonic clock."""
        self.cluster = self.cluster_at(OneStore(stores.roots[0], environment))

    def locate(self) -> bool:
        """Look for journal nodes, unless it is certain where the journals are; return whether some were found.

        If not, the journals are on the root, or do not exist yet. Raises what `journal_nodes.find` raises.
        """
        nodes = None if self.are_located else journal_nodes.find(self._stores.roots, self._environment)
        if nodes is None:
            return False
        self.locate_at(nodes)
        return True

    def locate_at(self, nodes: JournalNodes) -> None:
        """Use these journal nodes, whatever the lists on their stores say."""
        self.cluster = self.cluster_at(self.place_of(nodes))
        self.are_located = True

    def locate_later(self) -> bool:
        """Use the newest list on any known store, if it is later than the present one; return whether it is.

        A process that knows former journal nodes finds the present ones, although those do not answer any more.
        """
        if self.nodes is None:
            return False
        newest = journal_nodes.newest(self._stores.all(), self._environment)
        if newest is None or newest.cluster != self.nodes.cluster or newest.generation <= self.nodes.generation:
            return False
        self.locate_at(newest)
        return True

    def check_root_address(self) -> None:
        """Raise `CopiedLog` if the root, which has other nodes, is at another address than it has recorded.

        The cluster's journal was read.
        """
        state, here = self.cluster.state, self._stores.roots[0].url
        if self.nodes is None and state.has_nodes_elsewhere and not is_same_place(here, state.address):
            raise CopiedLog(here, state.address)

    def check_stores(self) -> None:
        """Check, once a day, that the object stores with the journals still create an object only once.

        Somebody may have switched on the versioning of a bucket since they joined, and there are servers that then
        ignore the condition of `create`: two writers would get the same offsets. Folders are not tried again: what a
        file system can do does not change. A store that does not answer is left to the next check, and so is one that
        this process may not write to. Raises `StoreUnfit`.
        """
        place, now = self.place, self._environment.monotonic()
        if now < self._check_due or not any(map(is_object_store, place.stores)):
            return
        nonce = self._environment.nonce()

        def try_one(store: Store) -> None:
            if is_object_store(store):
                check_condition(store, nonce)

        for answer in place.ask(try_one, patience_ms=CHECK_PATIENCE_MS, settled=place.is_majority):
            if isinstance(answer.error, StoreUnfit):
                raise answer.error
        self._check_due = now + CHECK_EVERY_SECONDS

    @property
    def place(self) -> JournalPlace:
        return self.cluster.place

    @property
    def nodes(self) -> JournalNodes | None:
        """The journal nodes, or None if the journals are on the root alone."""
        if isinstance(self.place, OneStore):
            return None
        return self._generations[self.place.generation][0]

    def of_topic(self, name: str, topic_id: str) -> Journal[Topic, topic.Command]:
        """Return the journal of a topic incarnation without beginning it. Reads nothing."""
        return Journal(self.place, layout.topic_journal(name, topic_id), topic.MACHINE)

    def of_group(self, journal_id: str) -> Journal[Group, group.Command]:
        """Return the journal of a group that the cluster knows, without beginning it. Reads nothing."""
        return Journal(self.place, layout.group_journal(journal_id), group.MACHINE)

    def cluster_at(self, place: JournalPlace) -> Journal[Cluster, cluster.Command]:
        """Return the cluster's journal in a place. Reads nothing."""
        return Journal(place, layout.CLUSTER_JOURNAL, cluster.MACHINE)

    def missing_nodes(self) -> dict[NodeId, LogError]:
        """Return why journal nodes cannot take part in the journals now, by node id.

        `CorruptObject` for a list of journal nodes that `announce` would replace, or for a damaged marker.
        """
        place, nodes = self.place, self.nodes
        if isinstance(place, OneStore) or nodes is None:
            return {}

        def look(store: Store) -> None:
            found = journal_nodes.read(store)
            if found is None:
                raise CorruptObject(f"{store.url}/{layout.JOURNAL_NODES}", "it is missing")
            urls = ", ".join(found.urls)
            if found.generation < nodes.generation:
                raise CorruptObject(f"{store.url}/{layout.JOURNAL_NODES}", f"it names former journal nodes: {urls}")
            if (found.generation, found.nodes) != (nodes.generation, nodes.nodes):
                raise CopiedLog(store.url, urls)

        errors = {each.store: each.error for each in place.ask(look, patience_ms=PATIENCE_MS)}
        silent = f"no answer within {PATIENCE_MS // 1000} s"
        found = {
            each.node: errors.get(position, place.unavailable(position, silent))
            for position, each in enumerate(nodes.nodes)
        }
        return {name: error for name, error in found.items() if isinstance(error, LogError)}

    def failures_tolerated(self, missing: Collection[NodeId]) -> int:
        """Return how many journal nodes may fail, besides the missing ones, before nothing can be read or written."""
        count = 0 if self.nodes is None else len(self.nodes.nodes)
        return max(0, count - len(missing) - paxos.majority(count))

    def replaced_nodes(self) -> list[NodeId]:
        """Return the journal nodes whose stores were replaced: they do not vote until the journals migrate."""
        return [] if self.nodes is None else replaced(self.nodes.nodes, self.cluster.state.nodes)

    def behind(self, journals: Iterable[Journal[Any, Any]]) -> dict[NodeId, int]:
        """Return in how many journals each journal node has no vote in the last slots; nodes without an answer lack.

        Journals that are too short to tell are not counted. The time to wait is that of `missing_nodes`, for all of
        them.
        """
        place = self.place
        newest = {journal.folder: journal.number for journal in journals if journal.place is place}
        if isinstance(place, OneStore):
            return {}
        act = partial(journals_behind, newest, place.generation)
        answers = place.ask(act, patience_ms=PATIENCE_MS)
        return {place.members[answer.store].node: answer.result for answer in answers if answer.error is None}

    def announce(self, former: JournalPlace | None = None) -> list[str]:
        """Write the present journal nodes on those of their stores, and of the `former` ones, that can be reached.

        Return the lists that were missing, damaged or older, with their addresses. Clients may know only the addresses
        of the former ones. A store without its marker gets no list: its disk may not be mounted, or it begins anew.
        """
        nodes = self.nodes
        if nodes is None:
            return []
        places = [each for each in (self.place, former) if isinstance(each, SeveralStores)]
        incarnations = {member.incarnation for each in places for member in each.members}
        written: list[Store] = []

        def announce_to(store: Store) -> bool:
            marker = read_marker(store)
            return marker is not None and marker.incarnation in incarnations and journal_nodes.write(nodes, store)

        for place in places:
            answers = place.ask(announce_to, patience_ms=PATIENCE_MS, settled=place.is_majority)
            written += [place.stores[each.store] for each in answers if each.error is None and each.result]
        return [f"{store.url}/{layout.JOURNAL_NODES}" for store in written]

    def place_of(self, nodes: JournalNodes) -> SeveralStores:
        """Return the place that these journal nodes form, always the same object. Raises `InvalidOption`."""
        known = self._generations.get(nodes.generation)
        if known is not None and known[0].nodes == nodes.nodes:
            return known[1]
        members = [Member(self._stores.at(member.url), member.node, member.incarnation) for member in nodes.nodes]
        place = SeveralStores(members, self._environment, nodes.generation)
        self._generations[nodes.generation] = nodes, place
        return place
