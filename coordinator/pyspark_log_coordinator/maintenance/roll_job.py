"""Roll tasks: a roll job with everything that a worker needs to run it without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.log.nearest_holders import nearest_first, reachable_holders
from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.replication.write_targets import write_targets
from pyspark_log_coordinator.segments.roll_plan import RollJob

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_state import FileRef


class RollSource(msgspec.Struct, frozen=True):
    """A file or a segment to read from, and the nodes that hold it, nearest first."""

    name: str
    nodes: tuple[NodeId, ...]


class RollTask(msgspec.Struct, frozen=True):
    """A job with the state of its files and nodes."""

    job: RollJob
    topic: str
    topic_id: str
    files: dict[int, RollSource]
    """The append files of the job's chunks, by number."""
    segments: tuple[RollSource, ...]
    """The job's segments."""
    targets: tuple[NodeId, ...]
    """The nodes to which the new segment is written."""
    addresses: dict[NodeId, str]
    """The addresses of the cluster's nodes."""
    schemas: tuple[pa.Schema, ...]
    compression: str
    incarnations: dict[NodeId, str]
    born: int


def roll_task_of(handle: TopicHandle, job: RollJob) -> RollTask:
    """Return the task of a job, by the known state of the topic."""
    state, members = handle.journal.state, handle.log.cluster.state.nodes
    readable = _Readable(handle, job.partition)
    return RollTask(
        job=job,
        topic=handle.name,
        topic_id=handle.topic_id,
        files={each.file: readable.source(state.file(each.file)) for each in job.chunks},
        segments=tuple(readable.source(each) for each in job.segments),
        targets=write_targets(state, "all", handle.log.missing_nodes)[job.partition],
        addresses={name: member.url for name, member in members.items()},
        schemas=handle.schemas,
        compression=state.config.compression_type,
        incarnations=state.incarnations,
        born=handle.journal.number,
    )


class _Readable:
    """The nodes to read a partition's files from, nearest first."""

    def __init__(self, handle: TopicHandle, partition: int) -> None:
        self._log = handle.log
        self._state = handle.journal.state
        self._nodes = nearest_first(self._log, leader=self._state.partitions[partition].leader)
        self._known: dict[tuple[Holder, ...], tuple[NodeId, ...]] = {}

    def source(self, file: FileRef | SegmentRef) -> RollSource:
        nodes = self._known.get(file.holders)
        if nodes is None:  # most files of a topic have the same holders
            nodes = tuple(reachable_holders(self._log, self._state, self._nodes, file.holders))
            self._known[file.holders] = nodes
        return RollSource(file.name, nodes)
