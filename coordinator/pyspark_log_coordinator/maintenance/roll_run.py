"""Segment work: a maintenance job with all that a process needs to do it, and how it is done.

The rows of a job become a new segment, written to the whole ISR at once. Any process may do it, with no journal: what
it made comes into its place by one journal entry, and what another did first has gone stale. A node that fails is left
out, and the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_coordinator.maintenance.roll_input import RollInput
from pyspark_log_coordinator.maintenance.roll_job import RollTask
from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_storage import chunk, layout, segment
from pyspark_log_storage.chunk import CHUNK_BYTES
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, StoreUnavailable
from pyspark_log_storage.fan_out import FanOutWriter, is_node_failure
from pyspark_log_storage.node import require_marker, require_written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log_storage.store import Store

SMALL_CHUNK_BYTES = CHUNK_BYTES // 8
"""A stored chunk of this size or more is copied as it is when segments are merged."""
TINY_CHUNK_BYTES = 32 * 1024
"""Likewise when chunks are rolled, which all that is written goes through: encoding it again would slow the writers."""


def run_roll(store_at: Callable[[str], Store], work: RollTask, nonce: str) -> SwapSegments:
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
        _copy(RollInput(store_at, work), work, writer)
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
    holders = _holders(written, work, f"{folder}{name}.log")
    made = SegmentRef.of(done, holders, job.level, job.timestamp_reached)
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


def _holders(stores: Mapping[NodeId, Store], work: RollTask, key: str) -> tuple[Holder, ...]:
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
            if not is_node_failure(error):
                raise
            errors.append(error)
        else:
            found.append(Holder(name, incarnations[name]))
    if not found:
        raise errors[0]
    return tuple(found)


def _copy(rows: RollInput, work: RollTask, writer: segment.SegmentWriter) -> None:
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
