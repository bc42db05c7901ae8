"""Roll tasks: they write the rows of a roll job as a new segment to all nodes of the ISR at once.

A task needs no journal, so any process may run it. One journal entry puts the segment in its place, or ignores it if
another process was first. A node that fails is left out, and the others continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.maintenance.roll_input import RollInput, RollSource, RollTask
from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.replication.write_targets import targets_of
from pyspark_log_coordinator.segments.roll_plan import LEVEL_MAX, RollJob
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidRecord,
    LogError,
    StoreError,
    StoreUnavailable,
    is_node_failure,
)
from pyspark_log_storage.files import chunk
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.files.row_files import NotAsParquet
from pyspark_log_storage.objects.node import require_marker, require_written
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.fan_out import FanOutWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_state import FileRef
    from pyspark_log_coordinator.segments.compaction_plan import Output
    from pyspark_log_storage.files.row_files import SegmentFile, SegmentPlace
    from pyspark_log_storage.parquet.parquet_segment import ParquetSegmentWriter
    from pyspark_log_storage.stores.store import Store

SMALL_CHUNK_BYTES = CHUNK_BYTES // 8
"""A merge copies stored chunks of at least this size unchanged."""
TINY_CHUNK_BYTES = 32 * 1024
"""The same for a roll, which every row goes through: more encoding would slow the writers."""


def roll_task_of(handle: TopicHandle, job: RollJob) -> RollTask:
    """Return the task of a job, by the known state of the topic."""
    state = handle.journal.state
    targets = targets_of(state, job.partition, "all", handle.log.missing_nodes)
    for each in targets:
        handle.log.node(each)  # one may have joined since this process read the cluster's journal
    members = handle.log.cluster.state.nodes
    nodes = handle.log.nearest_first(leader=state.partitions[job.partition].leader)
    known: dict[tuple[Holder, ...], tuple[NodeId, ...]] = {}

    def source(file: FileRef | SegmentRef) -> RollSource:
        if file.holders not in known:  # most files of a topic have the same holders
            known[file.holders] = tuple(handle.log.reachable_holders(state, nodes, file.holders))
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


def run_roll(store_at: Callable[[str], Store], work: RollTask, environment: Environment) -> SwapSegments:
    """Write the job's segment; return the swap that puts it in its place.

    `store_at` opens a node's store by its address. Keeps one or two chunks in memory, for Parquet also the rows of a
    row group and their encoded bytes. Raises `CorruptObject`, `StoreError`; what was written by then is an orphan.
    """
    try:
        return _run(store_at, work, environment)
    except NotAsParquet:
        if work.job.compaction is not None:
            raise InvalidRecord(
                f"topic {work.topic!r}, partition {work.job.partition}: it cannot be compacted, because a row is too "
                "large for a Parquet file, a struct has no fields, or there are too many columns for so many rows; set "
                "cleanup.policy=delete"
            ) from None
        # Its rows are stored as chunks, which may be any. The level keeps others from trying it again.
        job = msgspec.structs.replace(work.job, parquet=False, level=LEVEL_MAX)
        return _run(store_at, msgspec.structs.replace(work, job=job), environment)


def _run(store_at: Callable[[str], Store], work: RollTask, environment: Environment) -> SwapSegments:
    job = work.job
    stores = {each: store_at(work.addresses[each]) for each in work.targets}
    rows = RollInput(store_at, work)
    if job.compaction is not None:
        return _compacted(rows, work, stores, environment)
    place = _Place(stores, environment, work, job.base_offset)
    writer = place.writer()
    try:
        done = _rolled(rows, work, writer)
    except BaseException:
        writer.discard()
        raise
    made = SegmentRef(**msgspec.structs.asdict(done), holders=place.holders(), level=job.level, **_times(job))
    return SwapSegments(job.partition, job.leader_epoch, (made,))


def _compacted(
    rows: RollInput, work: RollTask, stores: Mapping[NodeId, Store], environment: Environment
) -> SwapSegments:
    """Write the segments of a compaction, each to all nodes before the next one is begun."""
    from pyspark_log_coordinator.maintenance.compaction_task import Compactor  # imports NumPy

    job = work.job
    places: list[_Place] = []

    def new_writer(base_offset: int) -> ParquetSegmentWriter:
        places.append(_Place(stores, environment, work, base_offset))
        return cast("ParquetSegmentWriter", places[-1].writer())

    made = []
    for each in Compactor(rows, work).compact(new_writer):
        place = places.pop()
        known = msgspec.structs.asdict(each.file) | _times(job, each.output) | {"cleaned_ms": each.cleaned_ms}
        made.append(SegmentRef(holders=place.holders(), level=job.level, **known))
    replaces = tuple(each.name for each in job.segments)
    return SwapSegments(job.partition, job.leader_epoch, tuple(made), replaces)


def _times(job: RollJob, output: Output | None = None) -> dict[str, Any]:
    """Return the times of the segment of a job, or of one output of its compaction; see `SegmentRef`."""
    times = {"timestamp_reached": job.timestamp_reached, "since_ms": job.since_ms, "until_ms": job.until_ms}
    if output is None:
        return times
    assert job.compaction is not None
    head = [each for each in job.segments if each.keyed is not None]
    known = [head[number] for number in output.sources if number < len(head)]
    times["since_ms"] = known[0].since_ms if known else job.compaction.dirty_since_ms
    if output.sources[-1] < len(head):
        times["timestamp_reached"] = known[-1].timestamp_reached
        times["until_ms"] = max(each.until_ms for each in known)
    return times


class _Place:
    """A new segment: where it is written, and under which name."""

    def __init__(
        self, stores: Mapping[NodeId, Store], environment: Environment, work: RollTask, base_offset: int
    ) -> None:
        job = work.job
        self._stores, self._work = stores, work
        self._name = layout.segment_name(base_offset, work.born, environment.nonce(), parquet=job.parquet)
        self._key = f"{layout.topic_folder(work.topic, work.topic_id)}{job.partition}/{self._name}"
        self._fan_out = _SegmentFanOut(stores, environment) if len(stores) > 1 else None

    def writer(self) -> segment.SegmentWriter | ParquetSegmentWriter:
        """Return the segment's writer. Raises `NotAsParquet`, `StoreError`."""
        work, job = self._work, self._work.job
        place: SegmentPlace = self._fan_out or next(iter(self._stores.values()))
        if not layout.is_parquet(self._key):
            return segment.SegmentWriter(place, self._key, job.epoch_starts)
        from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter

        kind = ParquetRows(job.partition, work.schemas, work.compression)
        return ParquetSegmentWriter(place, self._key, job.epoch_starts, kind)

    def holders(self) -> tuple[Holder, ...]:
        """Return the nodes that have the finished segment."""
        name = self._name
        written = {each: self._stores[each] for each in (self._fan_out.done if self._fan_out else self._stores)}
        if not written:
            raise StoreUnavailable(
                "", name, f"no node has all of {name}: each failed at one of its two files; try again"
            )
        return _holders(written, self._work, layout.segment_file(self._key))


