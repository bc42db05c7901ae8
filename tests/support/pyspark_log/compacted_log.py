"""A topic of which some rows are compacted, and what its readers must find."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.segments.swap import MaintainSegments
from tests.support.coordinator.compacted_topic import clean_job
from tests.support.plain_log import NOON_MS, PlainLog, record


class Row(NamedTuple):
    """A row that is in the log."""

    offset: int
    key: bytes | None
    value: bytes
    ms: int


class CompactedLog(PlainLog):
    """Topic t, with one partition. Its rows may lack a key, as those from before it was compacted."""

    def __init__(self, path: Path | str | None = None) -> None:
        super().__init__(path)
        self.handle = self.create("t", file_delete_delay_ms=0)
        self.rows: list[Row] = []
        """Those that are there."""
        self.end = 0
        self._compacted_end = 0

    @property
    def current(self) -> TopicHandle:
        """The topic as it is now."""
        self.handle.refresh()
        return self.handle

    @property
    def partition(self) -> Partition:
        return self.current.partitions[0]

    def add(self, keys: Sequence[bytes | None]) -> None:
        """Append rows with these keys in one batch, one row a second. The value is the offset."""
        new = [Row(at, key, b"%d" % at, NOON_MS + 1000 * at) for at, key in enumerate(keys, self.end)]
        batch = record([row.value for row in new], keys, [row.ms for row in new])
        self.handle.alter_config({"cleanup.policy": "delete"})  # which takes rows without a key
        self.append_rows("t", Rows(batch, None, pa.array([0] * len(new), pa.int32())))
        self.rows += new
        self.end += len(new)

    def clean(self, pieces: int | None = None) -> None:
        """Compact what is not compacted, or the oldest pieces of it; the files before are deleted."""
        self.handle.alter_config({"cleanup.policy": "compact"})
        job = clean_job(self.handle, self.log.environment.now_ms(), pieces)
        if job is None:
            return
        swap = run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)
        assert self.handle.submit(MaintainSegments((swap,))).events
        topic_cleanup.clean_up_topic(self.handle)
        begin, self._compacted_end = self._compacted_end, self.partition.compacted_end
        cleaned = [row for row in self.rows if begin <= row.offset < self._compacted_end]
        newest = {row.key: row for row in cleaned if row.key is not None}
        head = [row for row in self.rows if row.offset < begin and row.key is not None and row.key not in newest]
        head += newest.values()
        tail = [row for row in self.rows if row.offset >= self._compacted_end]
        self.rows = sorted(head or cleaned[-1:]) + tail

    def between(self, start: int, end: int) -> list[Row]:
        """Return the rows of a range of offsets."""
        return [row for row in self.rows if start <= row.offset < end]
