"""The log: one process's view of a cluster. It opens the root, creates topics and groups, and keeps their handles.

Here the state machines meet the stores; the rules are in the machines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster, group_of, topic_of
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, holding, live, node_of
from pyspark_log_coordinator.journal import history
from pyspark_log_coordinator.journal.inbox import Inbox
from pyspark_log_coordinator.log import bootstrap, ended_journals, topic_description
from pyspark_log_coordinator.log.cluster_journals import ClusterJournals, OpenStores
from pyspark_log_coordinator.log.ended_journals import start_topic
from pyspark_log_coordinator.log.group_handle import GroupHandle
from pyspark_log_coordinator.log.log_clock import LogClock
from pyspark_log_coordinator.log.node_probe import NodeProbe
from pyspark_log_coordinator.model.partition import by_number, named
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication import write_targets
from pyspark_log_coordinator.segments.retention import TO_THE_END, DeleteRecords, future_segments
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.columns import EvolveSchema
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage import layout, logs
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    LogMoved,
    NewerFormat,
    NoCluster,
    NodeAway,
    NodeMissing,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    TopicExists,
    UnknownTopic,
    is_node_failure,
)
from pyspark_log_storage.names import check_topic
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.store import is_object_store, make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from pyspark_log_coordinator.cluster.cluster_state import GroupRecord, TopicRecord
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_coordinator.journal.state_machine import Outcome
    from pyspark_log_coordinator.model.batch import Acks
    from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store


FRESH_SECONDS = 30.0
"""For so long a process that uses an object store relies on what it knows of topics and nodes: metadata.max.age.ms."""
MARKER_SECONDS = 1.0
"""So old may be what a process knows of the marker of an object store, where each look is a request."""
_batch_decoder = msgspec.msgpack.Decoder(CommitBatch)

T = TypeVar("T")


def topic_inbox(place: JournalPlace, journal: str) -> Inbox[topic.Command]:
    """Return the inbox of a topic's journal. Only for batches with a claim: without one a repetition adds rows."""
    return Inbox(place, journal, _batch_decoder.decode)


class WriteTargets(NamedTuple):
    """Where a writing task writes its rows."""

    of_partitions: tuple[tuple[NodeId, ...], ...]
    """The nodes of each partition; partitions on the same nodes have equal values."""
    nodes: dict[NodeId, tuple[str, str]]
    """The address and the incarnation of each of these nodes."""
    enough: int | None
    """The number of nodes that must have a file before the writer continues; None means all reachable ones."""