def _rolled(rows: RollInput, work: RollTask, writer: segment.SegmentWriter | ParquetSegmentWriter) -> SegmentFile:
    """Write every row of a job. Raises `CorruptObject`, `StoreError`, `NotAsParquet`."""
    job = work.job
    if isinstance(writer, segment.SegmentWriter):
        _copy(rows, work, writer)
    else:
        _decode(rows, work, writer)
    if writer.end_offset != job.end_offset:
        where = f"topic {work.topic!r}, partition {job.partition}, offset {writer.end_offset}"
        raise CorruptObject(where, "the files that the journal names lack it: one was cut")
    return writer.close()


class _SegmentFanOut:
    """Writes a segment to several stores at once, and leaves out stores that fail."""

    def __init__(self, stores: Mapping[NodeId, Store], environment: Environment) -> None:
        self._stores = stores
        self._store_threads = environment.store_threads
        self._log: FanOutWriter | None = None
        self._index: FanOutWriter | None = None

    @property
    def done(self) -> tuple[NodeId, ...]:
        """The nodes that have both files of the segment."""
        assert self._log is not None
        assert self._index is not None
        return tuple(each for each in self._log.done if each in self._index.done)

    def open_write(self, key: str) -> FanOutWriter:
        self._log = FanOutWriter(self._stores, key, store_threads=self._store_threads)
        return self._log

    def create(self, key: str, data: bytes) -> bool:
        assert self._log is not None, "a segment's index is made from its .log"
        stores = {each: self._stores[each] for each in self._log.done}
        self._index = FanOutWriter(stores, key, store_threads=self._store_threads)
        self._index.write(data)
        self._index.close()
        return True


def _holders(stores: Mapping[NodeId, Store], work: RollTask, key: str) -> tuple[Holder, ...]:
    """Return the nodes that have the segment and, after its last byte, still the incarnation that the topic knows.

    Raises `NodeMissing` if there are none.
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
            if not is_node_failure(error):
                raise
            errors.append(error)
        else:
            found.append(Holder(name, incarnations[name]))
    if not found:
        raise errors[0]
    return tuple(found)


def _decode(rows: RollInput, work: RollTask, writer: ParquetSegmentWriter) -> None:
    for epoch, place, data, name in rows.chunks():
        writer.append(chunk.decode(data, place, work.schemas, name), place.schema_id, epoch)


def _copy(rows: RollInput, work: RollTask, writer: segment.SegmentWriter) -> None:
    """Copy large chunks unchanged, and join small ones of the same schema and leader epoch into larger ones."""
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

    for epoch, place, data, name in rows.chunks():
        if place.length >= enough:
            flush()
            writer.append(place, data)
            continue
        batch = chunk.decode(data, place, work.schemas, name)
        decoded = batch.get_total_buffer_size()  # as `nbytes` of a whole batch, and found at once
        if small and ((place.schema_id, epoch) != kind or size + decoded > CHUNK_BYTES):
            flush()
        kind = place.schema_id, epoch
        small.append(batch)
        size += decoded
    flush()
