"""The journals of a cluster: the stores that hold them, and how to follow them when they migrate to other stores.

The journals are on the root store alone, or on several journal nodes. Each migration begins a new generation, which is
a new list of journal nodes. During a migration the journal of a topic or a group may still be on the nodes of the
generation before.
"""

from __future__ import annotations

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
from pyspark_log_storage.errors import CopiedLog
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.stores.addresses import is_same_place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.open_stores import OpenStores
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.stores.store import Store


def _announce_to(nodes: JournalNodes, store: Store) -> None:
    marker = read_marker(store)
    if marker is not None and marker.cluster == nodes.cluster:
        journal_nodes.write(nodes, store)


class ClusterJournals:
    """Finds and opens the journals of one cluster."""

    def __init__(self, stores: OpenStores, environment: Environment) -> None:
        """Assume the first root, until `locate` finds journal nodes. Reads nothing."""
        self._stores = stores
        self._environment = environment
        self._generations: dict[int, tuple[JournalNodes, SeveralStores]] = {}
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
        self.cluster = self._cluster_journal(self._place_of(nodes))
        self.are_located = True
        return True

    def locate_moved(self, nodes: JournalNodes) -> None:
        """Use these journal nodes, whatever the lists on their stores say."""
        self.cluster = self._cluster_journal(self._place_of(nodes))
        self.are_located = True

    def check_root_address(self) -> None:
        """Raise `CopiedLog` if the root, which has other nodes, is at another address than it has recorded.

        The cluster's journal was read.
        """
        state, here = self.cluster.state, self._stores.roots[0].url
        if self.nodes is None and state.has_nodes_elsewhere and not is_same_place(here, state.address):
            raise CopiedLog(here, state.address)

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
        place = SeveralStores(Members(members, threads), nodes.generation)
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