class TopicHandle:
    """One incarnation of a topic: its journal, and the keys of its files."""

    def __init__(self, log: Log, record: TopicRecord) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.journal = log.journals.of_topic(record.name, record.topic_id)
        self.inbox = topic_inbox(self.journal.place, self.journal.folder)
        """For batches that have a claim."""
        self.log = log
        self.described_at = log.environment.monotonic()
        """When this process described the topic last, or came to know it, by the monotonic clock."""
        self._record = record
        self._schemas: tuple[tuple[bytes, ...], tuple[pa.Schema, ...]] = ((), ())

    @property
    def state(self) -> Topic:
        """The topic after the newest entry that this process knows: a value, of which a refresh makes another."""
        return self.journal.state

    @property
    def version(self) -> int:
        """The number of that entry."""
        return self.journal.number

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self.journal.state.partitions

    def partition(self, number: int) -> Partition:
        """Return a partition of `state`. Raises `InvalidInput` for an unknown number."""
        return self.journal.state.partition(number)

    @property
    def config(self) -> TopicConfig:
        return self.journal.state.config

    @property
    def is_recent(self) -> bool:
        """Whether `state` was the newest a moment ago; see `Journal.is_recent`."""
        return self.journal.is_recent

    @property
    def is_fresh(self) -> bool:
        """Whether not to refresh; see `Journal.is_fresh`."""
        return self.journal.is_fresh

    @property
    def waits_for_store(self) -> bool:
        """Whether a commit waits for the store for the most part; see `Journal.waits_for_store`."""
        return self.journal.waits_for_store

    @property
    def is_served(self) -> bool:
        """Whether other processes are likely to commit the next batch, so that this one need not know the newest entry.

        It must if the topic is on several nodes: a batch is copied to those that have joined.
        """
        return len(self.journal.state.incarnations) == 1 and self.journal.expects_answer(self.inbox)

    def state_at(self, version: int) -> Topic:
        """Return the topic after an earlier entry. Raises `UnknownVersion`."""
        return history.state_at(self.journal, version)

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The Arrow schemas that chunks name by number."""
        from pyspark_log_storage.columns import schema  # Arrow is slow to import, and most decisions come without

        stored = self.journal.state.schemas
        if self._schemas[0] != stored:
            name = f"topic {self.name!r}"
            self._schemas = stored, schema.decode_all(stored, name)
        return self._schemas[1]

    def refresh(self, *, polls: bool = False) -> Topic:
        """Return the topic's newest state; begin its journal if nobody has. `polls` as for `Journal.refresh`.

        Raises `UnknownTopic` if the topic was deleted.
        """
        state = self.journal.refresh(polls=polls)
        if not state.started:
            state = self.journal.submit(start_topic(self._record, self.log.cluster.state.nodes)).state
        if state.deleted:
            raise topic.was_deleted(self.name, self.topic_id)
        if not self._knows(state.incarnations):
            self._check_nodes(state)
        return state

    def _knows(self, incarnations: Mapping[NodeId, str]) -> bool:
        """Return whether this process knows these nodes as the topic does."""
        nodes = self.log.cluster.state.nodes
        return all(node_id in nodes and nodes[node_id].incarnation == mine for node_id, mine in incarnations.items())

    def _check_nodes(self, state: Topic) -> None:
        """Refresh the cluster if nodes have joined or were renewed since.

        Raise `CorruptObject` if the topic has replicas on nodes that the cluster never had. A removed node may have
        replicas for a moment: a reassignment to it may have begun at the same time.
        """
        members = {member for partition in state.partitions for member in partition.replicas}
        if self._knows({node_id: state.incarnations[node_id] for node_id in members}):
            return
        present = self.log.cluster.refresh()
        unknown = members - present.nodes.keys() - {former.node_id for former in present.former_nodes}
        if unknown:
            raise CorruptObject(
                f"journal of topic {self.name!r} ({self.topic_id})",
                f"it has replicas on {named(unknown)}, and the cluster has no such node",
            )

    def description(self) -> topic_description.Description:
        """Return what describes the topic on its nodes, by the known states of its journal and the cluster's."""
        cluster = self.log.cluster.state
        record = cluster.topics.get(self.name)
        created_ms = record.created_ms if record is not None and record.topic_id == self.topic_id else 0
        return topic_description.Description(self.version, created_ms, tuple(cluster.nodes.values()), self.state)

    def submit(self, command: topic.Command, inbox: Inbox[topic.Command] | None = None) -> Outcome[Topic]:
        """Carry out a command; see `Journal.submit`."""
        return self.journal.submit(command, inbox)

    def write_targets(self, acks: Acks) -> WriteTargets:
        """Return where a writing task writes its rows.

        Raises `StoreUnfit` if an object store does not keep its promise any more.
        """
        self.log.journals.check_stores()
        state, missing = self.journal.state, self.log.broken_nodes  # a node that a task may not use is its error
        targets = write_targets.write_targets(state, acks, missing)
        if not write_targets.used_nodes(targets) <= self.log.nodes.keys():
            state = self.refresh()  # replicas were moved since the last look, and their node was removed
            targets = write_targets.write_targets(state, acks, missing)
        return WriteTargets(
            targets,
            {
                node_id: (self.log.node(node_id).url, state.incarnations[node_id])
                for node_id in write_targets.used_nodes(targets)
            },
            write_targets.enough(state, acks),
        )

    def table_end(self, partition: int) -> int:
        """Return the offset up to which the topic's Delta table has rows of the partition, or is its newest state."""
        from pyspark_log_coordinator.segments import roll_plan  # NumPy, which most commands do without

        return roll_plan.table_end(self.partitions[partition], self.config)

    def will_stay(self, segment: SegmentRef) -> bool:
        """Return whether a segment will not be rewritten: its file is there until its rows expire."""
        from pyspark_log_coordinator.segments import roll_plan  # NumPy, which most commands do without

        return roll_plan.will_stay(segment, self.config)

    def of_the_future(self, partition: int) -> list[SegmentRef]:
        """Return the segments of a partition that have rows of the future, as far as this process knows the topic."""
        now = self.log.environment.now_ms() + self.log.clock.offset_ms  # asks no store: this is for people
        return future_segments(self.partitions[partition], now)

    def alter_config(self, changes: Mapping[str, str]) -> TopicConfig:
        """Change settings, also on a full disk, and return all. Raises `InvalidOption`."""
        return self.log.with_reserves(lambda: self.submit(topic.AlterConfig(dict(changes)))).state.config

    def evolve(self, columns: pa.Schema) -> bool:
        """Let a typed topic hold rows with these columns, and return whether it had to change: see `topic.columns`.

        Raises `InvalidRecord`, which names the topic and the column.
        """
        from pyspark_log_storage.columns import schema

        before = self.state.schemas
        return self.submit(EvolveSchema(schema.encode(columns))).state.schemas != before

    def delete_records(self, partition: int, before: int) -> int:
        """Delete the rows before an offset, -1 for all, also on a full disk; return the new start of the log."""
        if before == TO_THE_END:  # an attempt that is repeated must not delete what was written after the first one
            before = self.log.with_reserves(self.refresh).partition(partition).high_watermark
        done = self.log.with_reserves(lambda: self.submit(DeleteRecords(partition, before)))
        return done.state.partitions[partition].log_start

    def now_ms(self) -> int:
        return self.log.clock.now_ms()

    def append_file(self, name: str) -> str:
        """Return the key of an append file on any of the topic's nodes."""
        return layout.append_file(self.name, self.topic_id, name)

    def segment(self, partition: int, name: str) -> str:
        """Return the key of a segment on any of the topic's nodes, without suffix."""
        return f"{layout.topic_folder(self.name, self.topic_id)}{partition}/{name}"


