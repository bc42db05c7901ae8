"""The log: a process's hold on a cluster. Opens the root, keeps journals warm, creates and deletes topics.

This is where the state machines meet the stores; the rules are in the machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.nodes import live, node_of
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore, SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.liveness import NodeProbe
from pyspark_log_coordinator.model.node_order import named
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import CorruptObject, NoCluster, NodeMissing, TopicExists, UnknownTopic
from pyspark_log_storage.names import check_topic
from pyspark_log_storage.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.journal import Outcome
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.store import Store

FIRST_NODE = "0"


class TopicHandle:
    """One life of a topic: its journal, and where its files lie."""

    def __init__(self, log: Log, record: cluster.TopicRecord) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.journal = log.topic_journal(record.name, record.topic_id)
        self.log = log
        self._record = record
        self._schemas: tuple[tuple[bytes, ...], tuple[pa.Schema, ...]] = ((), ())

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The Arrow schemas that chunks name by number."""
        from pyspark_log_storage import schema  # Arrow is slow to import, and most decisions come without

        stored = self.journal.state.schemas
        if self._schemas[0] != stored:
            name = f"topic {self.name!r}"
            self._schemas = stored, tuple(schema.decode_records(data, name) for data in stored)
        return self._schemas[1]

    def refresh(self) -> topic.Topic:
        """Return the topic's newest state, beginning its journal where nobody has.

        Raises `UnknownTopic` once the topic is deleted.
        """
        state = self.journal.refresh()
        if not state.started:
            nodes = self.log.cluster.state.nodes
            command = topic.StartTopic(
                name=self.name,
                topic_id=self.topic_id,
                config=self._record.config,
                schemas=self._record.schemas,
                incarnations={
                    member: node_of(nodes, member).incarnation
                    for members in self._record.assignments
                    for member in members
                },
                assignments=self._record.assignments,
                generation=self.journal.place.generation,
            )
            state = self.journal.submit(command).state
        if state.deleted:
            raise UnknownTopic(self.name, f"topic {self.name!r} ({self.topic_id}) was deleted; create it again")
        if not state.incarnations.keys() <= self.log.cluster.state.nodes.keys():
            self._check_nodes(state)
        return state

    def _check_nodes(self, state: topic.Topic) -> None:
        """Raise `CorruptObject` if the topic has replicas on nodes that the cluster never had.

        A node that was removed may have replicas for a moment: a reassignment to it may have begun at the same time.
        """
        members = {member for each in state.partitions for member in each.replicas}
        if members <= self.log.cluster.state.nodes.keys():
            return
        present = self.log.cluster.refresh()
        unknown = members - present.nodes.keys() - {each.node_id for each in present.former_nodes}
        if unknown:
            raise CorruptObject(
                f"journal of topic {self.name!r} ({self.topic_id})",
                f"it has replicas on {named(unknown)}, and the cluster has no such node",
            )

    def submit(self, command: topic.Command) -> Outcome[topic.Topic]:
        """Carry out a command; see `Journal.submit`."""
        return self.journal.submit(command)

    def now_ms(self) -> int:
        """Return the clock of the process."""
        return self.log.environment.now_ms()

    def append_file(self, name: str) -> str:
        """Return the key of an append file on any of the topic's nodes."""
        return layout.append_file(self.name, self.topic_id, name)

    def segment(self, partition: int, name: str) -> str:
        """Return the key of a segment on any of the topic's nodes, without ending."""
        return f"{layout.topic_folder(self.name, self.topic_id)}{partition}/{name}"


