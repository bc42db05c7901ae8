"""Rebuilding: a cluster whose every journal is gone is made again from the folders of its nodes.

The survey (`rebuild_survey`) says what each topic will be; this does it. Offsets stay what they were.

    1  the newest description of each topic is written to every node
    2  what can be had of segments that no node has whole is written as segments, each on one node
    3  what is left of journals, and what nothing places, is set aside
    4  one replica of each partition gets all of it, and indexes are made again
    5  each store gets a new incarnation: what a process of before does there counts for nothing
    6  each topic's journal begins
    7  the cluster's journal begins

The order makes it restartable: until the last step there is no cluster, and whoever was stopped begins again with the
survey. Only one process may do it at a time.
"""

from __future__ import annotations

import contextlib
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
from pyspark_log_coordinator.model.partition import BEFORE_ALL_TIMES, ChunkRef, Holder, NodeId, SegmentRef
from pyspark_log_coordinator.model.topic_state import FileRef
from pyspark_log_coordinator.rebuild import quarantine, rebuild_plan, salvage
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.restore import RestoredPartition, RestoreTopic, TopicRestored
from pyspark_log_storage import layout, node, schema, segment, transfer
from pyspark_log_storage.errors import InvalidOption, NodeMissing
from pyspark_log_storage.failover import AllCopiesFailed, first_readable, stop_unless_damaged
from pyspark_log_storage.node import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.rebuild.rebuild_plan import ChosenSegment, PartitionPlan, TopicPlan
    from pyspark_log_coordinator.rebuild.rebuild_survey import Survey
    from pyspark_log_storage.staged_chunk import StagedChunk
    from pyspark_log_storage.store import Store

_LEVEL = 3
"""Of segments whose history is not known: they are not merged any more."""


def rebuild(
    found: Survey,
    environment: Environment,
    *,
    journals_are_lost: bool = False,
    progress: Callable[[str], object] = bool,
) -> str:
    """Make the cluster again; return where things were set aside, on each store, as a folder's key.

    `progress` is told what is done next. Raises `InvalidOption` where a journal may be alive on a node that was not
    given, unless the caller knows better; `NodeMissing` where a store is no longer the one that was surveyed;
    `StoreError`. Whatever it raises, the same may be tried again, from the survey on.
    """
    if found.journals_may_live is not None and not journals_are_lost:
        raise InvalidOption(
            "journals-lost",
            f"{found.journals_may_live}. A cluster that goes on there, and this one, would never be one again. Give "
            "all nodes that are left, or say that the journals are lost for good with --journals-lost",
        )
    rebuild = _Rebuild(found, environment)
    rebuild.check_markers()
    for act, what in (
        (rebuild.describe, "writing descriptions"),
        (rebuild.salvage, "salvaging what is damaged everywhere"),
        (rebuild.set_aside, "setting aside what has no place"),
        (rebuild.complete, "completing one replica of each partition"),
        (rebuild.renew, "renewing the nodes"),
        (rebuild.begin_topics, "beginning the topics' journals"),
        (rebuild.begin_cluster, "beginning the cluster's journal"),
    ):
        progress(what)
        act()
    return rebuild.aside


