"""The input of roll tasks: the rows of a job, each chunk from the first node that has it whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable
from pyspark_log_storage.files import append_file, chunk
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pyspark_log_coordinator.model.partition import SegmentRef
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")


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


class RollInput:
    """Reads the rows of a job in order: each chunk from the first holder that has it whole."""

    def __init__(self, store_at: Callable[[str], Store], work: RollTask) -> None:
        """`store_at` opens a node's store by its address."""
        self._store_at = store_at
        self._work = work
        self._folder = layout.topic_folder(work.topic, work.topic_id)
        self._where = f"topic {work.topic!r}, partition {work.job.partition}"
        self._failed: set[NodeId] = set()
        """Nodes that could not be read once: they come last from then on."""

    def chunks(self, first: int = 0) -> Iterator[tuple[int, StagedChunk, pa.Buffer, str]]:
        """Yield leader epoch, place, bytes and name of each chunk, checked against what is recorded.

        The job's segments before number `first` are left out.
        """
        work = self._work
        for ref, source in zip(work.job.segments[first:], work.segments[first:], strict=True):
            yield from self._of_segment(ref, source)
        for each in work.job.chunks:
            name = f"{self._where}, offset {each.base_offset}"
            place = each.place(work.job.partition)
            yield each.leader_epoch, place, self._bytes(work.files[each.file], place, name), name

    def _bytes(self, source: RollSource, place: StagedChunk, name: str) -> pa.Buffer:
        key = layout.append_file(self._work.topic, self._work.topic_id, source.name)
        return self._read(source, name, lambda node: append_file.read_bytes(self._store(node), key, place, name))

    def _of_segment(self, ref: SegmentRef, source: RollSource) -> Iterator[tuple[int, StagedChunk, pa.Buffer, str]]:
        key, what = self._place(source)
        reached = ref.base_offset
        scans: dict[NodeId, Iterator[tuple[IndexEntry, StagedChunk, pa.Buffer]]] = {}

        def next_chunk(node_id: NodeId) -> tuple[IndexEntry, StagedChunk, pa.Buffer]:
            if node_id not in scans:
                scans[node_id] = self._scan(node_id, key)
            for entry, place, data in scans[node_id]:
                if entry.base_offset > reached:
                    raise CorruptObject(what, f"rows from {reached} to {entry.base_offset - 1} are missing")
                if entry.end_offset > reached:  # earlier ones came from a node that failed later
                    return entry, place, data
            raise CorruptObject(what, f"it ends at {reached}, not {ref.end_offset}")

        while reached < ref.end_offset:
            entry, place, data = self._read(source, what, next_chunk)
            yield entry.leader_epoch, place, data, f"{self._where}, offset {entry.base_offset}"
            reached = entry.end_offset

    def _scan(self, node_id: NodeId, key: str) -> Iterator[tuple[IndexEntry, StagedChunk, pa.Buffer]]:
        """Yield the chunks of a segment on a node; a row group of Parquet is made a chunk."""
        store = self._store(node_id)
        if not layout.is_parquet(key):
            yield from segment.chunks(store, key)
            return
        from pyspark_log_storage.parquet import parquet_footer, row_group  # imports pyarrow.parquet

        footer = parquet_footer.read(store, key)
        for entry in footer.entries:
            rows = row_group.read_by(store, key, footer, entry, self._work.schemas)
            place, data = chunk.encode(rows, entry.schema_id, "none")
            yield entry, place, pa.py_buffer(data)

    def keyed_rows(
        self, number: int, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64], int, int]]:
        """Yield the rows of one of the job's keyed segments, with their offsets, schema and leader epoch.

        With `columns` only these are decoded.
        """
        from pyspark_log_storage.parquet import parquet_footer, row_group

        source, schemas = self._work.segments[number], self._work.schemas
        footer = self._read_segment(source, parquet_footer.read)
        for entry in footer.entries:
            read = partial(row_group.keyed_rows, footer=footer, entry=entry, schemas=schemas, columns=columns)
            batch, offsets = self._read_segment(source, read)
            yield batch, offsets, entry.schema_id, entry.leader_epoch

    def _read_segment(self, source: RollSource, read: Callable[[Store, str], T]) -> T:
        """Return what `read` finds in a segment, in the store of the first holder, at the segment's key."""
        key, what = self._place(source)
        return self._read(source, what, lambda node: read(self._store(node), key))

    def _place(self, source: RollSource) -> tuple[str, str]:
        """Return a segment's key, and its name for errors."""
        return f"{self._folder}{self._work.job.partition}/{source.name}", f"{self._where}, segment {source.name}"

    def _read(self, source: RollSource, what: str, read: Callable[[NodeId], T]) -> T:
        """Return what the first holder gives. Raises the first one's error if all fail."""
        nodes = sorted(source.nodes, key=self._failed.__contains__)
        try:
            return first_readable(nodes, read, lambda node, _: self._failed.add(node))
        except AllCopiesFailed as failed:
            message = f"{what}: none of the nodes that hold {source.name} is reachable; bring one back"
            raise failed.first_or(StoreUnavailable("", source.name, message)) from None

    def _store(self, node_id: NodeId) -> Store:
        return self._store_at(self._work.addresses[node_id])
