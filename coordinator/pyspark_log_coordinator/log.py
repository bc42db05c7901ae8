"""The log: a process's hold on a cluster. Opens the root, keeps journals warm, creates and deletes topics.

This is where the state machines meet the stores; the rules are in the machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator import cluster, topic
from pyspark_log_coordinator.journal import Journal
from pyspark_log_coordinator.topic_config import TopicConfig
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import NoCluster, NodeMissing, TopicExists, UnknownTopic
from pyspark_log_storage.names import check_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal import Outcome
    from pyspark_log_storage.store import Store

FIRST_NODE = "0"


class TopicHandle:
    """One life of a topic: its journal, and where its files lie."""

    def __init__(self, log: Log, record: cluster.TopicRecord) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.journal: Journal[topic.Topic, topic.Command] = Journal(
            log.store, layout.topic_journal(record.name, record.topic_id), topic.MACHINE, log.environment
        )
        self._log = log
        self._record = record
        self._schemas: tuple[tuple[bytes, ...], tuple[pa.Schema, ...]] = ((), ())

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The Arrow schemas that chunks name by number."""
        from pyspark_log_storage import schema  # Arrow is slow to import, and most decisions come without

        stored = self.journal.state.schemas
        if self._schemas[0] != stored:
            name = f"topic {self.name!r}"
            self._schemas = stored, tuple(schema.decode(data, name) for data in stored)
        return self._schemas[1]

    def refresh(self) -> topic.Topic:
        """Return the topic's newest state, beginning its journal where nobody has.

        Raises `UnknownTopic` once the topic is deleted.
        """
        state = self.journal.refresh()
        if not state.started:
            nodes = self._log.cluster.state.nodes
            command = topic.StartTopic(
                name=self.name,
                topic_id=self.topic_id,
                config=self._record.config,
                schemas=self._record.schemas,
                incarnations={
                    member: nodes[member].incarnation for members in self._record.assignments for member in members
                },
                assignments=self._record.assignments,
            )
            state = self.journal.submit(command).state
        if state.deleted:
            raise UnknownTopic(self.name, f"topic {self.name!r} ({self.topic_id}) was deleted; create it again")
        return state

    def submit(self, command: topic.Command) -> Outcome[topic.Topic]:
        """Carry out a command; see `Journal.submit`."""
        return self.journal.submit(command)

    def now_ms(self) -> int:
        """Return the clock of the process."""
        return self._log.environment.now_ms()

    def append_file(self, name: str) -> str:
        """Return the key of an append file on any of the topic's nodes."""
        return layout.append_file(self.name, self.topic_id, name)

    def segment(self, partition: int, name: str) -> str:
        """Return the key of a segment on any of the topic's nodes, without ending."""
        return f"{layout.topic_folder(self.name, self.topic_id)}{partition}/{name}"


class Log:
    """A cluster, as one thread of one process sees it."""

    def __init__(self, store: Store, environment: Environment) -> None:
        """Take the store at the cluster root. Reads nothing yet."""
        self.store = store
        self.environment = environment
        self.cluster: Journal[cluster.Cluster, cluster.Command] = Journal(
            store, layout.CLUSTER_JOURNAL, cluster.MACHINE, environment
        )
        self._handles: dict[str, TopicHandle] = {}

    def open(self, *, create: bool) -> None:
        """Open the cluster, or begin one where there is none and `create` says so.

        Raises `NoCluster`; `NodeMissing` where the root's marker is not the one that the journal names;
        `StoreUnfit` where a new cluster's store fails its self-test.
        """
        if not self.cluster.refresh().cluster_id:
            if not create:
                raise NoCluster(
                    f"there is no log at {self.store.url}; check the path, or write to it or create a topic"
                )
            self._begin()
        for member in self.cluster.state.nodes.values():
            node.require_marker(self.node_store(member.node_id), member.node_id, member.incarnation)

    def _begin(self) -> None:
        marker = node.read_marker(self.store)
        if marker is None:
            node.self_test(self.store, self.environment.nonce())
            mine = node.Marker(cluster=self.environment.nonce(), node=FIRST_NODE, incarnation=self.environment.nonce())
            self.store.create(node.KEY, node.encode(mine))
            marker = node.read_marker(self.store)
            if marker is None:
                raise NodeMissing(
                    self.store.url, node.KEY, f"the marker of {self.store.url} vanished; is the disk mounted?"
                )
        first = cluster.Node(marker.node, cluster.AT_THE_ROOT, "", marker.incarnation)
        self.cluster.submit(cluster.StartCluster(marker.cluster, first))

    def node_store(self, node_id: str) -> Store:
        """Return the store of a node."""
        assert self.cluster.state.nodes[node_id].url == cluster.AT_THE_ROOT
        return self.store

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
        if handle is None or handle.topic_id != record.topic_id:
            handle = self._handles[record.name] = TopicHandle(self, record)
        return handle

    def create_topic(self, name: str, partitions: int, config: TopicConfig | None = None) -> TopicHandle:
        """Create a topic. Raises `TopicExists`, `InvalidName`, `InvalidOption`."""
        from pyspark_log_storage import schema

        command = cluster.CreateTopic(
            name=name,
            topic_id=self.environment.nonce(),
            partitions=partitions,
            config=config or TopicConfig(),
            schemas=tuple(schema.encode(each) for each in schema.RECORD_SCHEMAS),
        )
        check_topic(name)
        self.finish_deletion(name)
        self.cluster.submit(command)
        return self.topic(name)

    def ensure_topic(self, name: str, partitions: int, config: TopicConfig | None = None) -> TopicHandle:
        """Return a topic, created if it is not there; of many that do so at once, one creates it."""
        try:
            return self.topic(name)
        except UnknownTopic:
            try:
                return self.create_topic(name, partitions, config)
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
