"""Upkeep: carrying out what maintenance, retention and the removal of orphans decide.

Any process may do it, many at once: each result is one journal entry, and what another did first has gone stale.
Files are removed only after the entry that gives them up.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator import maintenance
from pyspark_log_coordinator.maintenance import Job
from pyspark_log_coordinator.orphans import ForgetReleased, OrphanFloor, RaiseOrphanFloor
from pyspark_log_coordinator.partition import SegmentRef
from pyspark_log_coordinator.retention import ApplyRetention
from pyspark_log_coordinator.rolling import SwapSegments
from pyspark_log_coordinator.topic import MaintainSegments
from pyspark_log_storage import append_file, checkpoints, chunk, layout, node, segment
from pyspark_log_storage.chunk import CHUNK_BYTES
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.log import TopicHandle
    from pyspark_log_storage.store import Store

SMALL_CHUNK_BYTES = CHUNK_BYTES // 8
"""A stored chunk of this size or more is copied as it is when segments are merged."""
TINY_CHUNK_BYTES = 32 * 1024
"""Likewise when chunks are rolled, which all that is written goes through: encoding it again would slow the writers."""


class Work(msgspec.Struct, frozen=True):
    """A job with all that a process needs to do it without reading the journal."""

    job: Job
    topic: str
    topic_id: str
    files: dict[int, str]
    """The names of the append files that the job's chunks are in, by number."""
    schemas: tuple[pa.Schema, ...]
    compression: str
    incarnations: dict[str, str]
    born: int


def work_of(handle: TopicHandle, job: Job) -> Work:
    """Return a job of the topic's present state as work for anybody."""
    state = handle.journal.state
    return Work(
        job=job,
        topic=handle.name,
        topic_id=handle.topic_id,
        files={each.file: state.file(each.file).name for each in job.chunks},
        schemas=handle.schemas,
        compression=state.config.compression_type,
        incarnations=state.incarnations,
        born=handle.journal.number,
    )


def carry_out(store: Store, work: Work, nonce: str) -> SwapSegments:
    """Write the job's segment and return the swap that puts it in its place.

    Holds a chunk or two in memory. Raises `CorruptObject`, `StoreError`; what it wrote then is an orphan.
    """
    job = work.job
    folder = f"{layout.topic_folder(work.topic, work.topic_id)}{job.partition}/"
    name = layout.segment_name(job.base_offset, work.born, nonce)
    writer = segment.SegmentWriter(store, folder, name, job.base_offset, job.epoch_starts)
    try:
        _copy(store, work, writer)
        if writer.end_offset != job.end_offset:
            where = f"topic {work.topic!r}, partition {job.partition}, offset {writer.end_offset}"
            raise CorruptObject(where, "the files that the journal names do not hold it: one was cut")
        done = writer.close()
    except BaseException:
        writer.discard()
        raise
    for node_id, incarnation in work.incarnations.items():
        node.require_marker(store, node_id, incarnation)
    made = SegmentRef(
        name=name,
        holders=tuple(work.incarnations),
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


def _copy(store: Store, work: Work, writer: segment.SegmentWriter) -> None:
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

    for epoch, header, data, name in _chunks(store, work):
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


def _chunks(store: Store, work: Work) -> Iterator[tuple[int, chunk.Header, pa.Buffer, str]]:
    """Yield leader epoch, header, bytes and name of each chunk of the job's range, checked against what is recorded."""
    folder = layout.topic_folder(work.topic, work.topic_id)
    where = f"topic {work.topic!r}, partition {work.job.partition}"
    for source in work.job.segments:
        reached = source.base_offset
        for entry, header, data in segment.chunks(store, f"{folder}{work.job.partition}/{source.name}"):
            yield entry.leader_epoch, header, data, f"{where}, offset {entry.base_offset}"
            reached = entry.end_offset
        if reached != source.end_offset:
            raise CorruptObject(f"{where}, segment {source.name}", f"it ends at {reached}, not {source.end_offset}")
    for ref in work.job.chunks:
        key = layout.append_file(work.topic, work.topic_id, work.files[ref.file])
        name = f"{where}, offset {ref.base_offset}"
        header, data = append_file.read_bytes(store, key, ref.place(work.job.partition), name)
        yield ref.leader_epoch, header, data, name


def maintain(
    store: Store,
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
                swap = carry_out(store, work, nonce())
            except LogError as error:
                if isinstance(error, ObjectMissing) and work.job not in _due(handle):
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


def housekeep(store: Store, handle: TopicHandle, *, thorough: bool = True) -> int:
    """Do what keeps a topic's cost flat, as far as it is due; return how many objects were removed.

    That is retention, removal of replaced and expired files and of orphans, trimming of the journal, and the
    checkpoints. Orphans are looked for among all files; `thorough=False` does that only when the floor has risen, so
    that it costs the same whatever the number of files.
    """
    now = handle.now_ms()
    # Before the first entry: on a full disk this makes room for it.
    removed = remove_released(store, handle, now)
    handle.submit(ApplyRetention())
    removed += remove_released(store, handle, now)
    raised = handle.submit(RaiseOrphanFloor(handle.journal.number))
    risen = any(isinstance(event, OrphanFloor) for event in raised.events)
    rubbish = orphans(store, handle) if thorough or risen else []
    for key in rubbish:
        store.delete(key)
    write_checkpoints(store, handle)
    return len(removed) + len(rubbish) + handle.journal.trim()


def write_checkpoints(store: Store, handle: TopicHandle) -> None:
    """Write Kafka's checkpoints of the topic, where they have changed, so that its folder is readable by itself.

    They are a copy for people and for recovery, and decide nothing: of two processes the one that knows less may
    write last.
    """
    state = handle.refresh()
    folder = layout.topic_folder(handle.name, handle.topic_id)
    rolled = {(handle.name, number): each.rolled_end for number, each in enumerate(state.partitions)}
    known = {(handle.name, number): each.high_watermark for number, each in enumerate(state.partitions)}
    written = {
        checkpoints.RECOVERY_POINT: checkpoints.encode_offsets(rolled),
        checkpoints.REPLICATION: checkpoints.encode_offsets(known),
    }
    for number, each in enumerate(state.partitions):
        written[f"{number}/{checkpoints.LEADER_EPOCH}"] = checkpoints.encode_epochs(each.epoch_starts)
    for name, data in written.items():
        try:
            same = store.read(f"{folder}{name}") == data
        except ObjectMissing:
            same = False
        if not same:
            store.put(f"{folder}{name}", data)


def remove_released(store: Store, handle: TopicHandle, now: int) -> list[str]:
    """Remove the files that were released longer ago than `file.delete.delay.ms`; return their keys."""
    state = handle.refresh()
    # Clocks differ: what was released later goes later.
    delay = state.config.file_delete_delay_ms
    due = list(itertools.takewhile(lambda each: each.at_ms + delay <= now, state.released))
    removed = [key for each in due for key in _objects(handle, each.key)]
    for key in removed:
        store.delete(key)
    if due:
        handle.submit(ForgetReleased(due[-1].key))
    return removed


def orphans(store: Store, handle: TopicHandle) -> list[str]:
    """Return the keys of the files that no entry names and none ever will."""
    state = handle.refresh()
    folder = layout.topic_folder(handle.name, handle.topic_id)
    named = {f"{folder}append/{file.name}" for file in state.files}
    named |= {key for each in state.released for key in _objects(handle, each.key)}
    for number, partition in enumerate(state.partitions):
        named |= {f"{folder}{number}/{each.name}{end}" for each in partition.segments for end in _ENDINGS}
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
