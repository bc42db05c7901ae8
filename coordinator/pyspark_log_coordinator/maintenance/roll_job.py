"""Roll tasks: a roll job with everything that a worker needs to run it without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.log.nearest_holders import nearest_first, reachable_holders
from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.replication.write_targets import targets_of
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
    state = handle.journal.state
    targets = targets_of(state, job.partition, "all", handle.log.missing_nodes)
    for each in targets:
        handle.log.member(each)  # one may have joined since this process read the cluster's journal
    members = handle.log.cluster.state.nodes
    nodes = nearest_first(handle.log, leader=state.partitions[job.partition].leader)
    known: dict[tuple[Holder, ...], tuple[NodeId, ...]] = {}

    def source(file: FileRef | SegmentRef) -> RollSource:
        if file.holders not in known:  # most files of a topic have the same holders
            known[file.holders] = tuple(reachable_holders(handle.log, state, nodes, file.holders))
        return RollSource(file.name, known[file.holders])

    return RollTask(
        job=job,
        topic=handle.name,
        topic_id=handle.topic_id,
        files={each.file: source(state.file(each.file)) for each in job.chunks},
        segments=tuple(source(each) for each in job.segments),
        targets=targets,
        addresses={name: member.url for name, member in members.items()},
        schemas=handle.schemas,
        compression=state.config.compression_type,
        incarnations=state.incarnations,
        born=handle.journal.number,
    )