class Log:
    """A cluster, as one thread of one process sees it."""

    def __init__(
        self,
        roots: Store | Sequence[Store],
        environment: Environment,
        *,
        open_node: Callable[[str], Store] = open_store,
        probe: Callable[[Sequence[tuple[Node, Store]]], dict[NodeId, LogError]] | None = None,
    ) -> None:
        """Take the store at the cluster root, or some of the journal nodes. Reads nothing yet.

        `open_node` opens the store at a node's address. `probe` returns why nodes cannot be used, by default
        `NodeProbe.missing`.
        """
        self.environment = environment
        self._stores = OpenStores(roots if isinstance(roots, Sequence) else (roots,), open_node)
        self.clock = LogClock(environment, lambda: self.journals.place)
        self.journals = ClusterJournals(self._stores, msgspec.structs.replace(environment, now_ms=self.clock.now_ms))
        self._handles: dict[str, TopicHandle] = {}
        self._groups: dict[str, GroupHandle] = {}
        self.failures = logs.Failures()
        """What fails now, and was logged."""
        self.probe = probe or NodeProbe(environment).missing
        self.missing_nodes: dict[NodeId, LogError] = {}
        """Why nodes cannot be used, as of the last `probe_nodes`, which leaves out fenced nodes.

        After `NodeMissing` and `StoreUnavailable` the cluster continues without the node. `StoreRefused` means that
        only this process may not use the node: others may still rely on it.
        """
        self._opened_at = self._checked_at = -float("inf")

    def open(self, *, create: bool) -> None:
        """Open the cluster, or create it if there is none and `create` is true; then probe the nodes.

        Only what a person calls, or a first write, may create one: an empty folder may be the place of a mount. Raises
        `NoCluster`; `CopiedLog` if the log has recorded another address; `NodeMissing` if the marker of the only node
        is not the one that the journal names; `StoreUnfit` if the store of a new cluster fails its self-test.
        """
        if self._is_fresh:
            return
        self.locate()
        if not self._refreshed().cluster_id:
            if not create:
                bootstrap.check_place(self.journals)
                url = self.journals.place.url
                raise NoCluster(
                    f"there is no log at {url}: check the address, and whether its disk is mounted. If that disk is "
                    "lost, rebuild the log from its other nodes (pyspark-log cluster rebuild), or restore a backup. "
                    f"Only where there never was a log, begin one: pyspark-log topics create NAME --path {url}"
                )
            bootstrap.begin(self.journals, self.environment)
        self.journals.check_root_address()
        if not self.journals.are_located:
            # Journal nodes are written to the root before anything else: if there are none, what was read is right.
            self.locate()
            if self.journals.are_located:
                self.open(create=create)
                return
            self.journals.are_located = True
        self.probe_nodes()
        self._opened_at = self.environment.monotonic()

    def reopen(self) -> None:
        """Open the log again, after its journals have moved."""
        self._opened_at = -float("inf")
        self.open(create=False)

    def _refreshed(self) -> Cluster:
        """Return the newest state of the cluster, wherever its journal has gone on."""
        while True:
            try:
                return self.cluster.refresh()
            except LogMoved:
                ended_journals.follow(self.journals)
            except StoreError:
                if not self.journals.locate_later():
                    raise
            self._forget_handles()

    @property
    def _is_fresh(self) -> bool:
        """Whether the cluster was opened a moment ago, and a store is so far away that it is not worth a look again.

        What a topic's journal says is always read anew; kept are the names of topics, and which nodes answer.
        A node that was missing is looked for each time.
        """
        is_recent = self.environment.monotonic() - self._opened_at < FRESH_SECONDS
        if not (self.is_remote and is_recent) or self.missing_nodes:
            return False
        handles: list[TopicHandle | GroupHandle] = [*self._handles.values(), *self._groups.values()]
        return not any(handle.journal.has_ended for handle in handles)

    @property
    def is_remote(self) -> bool:
        """Whether a store of the cluster is an object store, where each look is a request."""
        return any(is_object_store(store) for store in self._stores.all())

    def locate(self) -> None:
        """Find where the journals live, unless that is certain. Tasks call this instead of `open`.

        Raises what `journal_nodes.find` raises.
        """
        if self.journals.locate():
            self._forget_handles()

    def _forget_handles(self) -> None:
        self._handles.clear()
        self._groups.clear()

    @property
    def cluster(self) -> Journal[Cluster, cluster.Command]:
        return self.journals.cluster

    @property
    def store(self) -> Store:
        """The store of the cluster root; with several journal nodes that of the first."""
        return self.journals.place.stores[0]

    def journals_behind(self, handles: Iterable[TopicHandle | GroupHandle]) -> dict[NodeId, int]:
        """Return in how many journals, those of the handles and the cluster's, each journal node is behind."""
        return self.journals.behind([self.cluster, *(handle.journal for handle in handles)])

    @property
    def broken_nodes(self) -> frozenset[NodeId]:
        """The missing nodes that no process can use: those that this one may not use are not among them."""
        return frozenset(name for name, error in self.missing_nodes.items() if is_node_failure(error))

    def check_root(self) -> None:
        """Raise unless an entry that is created now is in this log: `NodeAway`, `NodeMissing` if it is another's root.

        Called before each commit: an entry could also be created below a prefix that was emptied, or in a log that was
        begun there since. If there are several journal nodes, their votes check their markers.
        """
        now = self.environment.monotonic()
        if self.journals.nodes is not None or (is_object_store(self.store) and now - self._checked_at < MARKER_SECONDS):
            return
        marker, cluster_id = node.read_marker(self.store), self.cluster.state.cluster_id
        if marker is None:
            raise NodeAway(
                self.store.url,
                layout.MARKER,
                f"the store at {self.store.url} has no marker any more: is its disk mounted, or was the log deleted? "
                "Mount the right one, or restore a backup; nothing was written",
            )
        if marker.cluster != cluster_id:
            raise NodeMissing(
                self.store.url,
                layout.MARKER,
                f"the store at {self.store.url} is of cluster {marker.cluster} now, and this process has opened "
                f"cluster {cluster_id}: another disk is mounted, or the log was deleted and begun again; nothing was "
                "written. To use the log at this address, make a new Producer or Consumer, or start the program again",
            )
        self._checked_at = now

    def probe_nodes(self) -> None:
        """Update `missing_nodes`. Raises `NodeMissing` if the only node is missing."""
        members = self.cluster.state.nodes
        if len(members) == 1:
            (only,) = members.values()
            node.require_marker(self.node_store(only.node_id), only.node_id, only.incarnation)
            self.missing_nodes = {}
        else:
            stores = [(member, self.node_store(member.node_id)) for member in live(members).values()]
            self.missing_nodes = self.probe(stores)

    def node(self, node_id: NodeId) -> Node:
        """Return a node, also one that joined after this process read the cluster's journal: a topic may name it.

        Raises `NodeMissing` if the node was removed, `InvalidOption` if there never was one.
        """
        state = self.cluster.state
        if node_id not in state.nodes:
            state = self.cluster.refresh()
        if any(former.node_id == node_id for former in state.former_nodes) and node_id not in state.nodes:
            raise NodeMissing("", layout.MARKER, f"node {node_id!r} was removed from the cluster; try again")
        return node_of(state.nodes, node_id)

    def node_store(self, node_id: NodeId) -> Store:
        """Return the store of a node. Raises what `node` raises."""
        return self.store_at(self.node(node_id).url)

    def nearest_first(self, *, rack: str = "", leader: NodeId | None = None) -> list[Node]:
        """Return all nodes in the order in which those that hold a file are read.

        Nodes in the reader's `rack`, empty if it is not known, come first (`client.rack`, KIP-392), then the
        partition's leader, then the others by number. Fenced nodes, and nodes that were missing when the log was last
        opened, come last. Any holder may be read, in the ISR or not: a file has the same bytes on every node, and the
        high watermark limits what is read.
        """

        def distance(node: Node) -> tuple[bool, bool, bool, tuple[bool, int, str]]:
            is_last = node.fenced or node.node_id in self.missing_nodes
            is_far = rack == "" or node.rack != rack
            return is_last, is_far, node.node_id != leader, by_number(node.node_id)

        return sorted(self.nodes.values(), key=distance)

    def reachable_holders(self, topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> list[NodeId]:
        """Return the ids of the nodes that hold a file and were not missing when the log was last opened."""
        return [node.node_id for node in holding(topic, nodes, holders) if node.node_id not in self.missing_nodes]

    def store_at(self, url: str) -> Store:
        """Return the store at a node's address. Reads nothing. Raises `InvalidOption`, `CorruptObject`."""
        if url == AT_THE_ROOT and self.journals.nodes is None:
            return self.store
        return self._stores.at(url)

    def stores(self) -> list[Store]:
        """Return the stores of the journals and of all nodes, without those that were missing at the last probe."""
        nodes = self.cluster.state.nodes
        missing = {self.node_store(node_id).url for node_id in self.missing_nodes if node_id in nodes}
        stores = [*self.journals.place.stores, *(self.node_store(node_id) for node_id in nodes)]
        return list({store.url: store for store in stores if store.url not in missing}.values())

    def with_reserves(self, act: Callable[[], T]) -> T:
        """Return the result of `act`, which frees space; if it is refused, with the reserves of the stores.

        `act` writes little and may be repeated. The log is open. Raises what `act` raises.
        """
        try:
            return act()
        except (StoreRefused, OutcomeUnknown):
            released = [store for store in self.stores() if reserve.release(store)]
            if not released:
                raise
        try:
            return act()
        finally:
            for store in released:
                reserve.fill(store, rest=True)

    def fill_reserves(self) -> None:
        """Make the reserves that the stores of an open log lack, where there is room. Never raises."""
        for store in self.stores():
            reserve.fill(store)

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty if it does not exist."""
        return self.cluster.state.cluster_id

    @property
    def version(self) -> int:
        """The number of the newest entry of the cluster's journal that this process knows."""
        return self.cluster.number

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        """The nodes that this process knows, by id."""
        return self.cluster.state.nodes

    @property
    def live_nodes(self) -> Mapping[NodeId, Node]:
        """The nodes that are not fenced."""
        return live(self.cluster.state.nodes)

    @property
    def known_topics(self) -> Mapping[str, TopicRecord]:
        """The topics that this process knows, by name. Reads nothing."""
        return self.cluster.state.topics

    @property
    def known_groups(self) -> Mapping[str, GroupRecord]:
        """The groups that this process knows, by name, also deleted ones. Reads nothing."""
        return self.cluster.state.groups

    def check_topic(self, name: str) -> None:
        """Raise `UnknownTopic` if this process knows no topic of this name."""
        topic_of(self.cluster.state, name)

    def topics(self, *, polls: bool = False) -> dict[str, TopicRecord]:
        """Return the present topics by name; `polls` as for `Journal.refresh`."""
        return self.cluster.refresh(polls=polls).topics

    def topic(self, name: str, *, recent_suffices: bool = False, polls: bool = False) -> TopicHandle:
        """Return the handle of a topic's present incarnation, refreshed. Raises `UnknownTopic`.

        With `recent_suffices` it may know less than the newest entry, as `Journal.submit` may (`Journal.is_fresh`).
        `polls` as for `Journal.refresh`.
        """
        check_topic(name)
        known = self.cluster.state.topics.get(name)
        if known is not None:
            handle = self._handle(known)
            if recent_suffices and handle.is_fresh and not handle.state.deleted:
                return handle
            with contextlib.suppress(UnknownTopic):  # it was deleted, and may have been created again
                handle.refresh(polls=polls)
                return handle
        handle = self._handle(topic_of(self.cluster.refresh(polls=polls), name))
        handle.refresh(polls=polls)
        return handle

    def topics_on(
        self, node_id: NodeId, *, polls: bool = False, failed: Callable[[str, LogError], object] | None = None
    ) -> Iterator[TopicHandle]:
        """Yield the handles of the topics that have replicas on a node, refreshed, by name. Raises `InvalidOption`.

        `polls` as for `Journal.refresh`. `failed` gets the name of each topic whose journal is damaged; the others
        continue. Without it the error is raised.
        """
        names = sorted(self.topics(polls=polls))
        node_of(self.cluster.state.nodes, node_id)
        for name in names:
            try:
                handle = self.topic(name, polls=polls)
            except UnknownTopic:
                continue  # deleted meanwhile
            except (CorruptObject, NewerFormat, ObjectMissing) as error:
                if failed is None:
                    raise
                failed(name, error)
                continue
            if any(node_id in partition.replicas for partition in handle.journal.state.partitions):
                yield handle

    def groups(self) -> dict[str, GroupRecord]:
        """Return the groups by name, also those that were deleted and have not been used since."""
        return self.cluster.refresh().groups

    def group(self, group_id: str, *, create: bool = False, polls: bool = False) -> GroupHandle:
        """Return the handle of a group, refreshed. Raises `UnknownGroup` unless `create` is true, `InvalidName`.

        `polls` as for `Journal.refresh`.
        """
        groups = self.cluster.state.groups
        if group_id not in groups:  # a group's record stays for ever
            groups = self.cluster.refresh(polls=polls).groups
            if create and group_id not in groups:
                groups = self.cluster.submit(cluster.CreateGroup(group_id, self.environment.nonce())).state.groups
        handle = self.group_handle(group_of(groups, group_id))
        handle.refresh(polls=polls)
        handle.alive(create=create)
        return handle

    def group_handle(self, record: GroupRecord) -> GroupHandle:
        """Return the handle of a group, also of a deleted one. Reads nothing."""
        handle = self._groups.get(record.group_id)
        if handle is None:
            journal = self.journals.of_group(record.journal_id)
            handle = self._groups[record.group_id] = GroupHandle(record, journal)
        return handle

    def _handle(self, record: TopicRecord) -> TopicHandle:
        handle = self._handles.get(record.name)
        if handle is None or handle.topic_id != record.topic_id:
            topics = self.cluster.state.topics
            if handle is None and len(self._handles) >= len(topics):  # some of them were deleted
                self._handles = {name: handle for name, handle in self._handles.items() if name in topics}
            handle = self._handles[record.name] = TopicHandle(self, record)
        return handle

    def create_topic(
        self,
        name: str,
        partitions: int,
        config: TopicConfig | None = None,
        *,
        replication_factor: int | None = None,
        replicas: Sequence[Sequence[NodeId]] | None = None,
        columns: pa.Schema | None = None,
    ) -> TopicHandle:
        """Create a topic, typed if it has `columns`; `replicas` names each partition's nodes if a caller chooses them.

        Raises `TopicExists`, `InvalidName`, `InvalidOption`, `InvalidRecord`.
        """
        from pyspark_log_storage.columns import schema

        command = cluster.CreateTopic(
            name=name,
            topic_id=self.environment.nonce(),
            partitions=partitions,
            config=config or TopicConfig(),
            schemas=tuple(map(schema.encode, schema.first_schemas(columns))),
            replication_factor=replication_factor,
            replicas=None if replicas is None else tuple(tuple(nodes) for nodes in replicas),
        )
        check_topic(name)
        self.finish_deletion(name)
        self.cluster.submit(command)
        handle = self.topic(name)
        described = topic_description.encode(handle.description())
        for node_id in sorted(handle.state.incarnations.keys() - self.missing_nodes.keys()):
            with contextlib.suppress(LogError):  # then the first writer makes it, who may need the right to
                store = self.node_store(node_id)
                make_folder(store, layout.append_files(name, handle.topic_id))
                store.put(topic_description.key(name, handle.topic_id), described)
        return handle

    def ensure_topic(
        self,
        name: str,
        partitions: int,
        config: TopicConfig | None = None,
        *,
        replication_factor: int | None = None,
        columns: pa.Schema | None = None,
    ) -> TopicHandle:
        """Return a topic; create it if it does not exist. Of many concurrent callers one creates it."""
        try:
            return self.topic(name)
        except UnknownTopic:
            try:
                factor = replication_factor
                return self.create_topic(name, partitions, config, replication_factor=factor, columns=columns)
            except TopicExists:
                return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: end its journal, then free its name. `cluster_cleanup` deletes its files later.

        Works on a full disk too. Raises `UnknownTopic`.
        """
        # An attempt that is repeated must not delete a topic of the same name that was created after the first one.
        record = self.with_reserves(lambda: topic_of(self.cluster.refresh(), name))
        self.with_reserves(lambda: self._delete_topic(record))

    def _delete_topic(self, record: TopicRecord) -> None:
        handle = self._handle(record)
        try:
            handle.refresh()
            handle.submit(topic.DeleteTopic())
        except UnknownTopic:
            pass  # its journal has ended; only the name is left
        self.cluster.submit(cluster.RemoveTopic(record.name, record.topic_id))

    def finish_deletion(self, name: str) -> None:
        """Free the name of a topic whose journal has ended, if its deletion was interrupted between the two entries."""
        record = self.cluster.refresh().topics.get(name)
        if record is not None and self._handle(record).journal.refresh().deleted:
            self.cluster.submit(cluster.RemoveTopic(name, record.topic_id))
