"""Segment work: a maintenance job with all that a process needs to do it, and how it is done.

The rows of a job become a new segment, written to the whole ISR at once. Any process may do it, with no journal: what
it made comes into its place by one journal entry, and what another did first has gone stale. A node that fails is left
out, and the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator import replicas
from pyspark_log_coordinator.assignment import by_number
from pyspark_log_coordinator.maintenance import Job
from pyspark_log_coordinator.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.rolling import SwapSegments
from pyspark_log_coordinator.work_rows import WorkRows
from pyspark_log_coordinator.write_targets import write_targets
from pyspark_log_storage import chunk, layout, segment
from pyspark_log_storage.chunk import CHUNK_BYTES
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, StoreUnavailable
from pyspark_log_storage.fan_out import FanOutWriter, is_the_nodes_fault
from pyspark_log_storage.node import require_marker, require_written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.topic_state import FileRef, Topic
    from pyspark_log_storage.store import Store

SMALL_CHUNK_BYTES = CHUNK_BYTES // 8
"""A stored chunk of this size or more is copied as it is when segments are merged."""
TINY_CHUNK_BYTES = 32 * 1024
"""Likewise when chunks are rolled, which all that is written goes through: encoding it again would slow the writers."""


class Source(msgspec.Struct, frozen=True):
    """A file or a segment to read from, and the nodes that have it, the best first."""

    name: str
    nodes: tuple[NodeId, ...]


class Work(msgspec.Struct, frozen=True):
    """A job, and what the topic's state says about its files and its nodes."""

    job: Job
    topic: str
    topic_id: str
    files: dict[int, Source]
    """The append files that the job's chunks are in, by number."""
    segments: tuple[Source, ...]
    """The job's segments."""
    targets: tuple[NodeId, ...]
    """The nodes that the new segment is written to."""
    addresses: dict[NodeId, str]
    """Of all these nodes, as the cluster knows them."""
    schemas: tuple[pa.Schema, ...]
    compression: str
    incarnations: dict[NodeId, str]
    born: int


