"""The journals of a cluster: the stores that hold them, and how to follow them when they migrate to other stores.

The journals are on the root store alone, or on several journal nodes. Each migration begins a new generation, which is
a new list of journal nodes. During a migration the journal of a topic or a group may still be on the nodes of the
generation before.
"""

from __future__ import annotations

import contextlib
import enum
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.journal_generations import replaced
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.journal import journal_nodes, paxos
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore, SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.journal.registers import journals_behind
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CopiedLog, CorruptObject, InvalidOption, StoreError
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.stores.addresses import is_same_place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.open_stores import OpenStores
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.stores.store import Store


def refusal(here: str, recorded: str, what: str) -> str:
    """Return why nothing is written at an address that the log's own records do not know."""
    return (
        f"the log at {here} is a copy: according to its records, {what} at {recorded}. It can be read, and nothing is "
        "written, deleted or elected. If the log was moved here, run `pyspark-log cluster adopt --moved`; for a log of "
        "its own, `pyspark-log cluster adopt --as-new`, or back this copy up and restore that (`pyspark-log backup`, "
        "`pyspark-log restore --as-new`)"
    )


def _is_any(url: str, known: Collection[str]) -> bool:
    # First without a look at any folder: one whose file server is down would hang.
    return url in known or any(is_same_place(url, each) for each in known)


def _announce_to(nodes: JournalNodes, store: Store) -> None:
    marker = read_marker(store)
    if marker is not None and marker.cluster == nodes.cluster:
        journal_nodes.write(nodes, store)


class _Kind(enum.Enum):
    """What a store is that the user named."""

    JOURNAL_NODE = enum.auto()
    """A present or former one."""
    COPY = enum.auto()
    OTHER = enum.auto()
    """It has no list, does not answer, or was only told where the journals are after it was wiped."""


def _kind_of(store: Store, nodes: JournalNodes) -> _Kind:
    """Find out whether a store is a journal node, or a copy of one: its lists name its node at another address."""
    lists, marker = [], None
    with contextlib.suppress(StoreError, CorruptObject):
        lists, marker = journal_nodes.recorded(store), read_marker(store)
    if _is_any(store.url, [url for each in (nodes, *lists) for url in each.urls]):
        return _Kind.JOURNAL_NODE
    # Without its marker nobody knows what it was, and a copy that is taken for a node acts on the original.
    is_named = marker is None or any(marker.node == known.node for each in lists for known in each.nodes)
    return _Kind.COPY if lists and is_named else _Kind.OTHER


