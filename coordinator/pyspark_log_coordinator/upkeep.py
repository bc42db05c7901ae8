"""Upkeep: carrying out what maintenance, retention and the removal of orphans decide.

Any process may do it, many at once: each result is one journal entry, and what another did first has gone stale.
Files are removed only after the entry that gives them up.

On several nodes rows are read from the first holder that has them whole, a segment is written to the whole ISR at once,
and files are removed on every node that is there. A node that fails is left out, and the others go on.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator import maintenance, node_checkpoints, replicas, topic_description
from pyspark_log_coordinator.assignment import by_number
from pyspark_log_coordinator.available import AvailableNodes
from pyspark_log_coordinator.maintenance import Job
from pyspark_log_coordinator.orphans import ForgetReleased, OrphanFloor, RaiseOrphanFloor
from pyspark_log_coordinator.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.retention import ApplyRetention
from pyspark_log_coordinator.rolling import SwapSegments
from pyspark_log_coordinator.topic import MaintainSegments
from pyspark_log_coordinator.write_targets import write_targets
from pyspark_log_storage import append_file, chunk, layout, segment
from pyspark_log_storage.chunk import CHUNK_BYTES
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.fan_out import FanOutWriter, is_the_nodes_fault
from pyspark_log_storage.node import require_marker, require_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.partition import ChunkRef
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
    """A job with all that a process needs to do it without reading the journal."""

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


def carry_out(log: Log, work: Work, nonce: str) -> SwapSegments:
    """Write the job's segment and return the swap that puts it in its place.

    Holds a chunk or two in memory. `log` need not be opened. Raises `CorruptObject`, `StoreError`; what it wrote then
    is an orphan.
    """
    job = work.job
    folder = f"{layout.topic_folder(work.topic, work.topic_id)}{job.partition}/"
    name = layout.segment_name(job.base_offset, work.born, nonce)
    stores = {each: log.store_at(work.addresses[each]) for each in work.targets}
    together = _Together(stores) if len(stores) > 1 else None
    place = together or next(iter(stores.values()))
    writer = segment.SegmentWriter(place, folder, name, job.base_offset, job.epoch_starts)
    try:
        _copy(log, work, writer)
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


def _copy(log: Log, work: Work, writer: segment.SegmentWriter) -> None:
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

    for epoch, header, data, name in _Reading(log, work).chunks():
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


class _Reading:
    """Reads the rows of a job, each chunk from the first holder that has it whole."""

    def __init__(self, log: Log, work: Work) -> None:
        self._log = log
        self._work = work
        self._folder = layout.topic_folder(work.topic, work.topic_id)
        self._where = f"topic {work.topic!r}, partition {work.job.partition}"
        self._failing: set[NodeId] = set()
        """Nodes whose stores did not answer: they are asked last."""

    def chunks(self) -> Iterator[tuple[int, chunk.Header, pa.Buffer, str]]:
        """Yield leader epoch, header, bytes and name of each chunk, checked against what is recorded."""
        work = self._work
        for ref, source in zip(work.job.segments, work.segments, strict=True):
            yield from self._of_segment(ref, source)
        for each in work.job.chunks:
            name = f"{self._where}, offset {each.base_offset}"
            header, data = self._bytes(work.files[each.file], each, name)
            yield each.leader_epoch, header, data, name

    def _bytes(self, source: Source, ref: ChunkRef, name: str) -> tuple[chunk.Header, pa.Buffer]:
        key = layout.append_file(self._work.topic, self._work.topic_id, source.name)
        place = ref.place(self._work.job.partition)
        errors: list[LogError] = []
        for node_id in self._order(source):
            try:
                return append_file.read_bytes(self._store(node_id), key, place, name)
            except (CorruptObject, StoreError) as error:
                errors.append(self._noted(node_id, error))
        raise self._reason(source, errors, name)

    def _of_segment(self, ref: SegmentRef, source: Source) -> Iterator[tuple[int, chunk.Header, pa.Buffer, str]]:
        key = f"{self._folder}{self._work.job.partition}/{source.name}"
        what = f"{self._where}, segment {source.name}"
        reached = ref.base_offset
        errors: list[LogError] = []
        for node_id in self._order(source):
            try:
                for entry, header, data in segment.chunks(self._store(node_id), key):
                    if entry.end_offset <= reached:
                        continue  # it came from another node, which failed later
                    if entry.base_offset != reached:
                        raise CorruptObject(what, f"rows from {reached} to {entry.base_offset - 1} are missing")
                    reached = entry.end_offset
                    yield entry.leader_epoch, header, data, f"{self._where}, offset {entry.base_offset}"
                if reached == ref.end_offset:
                    return
                errors.append(CorruptObject(what, f"it ends at {reached}, not {ref.end_offset}"))
            except (CorruptObject, StoreError) as error:
                errors.append(self._noted(node_id, error))
        raise self._reason(source, errors, what)

    def _order(self, source: Source) -> list[NodeId]:
        return sorted(source.nodes, key=lambda each: each in self._failing)

    def _store(self, node_id: NodeId) -> Store:
        return self._log.store_at(self._work.addresses[node_id])

    def _noted(self, node_id: NodeId, error: LogError) -> LogError:
        if isinstance(error, StoreError) and not isinstance(error, ObjectMissing):
            self._failing.add(node_id)
        return error

    def _reason(self, source: Source, errors: list[LogError], what: str) -> LogError:
        if errors:
            return errors[0]
        message = f"{what}: none of the nodes that have {source.name} is there; bring one back"
        return StoreUnavailable("", source.name, message)


def maintain(
    log: Log,
    handle: TopicHandle,
    nonce: Callable[[], str],
    progress: Callable[[int], object] = bool,
    failed: Callable[[Job, LogError], object] | None = None,
) -> dict[str, int]:
    """Roll and merge until nothing is left to do; return how many segments were made, and of how many bytes.

    Segments grow to `segment.bytes`. `progress` is told how many bytes were read since it was told last. `failed` is
    told of a job that cannot be done: its partition stays as it is, and the others go on. Without it the error is
    raised.
    """
    made = size = 0
    stuck: set[int] = set()
    while jobs := [job for job in _due(handle) if job.partition not in stuck]:
        # All before the first is swapped in: what others did meanwhile is no longer in the state that follows.
        for work in [work_of(handle, job) for job in jobs]:
            try:
                swap = carry_out(log, work, nonce())
            except LogError as error:
                if isinstance(error, StoreError) and work.job not in _due(handle):
                    continue  # another did it, and the files are gone
                if failed is None:
                    raise
                failed(work.job, error)
                stuck.add(work.job.partition)
                continue
            handle.submit(MaintainSegments((swap,)))
            made += 1
            size += work.job.bytes
            progress(work.job.bytes)
    return {"segments": made, "bytes": size}


def _due(handle: TopicHandle) -> list[Job]:
    state = handle.refresh()
    return maintenance.plan(state, handle.now_ms(), state.config.segment_bytes)


def housekeep(
    log: Log,
    handle: TopicHandle,
    *,
    thorough: bool = True,
    failed: Callable[[NodeId, LogError], object] | None = None,
) -> int:
    """Do what keeps a topic's cost flat, as far as it is due; return how many objects were removed.

    That is retention, removal of replaced and expired files and of orphans, trimming of the journal, and the
    checkpoints. Orphans are looked for among all files; `thorough=False` does that only when the floor has risen, so
    that it costs the same whatever the number of files. `failed` is told of a node on which something could not be
    done, after all was done on the others. Without it the error is raised.
    """
    nodes = AvailableNodes(log)
    now = handle.now_ms()
    # Before the first entry: on a full disk this makes room for it.
    removed = _remove_released(nodes, handle, now)
    handle.submit(ApplyRetention())
    removed += _remove_released(nodes, handle, now)
    raised = handle.submit(RaiseOrphanFloor(handle.journal.number))
    risen = any(isinstance(event, OrphanFloor) for event in raised.events)
    count = len(removed)
    if thorough or risen:
        count += _remove_orphans(nodes, handle)
    _write_checkpoints(nodes, handle)
    count += handle.journal.trim()
    for name, error in nodes.failures.items():
        if failed is None:
            raise error
        failed(name, error)
    return count


def write_checkpoints(log: Log, handle: TopicHandle) -> None:
    """Write Kafka's checkpoints of the topic on its nodes, and its description, where they have changed.

    So each node is readable by itself. They are a copy for people and for recovery, and decide nothing: of two
    processes the one that knows less may write last.
    """
    _write_checkpoints(AvailableNodes(log), handle)


def _write_checkpoints(nodes: AvailableNodes, handle: TopicHandle) -> None:
    state = handle.refresh()
    folder = layout.topic_folder(handle.name, handle.topic_id)
    described = {topic_description.NAME: topic_description.encode(topic_description.of(handle))}

    def write(name: NodeId, store: Store) -> None:
        wanted = node_checkpoints.contents(state, name)
        node_checkpoints.write(store, folder, wanted | described if wanted else {})

    nodes.each(write)


def remove_released(log: Log, handle: TopicHandle, now: int) -> list[str]:
    """Remove the files that were released longer ago than `file.delete.delay.ms`; return their keys."""
    return _remove_released(AvailableNodes(log), handle, now)


def _remove_released(nodes: AvailableNodes, handle: TopicHandle, now: int) -> list[str]:
    state = handle.refresh()
    # Clocks differ: what was released later goes later.
    delay = state.config.file_delete_delay_ms
    due = list(itertools.takewhile(lambda each: each.at_ms + delay <= now, state.released))
    removed = [key for each in due for key in _objects(handle, each.key)]
    nodes.each(lambda _, store: _delete(store, removed))
    # What a node keeps that is missing or broken is an orphan by and by. One that others may well use waits.
    if due and nodes.stores and nodes.others_are_away:
        handle.submit(ForgetReleased(due[-1].key))
    return removed


def _delete(store: Store, keys: list[str]) -> None:
    for key in keys:
        store.delete(key)


def all_orphans(log: Log, handle: TopicHandle) -> dict[NodeId, list[str]]:
    """Return the orphans of each node that is there."""
    return _orphans(AvailableNodes(log), handle)


def _orphans(nodes: AvailableNodes, handle: TopicHandle) -> dict[NodeId, list[str]]:
    state = handle.refresh()
    found: dict[NodeId, list[str]] = {}

    def look(name: NodeId, store: Store) -> None:
        found[name] = _orphans_in(store, handle, state)

    nodes.each(look)
    return found


def _remove_orphans(nodes: AvailableNodes, handle: TopicHandle) -> int:
    found = _orphans(nodes, handle)
    nodes.each(lambda name, store: _delete(store, found[name]))
    return sum(len(found[name]) for name in nodes.stores)


def orphans(store: Store, handle: TopicHandle) -> list[str]:
    """Return the keys of the files in a node's store that no entry names and none ever will."""
    return _orphans_in(store, handle, handle.refresh())


def _orphans_in(store: Store, handle: TopicHandle, state: Topic) -> list[str]:
    folder = layout.topic_folder(handle.name, handle.topic_id)
    named = {f"{folder}append/{file.name}" for file in state.files}
    named |= {key for each in state.released for key in _objects(handle, each.key)}
    for number, partition in enumerate(state.partitions):
        rolled = (*partition.segments, *partition.staged)
        named |= {f"{folder}{number}/{each.name}{end}" for each in rolled for end in _ENDINGS}
    found = []
    folders = ["append", *(str(number) for number in range(len(state.partitions)))]
    for each in folders:
        for key in store.list(f"{folder}{each}/"):
            name = key.rsplit("/", 1)[1].partition(".")[0]
            if key not in named and layout.has_born(name) and layout.born_of(name) < state.orphan_floor:
                found.append(key)
    return found


_ENDINGS = (".log", ".index")


def _objects(handle: TopicHandle, key: str) -> list[str]:
    whole = f"{layout.topic_folder(handle.name, handle.topic_id)}{key}"
    return [whole] if key.startswith("append/") else [whole + ending for ending in _ENDINGS]