class _Rebuild:
    """Carries a survey out."""

    def __init__(self, found: Survey, environment: Environment) -> None:
        self._found = found
        self._environment = environment
        self._stores = {each.node_id: each.store for each in found.given}
        self._markers = {each.node_id: each.marker for each in found.given}
        self._is_at_root = len(found.journal_stores) == 1
        self._topics = [_Topic(plan, self._stores) for plan in found.topics]
        self.aside = quarantine.new_folder(environment)

    def check_markers(self) -> None:
        """Raise `NodeMissing` where a store is not the node that this process knows."""
        for name, store in self._stores.items():
            if node.read_marker(store) != self._markers[name]:
                raise NodeMissing(
                    store.url,
                    layout.KEY,
                    f"the store at {store.url} is no longer node {name!r} as it was found: its disk was unmounted, or "
                    "another rebuilds this cluster too; look, and begin again",
                )

    def describe(self) -> None:
        for each in self._topics:
            if each.plan.description is not None:
                data = topic_description.encode(each.plan.description)
                for store in self._stores.values():
                    store.put(f"{each.plan.life.folder}{topic_description.NAME}", data)

    def salvage(self) -> None:
        for each in self._topics:
            each.salvage()

    def set_aside(self) -> None:
        for name, store in self._stores.items():
            keys = list(filter(layout.is_of_cluster, store.list(layout.CLUSTER_JOURNAL)))
            for each in self._topics:
                folder = each.plan.life.folder
                journal = store.list(layout.topic_journal(*each.plan.life))
                keys += [key for key in journal if layout.is_of_topic(key, folder)]
                stems = each.plan.segments_aside.get(name, ())
                keys += [f"{folder}{stem}{end}" for stem in stems for end in (".log", ".index")]
                keys += [f"{folder}append/{file}" for file in each.plan.files_aside.get(name, ())]
            for key in keys:
                quarantine.set_aside(store, key, self.aside)

    def complete(self) -> None:
        for each in self._topics:
            each.complete()

    def renew(self) -> None:
        for name, store in self._stores.items():
            is_root = self._is_at_root and store is self._found.journal_stores[0]
            marker = Marker(self._found.cluster_id, name, self._environment.nonce(), is_root)
            store.put(layout.KEY, node.encode(marker))
            self._markers[name] = marker

    def begin_topics(self) -> None:
        place = self._begin_place()
        incarnations = {name: marker.incarnation for name, marker in self._markers.items()}
        for each in self._topics:
            journal = Journal(place, layout.topic_journal(*each.plan.life), topic.MACHINE, self._environment)
            journal.begin_at(each.plan.entry, RestoreTopic(each.restored(incarnations), place.generation))

    def begin_cluster(self) -> None:
        incarnations = {name: marker.incarnation for name, marker in self._markers.items()}
        now = self._environment.now_ms()
        restored = ClusterRestored(
            cluster_id=self._found.cluster_id,
            nodes=tuple(
                Node(name, self._url(store), self._found.racks.get(name, ""), incarnations[name])
                for name, store in self._stores.items()
            ),
            former_nodes=tuple(FormerNode(*each) for each in sorted(self._found.former)),
            topics=tuple(each.record(incarnations, now) for each in self._topics),
        )
        journal = Journal(self._place(), layout.CLUSTER_JOURNAL, cluster.MACHINE, self._environment)
        self.check_markers()
        moved = None if self._is_at_root else self._journal_nodes()
        journal.begin_at(rebuild_plan.next_number(self._found.newest), RestoreCluster(restored, moved))

    def _url(self, store: Store) -> str:
        return AT_THE_ROOT if self._is_at_root and store is self._found.journal_stores[0] else store.url

    def _begin_place(self) -> JournalPlace:
        """Return where the journals will be, and write that down where they are on several stores."""
        if not self._is_at_root:
            data = journal_nodes.encode(self._journal_nodes())
            for store in self._found.journal_stores:
                store.put(layout.JOURNAL_NODES, data)
        return self._place()

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


