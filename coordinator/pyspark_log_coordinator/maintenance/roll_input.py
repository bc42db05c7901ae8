"""The rows of a job: each chunk is read from the first holder that has it whole, a node that does not answer last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage import append_file, chunk, layout, segment
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyspark_log_coordinator.maintenance.roll_job import RollSource, RollTask
    from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, SegmentRef
    from pyspark_log_storage.store import Store


class RollInput:
    """The rows of a job, in their order."""

    def __init__(self, store_at: Callable[[str], Store], work: RollTask) -> None:
        """`store_at` opens a node's store by its address, as often as it is asked."""
        self._store_at = store_at
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

    def _bytes(self, source: RollSource, ref: ChunkRef, name: str) -> tuple[chunk.Header, pa.Buffer]:
        key = layout.append_file(self._work.topic, self._work.topic_id, source.name)
        place = ref.place(self._work.job.partition)
        errors: list[LogError] = []
        for node_id in self._order(source):
            try:
                return append_file.read_bytes(self._store(node_id), key, place, name)
            except (CorruptObject, StoreError) as error:
                errors.append(self._noted(node_id, error))
        raise self._reason(source, errors, name)

    def _of_segment(self, ref: SegmentRef, source: RollSource) -> Iterator[tuple[int, chunk.Header, pa.Buffer, str]]:
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

    def _order(self, source: RollSource) -> list[NodeId]:
        return sorted(source.nodes, key=lambda each: each in self._failing)

    def _store(self, node_id: NodeId) -> Store:
        return self._store_at(self._work.addresses[node_id])

    def _noted(self, node_id: NodeId, error: LogError) -> LogError:
        if isinstance(error, StoreError) and not isinstance(error, ObjectMissing):
            self._failing.add(node_id)
        return error

    def _reason(self, source: RollSource, errors: list[LogError], what: str) -> LogError:
        if errors:
            return errors[0]
        message = f"{what}: none of the nodes that have {source.name} is there; bring one back"
        return StoreUnavailable("", source.name, message)