class ClusterJournals:
    """Finds and opens the journals of one cluster."""

    def __init__(self, stores: OpenStores, environment: Environment) -> None:
        """Assume the first root, until `locate` finds journal nodes. Reads nothing."""
        self._stores = stores
        self._environment = environment
        self._generations: dict[int, tuple[JournalNodes, SeveralStores]] = {}
        self._copied: dict[NodeId, int] = {}
        """The journal nodes of which there are copies, with the positions of these among the roots."""
        self.are_located = False
        """Whether it is certain where the journals are."""
        self.cluster = self._cluster_journal(OneStore(stores.roots[0]))

    def locate(self) -> bool:
        """Look for journal nodes, unless it is certain where the journals are; return whether some were found.

        If not, the journals are on the root, or do not exist yet. Raises what `journal_nodes.find` raises.
        """
        nodes = None if self.are_located else journal_nodes.find(self._stores.roots, self._environment)
        if nodes is None:
            return False
        self._look_for_copy(nodes)
        self.cluster = self._cluster_journal(self._place_of(nodes))
        self.are_located = True
        return True

    def _look_for_copy(self, nodes: JournalNodes) -> None:
        """Find out whether the stores that the user named are copies of journal nodes.

        A journal node is known by its address in a list, which may be an older one. Raises `InvalidOption` if only some
        of the stores are copies, `CopiedLog` if these are too few to be read.
        """
        roots = self._stores.roots
        if self._stores.refusal or cluster.AT_THE_ROOT in nodes.urls:
            return
        kinds = self._kinds(nodes)
        copies = [each for each in roots if kinds.get(each.url) is _Kind.COPY]
        if not copies:
            return
        originals = [each.url for each in roots if kinds.get(each.url) is _Kind.JOURNAL_NODE]
        if originals:
            raise InvalidOption(
                "path",
                f"{copies[0].url} is a copy of a journal node, {originals[0]} is not; give the addresses of one log",
            )
        self._stores.become_copy(
            refusal(", ".join(each.url for each in copies), ", ".join(nodes.urls), "its journal nodes are")
        )
        for number, each in enumerate(self._stores.roots):
            marker = None
            with contextlib.suppress(StoreError, CorruptObject):  # the others may suffice
                marker = read_marker(each) if each.url in kinds else None
            for known in nodes.nodes:
                if marker is not None and (marker.cluster, marker.node) == (nodes.cluster, known.node):
                    self._stores.redirect(known.url, number)
                    self._copied[known.node] = number
        if len(self._copied) < paxos.majority(len(nodes.nodes)):
            raise CopiedLog(f"{self._stores.refusal}. Give the addresses of the copies of all journal nodes")

    def _kinds(self, nodes: JournalNodes) -> dict[str, _Kind]:
        """Find out what the stores are that the user named, by address.

        One that does not answer for seconds is left out if another one is known to be a journal node or a copy.
        """
        roots = {each.url: each for each in self._stores.roots}
        kinds = dict.fromkeys(roots.keys() & nodes.urls, _Kind.JOURNAL_NODE)
        threads = self._environment.store_threads("look at")
        for url, each in roots.items():
            if url not in kinds:
                threads.start(url, partial(_kind_of, each, nodes))
        while len(kinds) < len(roots):
            answer = threads.next(journal_nodes.PATIENCE_SECONDS)
            if answer is None:
                if {_Kind.JOURNAL_NODE, _Kind.COPY}.intersection(kinds.values()):
                    break
            elif answer.error is not None:
                raise answer.error
            else:
                kinds[answer.store] = answer.result
        return kinds

    def locate_moved(self, nodes: JournalNodes, roots: Mapping[NodeId, int]) -> None:
        """Use the roots, by their positions, as these journal nodes, whatever addresses the list has for them."""
        for each in nodes.nodes:
            self._stores.redirect(each.url, roots[each.node])
        self.cluster = self._cluster_journal(self._place_of(nodes))
        self.are_located = True

    def look_for_copied_root(self) -> bool:
        """Find out whether the root is a copy of one that has other nodes, once the cluster's journal was read.

        Return whether it is; then the journal must be read again, from a store that refuses writes.
        """
        state, root = self.cluster.state, self._stores.roots[0]
        for node, number in self._copied.items():
            if node in state.nodes:
                self._stores.redirect(state.nodes[node].url, number)
        if self.nodes is not None or self._stores.refusal or not state.has_nodes_elsewhere:
            return False
        if not state.addresses:  # the last version that acted on the log did not record them
            with contextlib.suppress(StoreError):
                state = self.cluster.submit(cluster.RecordAddress(root.url)).state
        if not state.addresses or _is_any(root.url, state.addresses):
            return False
        self._stores.become_copy(refusal(root.url, ", ".join(state.addresses), "its root is"))
        self.cluster = self._cluster_journal(OneStore(self._stores.roots[0], self._stores.refusal))
        return True

    @property
    def refusal(self) -> str:
        """Why nothing is written if the log is a copy; empty if it is not."""
        return self._stores.refusal

    @property
    def place(self) -> JournalPlace:
        """Where the cluster's journal is; during a migration some other journals are in `previous_place`."""
        return self.cluster.place

    @property
    def previous_place(self) -> SeveralStores | None:
        """Where the journals were before the migration that is under way, or None if there is none."""
        journals = self.cluster.state.journals
        if not journals.are_moving:
            return None
        return self._place_of(JournalNodes(self.cluster.state.cluster_id, journals.previous, journals.generation - 1))

    @property
    def nodes(self) -> JournalNodes | None:
        """The journal nodes, or None if the journals are on the root alone."""
        if isinstance(self.place, OneStore):
            return None
        return self._generations[self.place.generation][0]

    @property
    def node_ids(self) -> frozenset[NodeId]:
        """The ids of the journal nodes; none if the journals are on the root alone."""
        return frozenset() if self.nodes is None else frozenset(each.node for each in self.nodes.nodes)

    def of_topic(self, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
        """Return the journal of a topic incarnation without beginning it. Reads nothing.

        During a migration it is opened on the previous stores, unless the topic is known to be new or migrated.
        """
        state = self.cluster.state
        record = state.topics.get(name)
        is_known = record is not None and record.topic_id == topic_id
        has_migrated = is_known and topic_id not in state.journals.waiting
        return self._topic_journal(name, topic_id, self.place if has_migrated else self.previous_place or self.place)

    def of_new_topic(self, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
        """Return the journal of a topic incarnation that began in the newest generation."""
        return self._topic_journal(name, topic_id, self.place)

    def of_group(self, journal_id: str) -> Journal[Group, group.Command]:
        """Return the journal of a group that the cluster knows, without beginning it. Reads nothing."""
        has_migrated = journal_id not in self.cluster.state.journals.waiting
        place = self.place if has_migrated else self.previous_place or self.place
        folder = layout.group_journal(journal_id)
        return Journal(place, folder, group.MACHINE, self._environment, follow=self._follow)

    def missing_nodes(self) -> dict[NodeId, LogError]:
        """Return why journal nodes cannot take part in the journals now, by node id."""
        if self.nodes is None:
            return {}
        assert isinstance(self.place, SeveralStores)
        return journal_nodes.missing(self.nodes, self.place.members, self._environment)

    def failures_tolerated(self, missing: Collection[NodeId]) -> int:
        """Return how many journal nodes may fail, besides the missing ones, before nothing can be read or written."""
        count = len(self.node_ids)
        return max(0, count - len(missing) - paxos.majority(count))

    def replaced_nodes(self) -> list[NodeId]:
        """Return the journal nodes whose stores were replaced: they do not vote until the journals migrate."""
        return [] if self.nodes is None else replaced(self.nodes.nodes, self.cluster.state.nodes)

    def behind(self, journals: Iterable[Journal[Any, Any]]) -> dict[NodeId, int]:
        """Return in how many journals each journal node has no vote in the last slots; nodes without an answer lack.

        Journals that are still on the previous nodes of a migration, or too short to tell, are not counted. The time
        to wait is that of `missing_nodes`, for all of them.
        """
        place = self.place
        newest = {each.folder: each.number for each in journals if each.place is place}
        if isinstance(place, OneStore):
            return {}
        act = partial(journals_behind, newest, place.generation)
        answers = place.members.ask(act, self._environment, int(journal_nodes.PATIENCE_SECONDS * 1000))
        return {place.members.members[each.store].node: each.result for each in answers if each.error is None}

    def announce(self) -> None:
        """Write the present journal nodes on the reachable stores of this generation and of the one before.

        Clients may know only the addresses of the old ones. A store without a marker of the cluster gets no list: its
        disk may not be mounted. Does nothing if the journals never migrated.
        """
        nodes = self.nodes
        if nodes is None or nodes.generation == 1:
            return
        patience_ms = int(journal_nodes.PATIENCE_SECONDS * 1000)
        for place in (self.place, self.previous_place):
            if isinstance(place, SeveralStores):
                members, act = place.members, partial(_announce_to, nodes)
                members.ask(act, self._environment, patience_ms, settled=members.is_majority)

    def _cluster_journal(self, place: JournalPlace) -> Journal[cluster.Cluster, cluster.Command]:
        return Journal(place, layout.CLUSTER_JOURNAL, cluster.MACHINE, self._environment, follow=self._follow_cluster)

    def _topic_journal(self, name: str, topic_id: str, place: JournalPlace) -> Journal[topic.Topic, topic.Command]:
        folder = layout.topic_journal(name, topic_id)
        return Journal(place, folder, topic.MACHINE, self._environment, follow=self._follow)

    def _place_of(self, nodes: JournalNodes) -> SeveralStores:
        """Return the place that these journal nodes form, always the same object. Raises `InvalidOption`."""
        known = self._generations.get(nodes.generation)
        if known is not None and known[0] == nodes:
            return known[1]
        members = [Member(self._stores.at(each.url), each.node, each.incarnation) for each in nodes.nodes]
        threads = self._environment.store_threads("journal store")
        place = SeveralStores(Members(members, threads), nodes.generation, self._stores.refusal)
        self._generations[nodes.generation] = nodes, place
        return place

    def _follow_cluster(self, generation: int) -> JournalPlace:
        """Return where the cluster's journal continues in a generation; see `Journal`.

        If that is its present generation, whose stores do not answer, ask every known store for a later one.
        """
        if self.nodes is None:
            return self.place
        if generation > self.place.generation:
            journals = self.cluster.state.journals
            if generation < journals.generation and (previous := self.previous_place) is not None:
                return previous
            return self._place_of(JournalNodes(self.nodes.cluster, journals.nodes, journals.generation))
        newest = journal_nodes.newest(self._stores.all(), self._environment)
        is_later = newest is not None and newest.cluster == self.nodes.cluster and newest.generation > generation
        return self._place_of(newest) if newest is not None and is_later else self.place

    def _follow(self, generation: int) -> JournalPlace:
        """Return where another journal continues in a generation, or in a later one if it has begun there."""
        if self.nodes is None:
            return self.place
        # The stores of the cluster's journal may be the ones that do not answer: do not wait for them again.
        if generation == self.place.generation and not self.cluster.follow_to(self._follow_cluster(generation)):
            return self.place
        self.cluster.refresh()
        previous = self.previous_place
        return previous if previous is not None and generation <= previous.generation else self.place