class _Topic:
    """Makes one topic again."""

    def __init__(self, plan: TopicPlan, stores: dict[NodeId, Store]) -> None:
        self.plan = plan
        self._stores = stores
        self._files = {number: list(nodes) for number, (_, nodes) in plan.files.items()}
        self._segments = {
            (number, each.file.name): list(each.nodes)
            for number, partition in enumerate(plan.partitions)
            for each in partition.segments
        }

    def salvage(self) -> None:
        """Write what can be had of segments that no node has whole."""
        for number, partition in enumerate(self.plan.partitions):
            for each in partition.segments:
                if each.salvage is not None:
                    best = _best(partition)
                    salvage.write(each.salvage, self._stores, self.plan.life.folder, self._stores[best])
                    self._segments[number, each.file.name].append(best)

    def complete(self) -> None:
        """Give one replica of each partition all of it, and make lost indexes again."""
        for number, partition in enumerate(self.plan.partitions):
            best = _best(partition)
            for each in partition.segments:
                self._index(number, each)
                self._give_segment(number, each, best)
            for file in sorted({chunk.file for chunk in partition.chunks}):
                self._give_file(file, best)

    def restored(self, incarnations: dict[NodeId, str]) -> TopicRestored:
        """Return the first event of the topic's journal."""
        numbers = {file: number for number, file in enumerate(sorted(self._files))}
        partitions = tuple(
            self._partition(number, numbers, incarnations) for number in range(len(self.plan.partitions))
        )
        holding = {node for nodes in (*self._files.values(), *self._segments.values()) for node in nodes}
        members = holding | {node for each in partitions for node in each.replicas}
        return TopicRestored(
            entry=self.plan.entry,
            name=self.plan.life.topic,
            topic_id=self.plan.life.topic_id,
            config=self.plan.config,
            schemas=self._schemas(),
            incarnations={node: incarnations[node] for node in self._stores if node in members},
            partitions=partitions,
            files=tuple(self._file(file, incarnations) for file in sorted(self._files)),
            producers=self.plan.producers,
        )

    def record(self, incarnations: dict[NodeId, str], now: int) -> TopicRecord:
        """Return what the cluster says of the topic; `now` is when it was created where nobody knows that."""
        description = self.plan.description
        created_ms = description.created_ms if description is not None else 0
        assignments = tuple(each.replicas for each in self.plan.partitions)
        life = self.plan.life
        return TopicRecord(life.topic, life.topic_id, created_ms or now, self.plan.config, assignments, self._schemas())

    def _schemas(self) -> tuple[bytes, ...]:
        if self.plan.description is not None:
            return self.plan.description.topic.schemas
        return tuple(schema.encode(each) for each in schema.RECORD_SCHEMAS)

    def _index(self, number: int, chosen: ChosenSegment) -> None:
        key = f"{self.plan.life.folder}{number}/{chosen.file.name}"
        for name in chosen.unindexed:
            segment.rebuild_index(self._stores[name], key)

    def _give_segment(self, number: int, chosen: ChosenSegment, target: NodeId) -> None:
        nodes = self._segments[number, chosen.file.name]
        if target in nodes:
            return
        key = f"{self.plan.life.folder}{number}/{chosen.file.name}"
        if not transfer.is_there(self._stores[target], f"{key}.log"):
            transfer.copy_segment(self._stores[nodes[0]], self._stores[target], key, chosen.file)
        nodes.append(target)

    def _give_file(self, number: int, target: NodeId) -> None:
        nodes = self._files[number]
        if target in nodes:
            return
        key = layout.append_file(*self.plan.life, self.plan.files[number][0])

        def copy_from(source: NodeId) -> None:
            transfer.copy_append_file(self._stores[source], self._stores[target], key, self._places(number))
            nodes.append(target)

        # One that has more chunks, of which one is damaged, can be read from, but not copied.
        with contextlib.suppress(AllCopiesFailed):
            first_readable([*nodes], copy_from, stop_unless_damaged)

    def _places(self, file: int) -> list[StagedChunk]:
        return [
            chunk.place(number)
            for number, each in enumerate(self.plan.partitions)
            for chunk in each.chunks
            if chunk.file == file
        ]

    def _partition(self, number: int, files: dict[int, int], incarnations: dict[NodeId, str]) -> RestoredPartition:
        plan = self.plan.partitions[number]
        reached = BEFORE_ALL_TIMES
        segments = []
        for each in plan.segments:
            reached = max(reached, each.file.max_timestamp)
            holders = _holders(self._segments[number, each.file.name], incarnations)
            segments.append(_segment_ref(each, holders, reached))
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
    """Return the replica that has most of a partition: it gets the rest."""
    return max(partition.replicas, key=lambda each: partition.reached.get(each, partition.log_start))


def _holders(nodes: Sequence[NodeId], incarnations: dict[NodeId, str]) -> tuple[Holder, ...]:
    return tuple(Holder(each, incarnations[each]) for each in nodes)


def _segment_ref(chosen: ChosenSegment, holders: tuple[Holder, ...], timestamp_reached: int) -> SegmentRef:
    file = chosen.file
    return SegmentRef(
        name=file.name,
        holders=holders,
        base_offset=file.base_offset,
        end_offset=file.end_offset,
        chunks=file.chunks,
        log_bytes=file.log_bytes,
        level=_LEVEL,
        min_timestamp=file.min_timestamp,
        max_timestamp=file.max_timestamp,
        timestamp_reached=timestamp_reached,
    )