def work_of(handle: TopicHandle, job: Job) -> Work:
    """Return a job of the topic's present state as work for anybody."""
    state, members = handle.journal.state, handle.log.cluster.state.nodes
    readable = _Readable(handle.log, state, job.partition)
    return Work(
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
    """Which nodes to read a partition's files from: the leader first, fenced nodes last, missing ones not at all."""

    def __init__(self, log: Log, state: Topic, partition: int) -> None:
        self._log = log
        self._state = state
        self._leader = state.partitions[partition].leader
        self._known: dict[tuple[Holder, ...], tuple[NodeId, ...]] = {}

    def source(self, file: FileRef | SegmentRef) -> Source:
        nodes = self._known.get(file.holders)
        if nodes is None:  # most files of a topic have the same holders
            nodes = self._known[file.holders] = self._nodes(file.holders)
        return Source(file.name, nodes)

    def _nodes(self, holders: tuple[Holder, ...]) -> tuple[NodeId, ...]:
        members, missing = self._log.cluster.state.nodes, self._log.missing_nodes
        there = [
            each.node
            for each in replicas.present(self._state, holders)
            if each.node in members and each.node not in missing
        ]
        return tuple(sorted(there, key=lambda each: (members[each].fenced, each != self._leader, by_number(each))))


def carry_out(store_at: Callable[[str], Store], work: Work, nonce: str) -> SwapSegments:
    """Write the job's segment and return the swap that puts it in its place.

    `store_at` opens a node's store by its address, as often as it is asked. Holds a chunk or two in memory.
    Raises `CorruptObject`, `StoreError`; what it wrote then is an orphan.
    """
    job = work.job
    folder = f"{layout.topic_folder(work.topic, work.topic_id)}{job.partition}/"
    name = layout.segment_name(job.base_offset, work.born, nonce)
    stores = {each: store_at(work.addresses[each]) for each in work.targets}
    together = _Together(stores) if len(stores) > 1 else None
    place = together or next(iter(stores.values()))
    writer = segment.SegmentWriter(place, folder, name, job.base_offset, job.epoch_starts)
    try:
        _copy(WorkRows(store_at, work), work, writer)
        if writer.end_offset != job.end_offset:
            where = f"topic {work.topic!r}, partition {job.partition}, offset {writer.end_offset}"
            raise CorruptObject(where, "the files that the journal names do not hold it: one was cut")
        done = writer.close()
    except BaseException:
        writer.discard()
        raise
    written = {each: stores[each] for each in (together.done if together else stores)}
    if not written:
        raise StoreUnavailable("", name, f"{name} is whole on no node: each failed at one of its two files; try again")
    made = SegmentRef(
        name=name,
        holders=_holders(written, work, f"{folder}{name}.log"),
        base_offset=done.base_offset,
        end_offset=done.end_offset,
        chunks=done.chunks,
        log_bytes=done.log_bytes,
        level=job.level,
        min_timestamp=done.min_timestamp,
        max_timestamp=done.max_timestamp,
        timestamp_reached=job.timestamp_reached,
    )
    return SwapSegments(job.partition, job.leader_epoch, made)


class _Together:
    """Several stores that get one segment at once; who fails is left out."""

    def __init__(self, stores: Mapping[NodeId, Store]) -> None:
        self._stores = stores
        self._log: FanOutWriter | None = None
        self._index: FanOutWriter | None = None

    @property
    def done(self) -> tuple[NodeId, ...]:
        """The nodes that have both files of the segment."""
        assert self._log is not None
        assert self._index is not None
        return tuple(each for each in self._log.done if each in self._index.done)

    def open_write(self, key: str) -> FanOutWriter:
        self._log = FanOutWriter(self._stores, key)
        return self._log

    def create(self, key: str, data: bytes) -> bool:
        assert self._log is not None, "a segment's index is made from its .log"
        self._index = FanOutWriter({each: self._stores[each] for each in self._log.done}, key)
        self._index.write(data)
        self._index.close()
        return True


def _holders(stores: Mapping[NodeId, Store], work: Work, key: str) -> tuple[Holder, ...]:
    """Return the nodes that are still those of the topic, and have what was written, after the last byte was.

    Raises `NodeMissing` where none is.
    """
    incarnations = work.incarnations
    found: list[Holder] = []
    errors: list[LogError] = []
    for name, store in stores.items():
        try:
            if len(work.addresses) == 1:
                require_marker(store, name, incarnations[name])
            else:
                require_written(store, name, incarnations[name], key)
        except (StoreError, CorruptObject) as error:
            if not is_the_nodes_fault(error):
                raise
            errors.append(error)
        else:
            found.append(Holder(name, incarnations[name]))
    if not found:
        raise errors[0]
    return tuple(found)


def _copy(rows: WorkRows, work: Work, writer: segment.SegmentWriter) -> None:
    """Copy large chunks as bytes, and join small ones of one schema and leader epoch into larger ones."""
    small: list[pa.RecordBatch] = []
    kind, size = (0, 0), 0
    enough = SMALL_CHUNK_BYTES if work.job.segments else TINY_CHUNK_BYTES

    def flush() -> None:
        nonlocal size
        if small:
            joined = pa.concat_batches(small) if len(small) > 1 else small[0]
            writer.append(*chunk.encode(joined, kind[0], work.compression))
            small.clear()
            size = 0

    for epoch, header, data, name in rows.chunks():
        if header.length >= enough:
            flush()
            writer.append(header, data)
            continue
        batch = chunk.decode(data, header, work.schemas, name)
        decoded = batch.get_total_buffer_size()  # as `nbytes` of a whole batch, and found at once
        if small and ((header.schema_id, epoch) != kind or size + decoded > CHUNK_BYTES):
            flush()
        kind = header.schema_id, epoch
        small.append(batch)
        size += decoded
    flush()