class Log:
    """A cluster, as one thread of one process sees it."""

    def __init__(
        self,
        roots: Store | Sequence[Store],
        environment: Environment,
        *,
        open_node: Callable[[str], Store] = open_store,
        roll_call: Callable[[Sequence[tuple[cluster.Node, Store]]], dict[NodeId, LogError]] | None = None,
    ) -> None:
        """Take the store at the cluster root, or some of those where its journals live. Reads nothing yet.

        `open_node` opens the store of a node that is not at the root, by its address. `roll_call` finds out which nodes
        do not answer as themselves.
        """
        self._roots = tuple(roots) if isinstance(roots, Sequence) else (roots,)
        self.environment = environment
        self._handles: dict[str, TopicHandle] = {}
        self._generations: dict[int, tuple[JournalNodes, SeveralStores]] = {}
        """The lists of journal nodes that this process has come to know, and the places that they are."""
        self._is_located = False
        self._live_in(OneStore(self._roots[0]))
        self._open_node = open_node
        self._node_probe = roll_call or NodeProbe().missing
        self._node_stores: dict[str, Store] = {}
        self.missing_nodes: dict[NodeId, LogError] = {}
        """What keeps nodes from being used, as of the last `open`; fenced nodes are not asked.

        `NodeMissing` and `StoreUnavailable` say that a node is away: it is left out. `StoreRefused` says that this
        process may not use a node that may be well: that is no reason to leave it out of what others rely on.
        """

    def open(self, *, create: bool) -> None:
        """Open the cluster, or begin one where there is none and `create` says so.

        Of several nodes those that are missing are noted in `missing_nodes`. Raises `NoCluster`; `NodeMissing` where
        the only node's marker is not the one that the journal names; `StoreUnfit` where a new cluster's store fails its
        self-test.
        """
        self.locate()
        if not self.cluster.refresh().cluster_id:
            if not create:
                where = self.place.url
                if self.journal_nodes is None:
                    self._check_root(node.read_marker(self.store))
                raise NoCluster(f"there is no log at {where}; check the path, or write to it or create a topic")
            self._begin()
        if not self._is_located:
            self.locate()
            # Journal nodes are named before anything is on them: so what was read is of the root alone.
            if self.journal_nodes is not None:
                self.open(create=create)
                return
            self._is_located = True
        self.probe_nodes()

    def locate(self) -> None:
        """Find out where the journals live, as long as that is not known for certain. Tasks call it, who do not open.

        Raises what `journal_nodes.find` does.
        """
        if self._is_located:
            return
        nodes = journal_nodes.find(self._roots)
        if nodes is None:
            return  # the journals are here, or there are none yet
        self._live_in(self._place_of(nodes))
        self._is_located = True

    @property
    def place(self) -> JournalPlace:
        """Where the cluster's journal lives, and all others, unless they are on their way."""
        return self.cluster.place

    @property
    def store(self) -> Store:
        """The store of the cluster root; of several journal nodes that of the first."""
        return self.place.stores[0]

    @property
    def journal_nodes(self) -> JournalNodes | None:
        """Where the journals live, None where that is the root alone."""
        if isinstance(self.place, OneStore):
            return None
        return self._generations[self.place.generation][0]

    def _place_of(self, nodes: JournalNodes) -> SeveralStores:
        """Return the place that these journal nodes are, always the same. Touches nothing. Raises `InvalidOption`."""
        known = self._generations.get(nodes.generation)
        if known is not None and known[0] == nodes:
            return known[1]
        given = {each.url: each for each in self._roots}
        stores = [given[each.url] if each.url in given else self.store_at(each.url) for each in nodes.nodes]
        members = [Member(store, each.node, each.incarnation) for store, each in zip(stores, nodes.nodes, strict=True)]
        self._node_stores |= {each.url: store for store, each in zip(stores, nodes.nodes, strict=True)}
        place = SeveralStores(Members(members), nodes.generation)
        self._generations[nodes.generation] = nodes, place
        return place

    def _follow_cluster(self, generation: int) -> JournalPlace:
        """Return where the cluster's journal goes on in a generation; see `Journal`.

        Where that is the one in which it is, and it does not answer, any store may say that it has left.
        """
        if self.journal_nodes is None:
            return self.place
        if generation > self.place.generation:
            moved = self.cluster.state.journals
            if generation < moved.generation and (previous := self.previous_place) is not None:
                return previous
            return self._place_of(JournalNodes(self.journal_nodes.cluster, moved.nodes, moved.generation))
        stores = {each.url: each for each in (*self._roots, *self._node_stores.values())}
        told = journal_nodes.newest(tuple(stores.values()))
        is_later = told is not None and told.cluster == self.journal_nodes.cluster and told.generation > generation
        return self._place_of(told) if told is not None and is_later else self.place

    def _follow_topic(self, generation: int) -> JournalPlace:
        """Return where a topic's journal goes on in a generation, or in a later one if it has begun there."""
        if self.journal_nodes is None:
            return self.place
        # The stores of the cluster's journal may be the ones that do not answer: they are not waited for again.
        if generation == self.place.generation and not self.cluster.go_on_in(self._follow_cluster(generation)):
            return self.place
        self.cluster.refresh()
        previous = self.previous_place
        return previous if previous is not None and generation <= previous.generation else self.place

    @property
    def previous_place(self) -> SeveralStores | None:
        """Where journals may still be that are on their way, None where none is."""
        moving = self.cluster.state.journals
        if not moving.are_moving:
            return None
        return self._place_of(JournalNodes(self.cluster.state.cluster_id, moving.previous, moving.generation - 1))

    def topic_journal(self, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
        """Return the journal of a life of a topic, which is not begun where nobody has. Touches nothing.

        By what is known of the cluster: while journals are on their way those of topics that are not new, and of those
        that were deleted, are looked for where they were.
        """
        state, place = self.cluster.state, self.previous_place
        record = state.topics.get(name)
        is_there = record is not None and record.topic_id == topic_id
        if place is None or (is_there and topic_id not in state.journals.waiting):
            return self._topic_journal(name, topic_id, self.place)
        return self._topic_journal(name, topic_id, place)

    def new_topic_journal(self, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
        """Return the journal of a life of a topic that began in the newest generation."""
        return self._topic_journal(name, topic_id, self.place)

    def _topic_journal(self, name: str, topic_id: str, place: JournalPlace) -> Journal[topic.Topic, topic.Command]:
        folder = layout.topic_journal(name, topic_id)
        return Journal(place, folder, topic.MACHINE, self.environment, follow=self._follow_topic)

    def missing_journal_nodes(self) -> dict[NodeId, LogError]:
        """Return what keeps journal nodes from taking part in the journals now, by their ids."""
        if self.journal_nodes is None:
            return {}
        assert isinstance(self.place, SeveralStores)
        return journal_nodes.missing(self.journal_nodes, self.place.members, self.environment)

    def tell_journal_nodes(self) -> None:
        """Let journal nodes that answer say where the journals are, and those where they were, as far as they do not.

        Clients may know only these. Does nothing where the journals never moved.
        """
        nodes = self.journal_nodes
        if nodes is None or nodes.generation == 1:
            return
        patience_ms = int(journal_nodes.PATIENCE_SECONDS * 1000)
        for place in (self.place, self.previous_place):
            if isinstance(place, SeveralStores):
                members, act = place.members, partial(journal_nodes.tell, nodes)
                members.ask(act, self.environment, patience_ms, settled=members.is_majority)

    def _live_in(self, place: JournalPlace) -> None:
        """Go on with the journals in a place, of which nothing is known yet."""
        self.cluster: Journal[cluster.Cluster, cluster.Command] = Journal(
            place, layout.CLUSTER_JOURNAL, cluster.MACHINE, self.environment, follow=self._follow_cluster
        )
        self._handles.clear()

    def probe_nodes(self) -> None:
        """Find out which nodes are missing. Raises `NodeMissing` where it is the only one."""
        members = self.cluster.state.nodes
        if len(members) == 1:
            (only,) = members.values()
            node.require_marker(self.node_store(only.node_id), only.node_id, only.incarnation)
            self.missing_nodes = {}
        else:
            asked = [(each, self.node_store(each.node_id)) for each in live(members).values()]
            self.missing_nodes = self._node_probe(asked)

    def _begin(self) -> None:
        if self.journal_nodes is not None:
            bootstrap.begin(self.cluster, self.journal_nodes)
            return
        marker = node.read_marker(self.store)
        if marker is None:
            node.self_test(self.store, self.environment.nonce())
            mine = node.Marker(self.environment.nonce(), FIRST_NODE, self.environment.nonce(), root=True)
            self.store.create(layout.KEY, node.encode(mine))
            marker = node.read_marker(self.store)
            if marker is None:
                raise NodeMissing(
                    self.store.url, layout.KEY, f"the marker of {self.store.url} vanished; is the disk mounted?"
                )
        self._check_root(marker)
        first = cluster.Node(marker.node, cluster.AT_THE_ROOT, "", marker.incarnation)
        self.cluster.submit(cluster.StartCluster(marker.cluster, (first,)))

    def _check_root(self, marker: node.Marker | None) -> None:
        """Raise `NoCluster` where the store is a node of a cluster whose root is elsewhere."""
        if marker is not None and not marker.root:
            raise NoCluster(
                f"the store at {self.store.url} is node {marker.node!r} of the cluster {marker.cluster}, and no root: "
                "give the address of that cluster's root or journal nodes; if its creation with `pyspark-log cluster "
                "create` was cut short, do that again"
            )

    def node_store(self, node_id: str) -> Store:
        """Return the store of a node, as far as this process knows the nodes. Touches nothing."""
        return self.store_at(self.cluster.state.nodes[node_id].url)

    def store_at(self, url: str) -> Store:
        """Return the store at a node's address. Touches nothing. Raises `InvalidOption`, `CorruptObject`."""
        if url == cluster.AT_THE_ROOT:
            if self.journal_nodes is not None:  # then no node is named by the root
                raise CorruptObject(f"the journal of the cluster at {self.place.url}", f"a node's address is {url!r}")
            return self.store
        if url not in self._node_stores:
            self._node_stores[url] = self._open_node(url)
        return self._node_stores[url]

    def stores(self) -> list[Store]:
        """Return the stores of the journals and of all nodes, but of those that were missing at the last `open`."""
        nodes = self.cluster.state.nodes
        missing = {self.node_store(each).url for each in self.missing_nodes if each in nodes}
        found = [*self.place.stores, *(self.node_store(each) for each in nodes)]
        return list({each.url: each for each in found if each.url not in missing}.values())

    def topics(self) -> dict[str, cluster.TopicRecord]:
        """Return the topics that there are now, by name."""
        return self.cluster.refresh().topics

    def topic(self, name: str) -> TopicHandle:
        """Return the hold on a topic's present life, refreshed. Raises `UnknownTopic`."""
        check_topic(name)
        record = cluster.topic_of(self.cluster.refresh(), name)
        handle = self._handle(record)
        handle.refresh()
        return handle

    def _handle(self, record: cluster.TopicRecord) -> TopicHandle:
        handle = self._handles.get(record.name)
        if handle is None or handle.topic_id != record.topic_id or self._has_left(handle):
            handle = self._handles[record.name] = TopicHandle(self, record)
        return handle

    def _has_left(self, handle: TopicHandle) -> bool:
        """Return whether the topic's journal has left for certain where it was last seen, which may be gone."""
        here = self.previous_place or self.place
        return handle.journal.place.generation < here.generation

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: TopicConfig | None = None,
        *,
        replication_factor: int | None = None,
        replicas: Sequence[Sequence[NodeId]] | None = None,
    ) -> TopicHandle:
        """Create a topic; `replicas` are the nodes of each partition, where the caller chooses them.

        Raises `TopicExists`, `InvalidName`, `InvalidOption`.
        """
        from pyspark_log_storage import schema

        command = cluster.CreateTopic(
            name=name,
            topic_id=self.environment.nonce(),
            partitions=partitions,
            config=config or TopicConfig(),
            schemas=tuple(schema.encode(each) for each in schema.RECORD_SCHEMAS),
            replication_factor=replication_factor,
            replicas=None if replicas is None else tuple(tuple(each) for each in replicas),
        )
        check_topic(name)
        self.finish_deletion(name)
        self.cluster.submit(command)
        return self.topic(name)

    def ensure_topic(
        self,
        name: str,
        partitions: int,
        config: TopicConfig | None = None,
        *,
        replication_factor: int | None = None,
    ) -> TopicHandle:
        """Return a topic, created if it is not there; of many that do so at once, one creates it."""
        try:
            return self.topic(name)
        except UnknownTopic:
            try:
                return self.create_topic(name, partitions, config, replication_factor=replication_factor)
            except TopicExists:
                return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: first its journal ends, then its name goes, later its bytes (`cluster_upkeep`).

        Raises `UnknownTopic`.
        """
        record = cluster.topic_of(self.cluster.refresh(), name)
        handle = self._handle(record)
        try:
            handle.refresh()
            handle.submit(topic.DeleteTopic())
        except UnknownTopic:
            pass  # its journal has ended; what is left is the name
        self.cluster.submit(cluster.RemoveTopic(name, record.topic_id))

    def finish_deletion(self, name: str) -> None:
        """Free the name of a topic whose journal has ended: a deletion cut short between its two entries."""
        record = self.cluster.refresh().topics.get(name)
        if record is not None and self._handle(record).journal.refresh().deleted:
            self.cluster.submit(cluster.RemoveTopic(name, record.topic_id))
