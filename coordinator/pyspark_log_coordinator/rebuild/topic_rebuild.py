"""The rebuild of one topic: writes and copies its files as the plan says, and makes its journal's first event."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.machine import TopicRecord
from pyspark_log_coordinator.model.partition import BEFORE_ALL_TIMES, ChunkRef, Holder, NodeId, SegmentRef
from pyspark_log_coordinator.model.topic_state import FileRef
from pyspark_log_coordinator.rebuild import salvage
from pyspark_log_coordinator.topic.restore import RestoredPartition, TopicRestored
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.segments import segment, transfer
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, stop_unless_damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.rebuild.partition_plan import ChosenSegment, PartitionPlan
    from pyspark_log_coordinator.rebuild.topic_plan import TopicPlan
    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.stores.store import Store

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

    def salvage(self) -> None:
        """Write the segments that are made of the good chunks of damaged ones."""
        folder = self.plan.folder
        decoded = schema.decode_all(self._schemas, f"topic {folder.topic!r}")
        for number, partition in enumerate(self.plan.partitions):
            for each in partition.segments:
                if each.salvage is not None:
                    best = _best(partition)
                    salvage.write(each.salvage, self._stores, folder.prefix, self._stores[best], decoded)
                    self._segments[number, each.file.name].append(best)

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
        if not transfer.has_object(self._stores[target], layout.segment_file(key)):
            transfer.copy_segment(self._stores[nodes[0]], self._stores[target], key, chosen.file)
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

    def _partition(self, number: int, files: dict[int, int], incarnations: dict[NodeId, str]) -> RestoredPartition:
        plan = self.plan.partitions[number]
        reached = BEFORE_ALL_TIMES
        segments = []
        for each in plan.segments:
            reached = max(reached, each.file.max_timestamp)
            holders = _holders(self._segments[number, each.file.name], incarnations)
            segments.append(SegmentRef.of(each.file, holders, _LEVEL, reached))
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
