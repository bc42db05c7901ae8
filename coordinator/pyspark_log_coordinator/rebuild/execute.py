"""The rebuild of a cluster from its nodes' folders, after every journal was lost.

The survey (`survey`) plans each topic; this module carries the plans out. Offsets stay what they were.

    1  write the newest description of each topic to every node
    2  write the segments and append files that are made of the good chunks of damaged ones, each on one node
    3  set aside the remains of journals, and files that are not used
    4  complete one replica of each partition, and rebuild lost indexes
    5  give each store a new incarnation, so that writes of processes that know the old journals do not count; name the
       journal nodes
    6  begin each topic's journal
    7  begin the cluster's journal

An object that is set aside is moved, and never deleted:

    set-aside/<UTC time>-<nonce>/<the object's former key>

It is copied before the original is deleted, so no moment is without a copy.

Until the last step there is no cluster, so a rebuild that was stopped can start again from the survey. Only one process
may do it at a time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import ClusterRestored, RestoreCluster, TopicRecord
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, FormerNode, Node
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore, SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.model.partition import BEFORE_ALL_TIMES, ChunkRef, Holder, Keyed, NodeId, SegmentRef
from pyspark_log_coordinator.model.topic_state import FileRef
from pyspark_log_coordinator.rebuild import salvage, topic_plan
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.restore import RestoredPartition, RestoreTopic, TopicRestored
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidOption, NodeMissing, ObjectMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.segments import segment, transfer
from pyspark_log_storage.segments.transfer import RANGE_BYTES
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, stop_unless_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.rebuild.survey import Survey
    from pyspark_log_coordinator.rebuild.topic_plan import ChosenSegment, PartitionPlan, TopicPlan
    from pyspark_log_storage.errors import CorruptObject, StoreError
    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.stores.store import Store


def rebuild(
    found: Survey,
    environment: Environment,
    *,
    journals_are_lost: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> str:
    """Rebuild the cluster. Return the folder in which each store's unused files were set aside.

    Call `progress` with the name of each step. Raises `InvalidOption` if a journal may be alive on a node that was not
    given, unless `journals_are_lost`; `NodeMissing` if a store was replaced since the survey; `StoreError`. After any
    error, start again from the survey.
    """
    if found.journals_may_live is not None and not journals_are_lost:
        raise InvalidOption(
            "journals-lost",
            f"{found.journals_may_live}. If that cluster continues, it can never be merged with the rebuilt one. Give "
            "all nodes that are left, or add --journals-lost if those journals are lost for good",
        )
    rebuild = _Rebuild(found, environment)
    rebuild.check_markers()
    for step, name in (
        (rebuild.describe, "writing descriptions"),
        (rebuild.salvage, "salvaging damaged files"),
        (rebuild.set_aside, "setting aside unused files"),
        (rebuild.complete, "completing one replica of each partition"),
        (rebuild.renew, "renewing the nodes"),
        (rebuild.begin_topics, "beginning the topics' journals"),
        (rebuild.begin_cluster, "beginning the cluster's journal"),
    ):
        progress(name)
        step()
    return rebuild.aside


class _Rebuild:
    """Carries out a survey."""

    def __init__(self, found: Survey, environment: Environment) -> None:
        self._found = found
        self._environment = environment
        self._stores = {each.node_id: each.store for each in found.given}
        self._markers = {each.node_id: each.marker for each in found.given if each.has_marker}
        self._is_at_root = len(found.journal_stores) == 1
        self._topics = [TopicRebuild(plan, self._stores) for plan in found.topics]
        self.aside = new_folder(environment)

    def check_markers(self) -> None:
        """Raise `NodeMissing` if a store has another marker than this process saw last."""
        for name, store in self._stores.items():
            if node.read_marker(store) != self._markers.get(name):
                raise NodeMissing(
                    store.url,
                    layout.MARKER,
                    f"the marker of node {name!r} at {store.url} changed during the rebuild: its disk was unmounted, "
                    "or another process rebuilds this cluster too; check both, and start again",
                )

    def describe(self) -> None:
        for each in self._topics:
            if each.plan.description is not None:
                data = topic_description.encode(each.plan.description)
                for store in self._stores.values():
                    store.put(f"{each.plan.folder.prefix}{topic_description.NAME}", data)

    def salvage(self) -> None:
        for each in self._topics:
            each.salvage(self.aside)

    def set_aside(self) -> None:
        for name, store in self._stores.items():
            keys = list(filter(layout.is_of_cluster, store.list(layout.CLUSTER_JOURNAL)))
            for each in self._topics:
                folder = each.plan.folder.prefix
                journal = store.list(layout.topic_journal(*each.plan.folder))
                keys += [key for key in journal if layout.is_of_topic(key, folder)]
                stems = each.plan.segments_aside.get(name, ())
                keys += [key for stem in stems for key in layout.segment_files(f"{folder}{stem}")]
                keys += [f"{folder}append/{file}" for file in each.plan.files_aside.get(name, ())]
            for key in keys:
                _set_aside(store, key, self.aside)

    def complete(self) -> None:
        for each in self._topics:
            each.complete()

    def renew(self) -> None:
        for name, store in self._stores.items():
            is_root = self._is_at_root and store is self._found.journal_stores[0]
            marker = Marker(self._found.cluster_id, name, self._environment.nonce(), is_root)
            store.put(layout.MARKER, node.encode(marker))
            self._markers[name] = marker
        if not self._is_at_root:
            data = journal_nodes.encode(self._journal_nodes())
            for store in self._found.journal_stores:
                store.put(layout.JOURNAL_NODES, data)

    def begin_topics(self) -> None:
        place, incarnations = self._place(), self._incarnations
        for each in self._topics:
            journal = Journal(place, layout.topic_journal(*each.plan.folder), topic.MACHINE, self._environment)
            journal.begin_at(
                each.plan.entry, RestoreTopic(each.restored(incarnations, self._environment.now_ms()), place.generation)
            )

    def begin_cluster(self) -> None:
        incarnations, now = self._incarnations, self._environment.now_ms()
        restored = ClusterRestored(
            cluster_id=self._found.cluster_id,
            nodes=tuple(
                Node(name, self._url(store), self._found.racks.get(name, ""), incarnations[name])
                for name, store in self._stores.items()
            ),
            former_nodes=tuple(FormerNode(*each) for each in sorted(self._found.former)),
            topics=tuple(each.record(now) for each in self._topics),
        )
        journal = Journal(self._place(), layout.CLUSTER_JOURNAL, cluster.MACHINE, self._environment)
        self.check_markers()
        moved = None if self._is_at_root else self._journal_nodes()
        root = self._found.journal_stores[0].url if self._is_at_root and len(restored.nodes) > 1 else ""
        journal.begin_at(topic_plan.next_number(self._found.newest), RestoreCluster(restored, moved, root=root))

    def _url(self, store: Store) -> str:
        return AT_THE_ROOT if self._is_at_root and store is self._found.journal_stores[0] else store.url

    @property
    def _incarnations(self) -> dict[NodeId, str]:
        return {name: marker.incarnation for name, marker in self._markers.items()}

    def _place(self) -> JournalPlace:
        if self._is_at_root:
            return OneStore(self._found.journal_stores[0])
        nodes = self._journal_nodes().nodes
        members = [Member(self._stores[each.node], each.node, each.incarnation) for each in nodes]
        return SeveralStores(Members(members), self._found.generation)

    def _journal_nodes(self) -> JournalNodes:
        names = {store.url: name for name, store in self._stores.items()}
        urls = [store.url for store in self._found.journal_stores]
        nodes = tuple(JournalNode(names[url], url, self._markers[names[url]].incarnation) for url in urls)
        return JournalNodes(self._found.cluster_id, nodes, self._found.generation)


def new_folder(environment: Environment) -> str:
    """Return the name of a new folder for objects that are set aside; ends with "/"."""
    now_ms = environment.now_ms()
    try:
        when = f"{dt.datetime.fromtimestamp(now_ms / 1000, dt.timezone.utc):%Y%m%dT%H%M%S}"
    except (ValueError, OverflowError, OSError):
        when = f"{now_ms}ms"  # a clock that is wrong: Python has no year 10000
    return f"set-aside/{when}-{environment.nonce()}/"


def _set_aside(store: Store, key: str, folder: str) -> None:
    """Move an object into a folder from `new_folder`. Do nothing if it does not exist. Raises `StoreError`."""
    with contextlib.suppress(ObjectMissing):
        _copy_aside(store, key, folder)
        store.delete(key)


def _copy_aside(store: Store, key: str, folder: str) -> None:
    """Copy an object into a folder from `new_folder`. Raises `StoreError`."""
    size = store.size(key)
    writer = store.open_write(f"{folder}{key}")
    try:
        for position in range(0, size, RANGE_BYTES):
            writer.write(store.read(key, position, RANGE_BYTES))
        writer.close()
    except BaseException:
        writer.discard()
        raise


_LEVEL = 3
"""The level of segments with unknown history: they are not merged any more."""


class TopicRebuild:
    """Rebuilds one topic."""

    def __init__(self, plan: TopicPlan, stores: dict[NodeId, Store]) -> None:
        self.plan = plan
        self._stores = stores
        self._schemas = plan.schemas
        self._files = {number: list(nodes) for number, (_, nodes) in plan.files.items()}
        self._segments = {
            (number, each.file.name): list(each.nodes)
            for number, partition in enumerate(plan.partitions)
            for each in partition.segments
        }

    def salvage(self, aside: str) -> None:
        """Write the files that are made of the good chunks of damaged ones. `aside` is for those that are replaced."""
        folder = self.plan.folder
        decoded = schema.decode_all(self._schemas, f"topic {folder.topic!r}")
        for number, partition in enumerate(self.plan.partitions):
            for each in partition.segments:
                if each.salvage is not None:
                    best = _best(partition)
                    salvage.write(each.salvage, self._stores, folder.prefix, self._stores[best], decoded)
                    self._segments[number, each.file.name].append(best)
        for file in sorted(self.plan.files_made):
            name, (holder,) = self.plan.files[file]
            key = layout.append_file(*folder, name)
            _copy_aside(self._stores[holder], key, aside)
            salvage.write_append_file(tuple(self._stores.values()), self._stores[holder], key, self._places(file))

    def complete(self) -> None:
        """Copy to one replica of each partition what it lacks, and rebuild lost indexes."""
        for number, partition in enumerate(self.plan.partitions):
            best = _best(partition)
            for each in partition.segments:
                key = f"{self.plan.folder.prefix}{number}/{each.file.name}"
                for name in each.unindexed:
                    segment.rebuild_index(self._stores[name], key)
                self._copy_segment(number, each, key, best)
            for file in sorted({chunk.file for chunk in partition.chunks}):
                self._copy_file(file, best)

    def restored(self, incarnations: dict[NodeId, str], now: int) -> TopicRestored:
        """Return the first event of the topic's journal. `now` stands in for unknown times of compaction (ms)."""
        numbers = {file: number for number, file in enumerate(sorted(self._files))}
        partitions = tuple(
            self._partition(number, numbers, incarnations, now) for number in range(len(self.plan.partitions))
        )
        holding = {node for nodes in (*self._files.values(), *self._segments.values()) for node in nodes}
        members = holding | {node for each in partitions for node in each.replicas}
        return TopicRestored(
            entry=self.plan.entry,
            name=self.plan.folder.topic,
            topic_id=self.plan.folder.topic_id,
            config=self.plan.config,
            schemas=self._schemas,
            incarnations={node: incarnations[node] for node in self._stores if node in members},
            partitions=partitions,
            files=tuple(self._file(file, incarnations) for file in sorted(self._files)),
            producers=self.plan.producers,
        )

    def record(self, now: int) -> TopicRecord:
        """Return the cluster's record of the topic. `now` stands in for an unknown time of creation."""
        description = self.plan.description
        created_ms = description.created_ms if description is not None else 0
        assignments = tuple(each.replicas for each in self.plan.partitions)
        return TopicRecord(*self.plan.folder, created_ms or now, self.plan.config, assignments, self._schemas)

    def _copy_segment(self, number: int, chosen: ChosenSegment, key: str, target: NodeId) -> None:
        nodes = self._segments[number, chosen.file.name]
        if target in nodes:
            return

        def copy_from(source: NodeId) -> None:
            transfer.copy_segment(self._stores[source], self._stores[target], key, chosen.file)

        def leave_out(source: NodeId, error: CorruptObject | StoreError) -> None:
            stop_unless_damaged(source, error)
            nodes.remove(source)  # it was whole at the survey

        if not transfer.has_object(self._stores[target], layout.segment_file(key)):
            try:
                first_readable([*nodes], copy_from, leave_out)
            except AllCopiesFailed as failed:
                raise next(iter(failed.errors.values())) from failed
        nodes.append(target)

    def _copy_file(self, number: int, target: NodeId) -> None:
        nodes = self._files[number]
        if target in nodes:
            return
        key = layout.append_file(*self.plan.folder, self.plan.files[number][0])

        def copy_from(source: NodeId) -> None:
            transfer.copy_append_file(self._stores[source], self._stores[target], key, self._places(number))
            nodes.append(target)

        # A file in which another chunk is damaged can be read from, but not copied.
        with contextlib.suppress(AllCopiesFailed):
            first_readable([*nodes], copy_from, stop_unless_damaged)

    def _places(self, file: int) -> list[StagedChunk]:
        return [
            chunk.place(number)
            for number, each in enumerate(self.plan.partitions)
            for chunk in each.chunks
            if chunk.file == file
        ]

    def _partition(
        self, number: int, files: dict[int, int], incarnations: dict[NodeId, str], now: int
    ) -> RestoredPartition:
        plan = self.plan.partitions[number]
        reached = BEFORE_ALL_TIMES
        segments = []
        for each in plan.segments:
            reached = max(reached, each.file.max_timestamp)
            holders = _holders(self._segments[number, each.file.name], incarnations)
            counts = each.file.keyed
            keyed = None if counts is None else Keyed(counts.rows, counts.tombstones, now, counts.placeholder)
            segments.append(SegmentRef.of(each.file, holders, _LEVEL, reached, (0, now), keyed))
        chunks: list[ChunkRef] = []
        for chunk in plan.chunks:
            reached = max(reached, chunk.max_timestamp)
            chunks.append(msgspec.structs.replace(chunk, file=files[chunk.file], timestamp_reached=reached))
        return RestoredPartition(
            plan.replicas, plan.epoch_starts, plan.log_start, plan.log_end, tuple(segments), tuple(chunks)
        )

    def _file(self, number: int, incarnations: dict[NodeId, str]) -> FileRef:
        assert self.plan.description is not None, "only a description names append files"
        known = self.plan.description.topic.file(number)
        return msgspec.structs.replace(known, holders=_holders(self._files[number], incarnations))


def _best(partition: PartitionPlan) -> NodeId:
    """Return the replica that has the most of a partition, and so is completed."""
    return max(partition.replicas, key=lambda each: partition.reached.get(each, partition.log_start))


def _holders(nodes: Sequence[NodeId], incarnations: dict[NodeId, str]) -> tuple[Holder, ...]:
    return tuple(Holder(each, incarnations[each]) for each in nodes)
