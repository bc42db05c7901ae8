"""Whatever happens to its files, a partition reads like a plain list of rows, by offset and by time."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.journal import journal, trimming
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import roll_task, topic_cleanup, topic_roll
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.retention import ApplyRetention
from pyspark_log_coordinator.topic.machine import (
    AlterConfig,
    CommitBatch,
    DeleteRecords,
    Holder,
    MaintainSegments,
    SequencedFile,
)
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files import index
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name
from tests.support.elsewhere import PlainStore

PARTITIONS = 2
HOUR_MS = 3_600_000

partitions = st.integers(0, PARTITIONS - 1)
batches = st.dictionaries(partitions, st.lists(st.integers(-50, 50), min_size=1, max_size=5), min_size=1)
"""For each partition the times of some rows, in ms from the clock's time: earlier rows may have later times."""


class SegmentedLog(RuleBasedStateMachine):
    """A topic, and beside it its partitions as lists of (value, time in ms)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = ExitStack()
        for module, name, value in (
            (roll_plan, "ROLL_CHUNKS", 3),
            (roll_plan, "MERGE_COUNT", 2),
            (roll_task, "CHUNK_BYTES", 80),
            (journal, "SNAPSHOT_EVERY", 4),
            (trimming, "SNAPSHOTS_KEPT", 2),
            (index, "BLOCK_ENTRIES", 2),
        ):
            self.patches.enter_context(mock.patch.object(module, name, value))
        self.now = 10 * HOUR_MS
        self.store = PlainStore()
        self.nonces = map("{:032x}".format, itertools.count(1))
        self.rows: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS
        self.numbers = itertools.count()
        self.written: dict[bytes, int] = {}
        """When each row was, which counts if its time is to come."""

    @initialize(segment_bytes=st.sampled_from([2_000, 2**30]))
    def create(self, segment_bytes: int) -> None:
        self.log = self._open()
        config = TopicConfig(
            segment_bytes=segment_bytes, retention_ms=-1, file_delete_delay_ms=0, orphan_retention_ms=0
        )
        self.handle = self.log.create_topic("t", PARTITIONS, config)

    @rule(batch=batches)
    def append(self, batch: dict[int, list[int]]) -> None:
        file, rows = self._stage(batch)
        self.handle.submit(CommitBatch(None, (file,)))
        for p, each in rows.items():
            self.rows[p] += each

    @rule()
    def roll_or_merge_a_little(self) -> None:
        for job in roll_plan.plan(self.handle.journal.state, self.now)[:1]:
            swap = roll_task.run_roll(self.log.store_at, roll_task.roll_task_of(self.handle, job), self.log.environment)
            self.handle.submit(MaintainSegments((swap,)))

    @rule()
    def roll_and_merge_all(self) -> None:
        topic_roll.roll_and_merge(self.handle)

    @rule(p=partitions, back=st.integers(0, 12))
    def delete_records(self, p: int, back: int) -> None:
        before = max(0, len(self.rows[p]) - back)
        self.handle.submit(DeleteRecords(p, before))
        self.starts[p] = max(self.starts[p], before)

    @rule(age=st.integers(0, 80))
    def expire(self, age: int) -> None:
        self.handle.submit(AlterConfig({"retention.ms": str(age)}))
        self.handle.submit(ApplyRetention())
        self.handle.submit(AlterConfig({"retention.ms": "-1"}))
        for p, partition in enumerate(self.handle.journal.state.partitions):
            gone = self.rows[p][self.starts[p] : partition.log_start]
            assert all(time < self.now - age or self.written[value] < self.now - age for value, time in gone)
            for segment in partition.segments[:1]:
                assert segment.max_timestamp >= (self.now - age) * 1000
            self.starts[p] = partition.log_start

    @rule()
    def clean_up(self) -> None:
        topic_cleanup.clean_up_topic(self.handle)

    @rule(ms=st.integers(1, 100))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def restart(self) -> None:
        state = self.handle.journal.state
        self.log = self._open()
        self.handle = self.log.topic("t")
        assert self.handle.journal.state == state

    @invariant()
    def all_rows_are_there(self) -> None:
        for p, partition in enumerate(self.handle.journal.state.partitions):
            assert (partition.log_start, partition.high_watermark) == (self.starts[p], len(self.rows[p]))
            rows = self._read(p, partition.log_start, partition.high_watermark)
            assert list(rows) == self.rows[p][self.starts[p] :]

    @invariant()
    def every_time_is_found_where_a_linear_search_finds_it(self) -> None:
        for p, rows in enumerate(self.rows):
            left = [time for _, time in rows[self.starts[p] :]]
            asked = {0, *left[:3], *left[-3:], *(time + 1 for time in left[-1:]), *sorted(left)[-2:], *left[::4]}
            for time in asked:
                expected = next((at for at, each in enumerate(left, self.starts[p]) if each >= time), None)
                assert offset_for_time(self.handle, p, time) == expected

    def teardown(self) -> None:
        with self.patches:
            report = verify.verify(self.handle)
            assert report.sound, report.findings

    def _stage(self, batch: dict[int, list[int]]) -> tuple[SequencedFile, dict[int, list[tuple[bytes, int]]]]:
        """Return an append file that is not sequenced, and the rows in it by partition."""
        name = born_name(self.handle.journal.number, next(self.nonces))
        writer = AppendFileWriter(self.store.open_write(self.handle.append_file(name), durable=True))
        staged = {p: [(b"%d" % next(self.numbers), self.now + each) for each in times] for p, times in batch.items()}
        self.written |= {value: self.now for rows in staged.values() for value, _ in rows}
        for p, rows in staged.items():
            columns = [pa.nulls(len(rows), pa.binary()), pa.array([value for value, _ in rows], pa.binary())]
            micros = pa.array([time * 1000 for _, time in rows], schema.TIMESTAMP)
            writer.append(p, pa.record_batch([*columns, micros], schema=schema.RECORD), 0, "lz4")
        writer.close()
        holders = tuple(Holder(*each) for each in self.handle.journal.state.incarnations.items())
        return SequencedFile(name, holders, tuple(writer.chunks)), staged

    def _read(self, p: int, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        if start == end:
            return
        for offset, batch in fetch(self.log.store_at, split_of(self.handle, Range("t", p, start, end))):
            assert offset == start
            start += batch.num_rows
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            yield from zip(batch.column("value").to_pylist(), (time // 1000 for time in times), strict=True)

    def _open(self) -> Log:
        environment = Environment(
            now_ms=lambda: self.now,
            monotonic=lambda: self.now / 1000,
            sleep=lambda _: None,
            uniform=max,
            nonce=lambda: next(self.nonces),
        )
        log = Log(self.store, environment)
        log.open(create=True)
        return log


TestSegments = pytest.mark.no_faults("hypothesis runs no example again")(SegmentedLog.TestCase)
TestSegments.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
