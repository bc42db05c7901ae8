"""A topic with real bytes in a store, a clock that the test sets, and a plain list of the rows written."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.files.index import IndexEntry
from pyspark_log_storage.layout import born_name, topic_folder
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.store import Store
from tests.support.memory_store import MemoryStore

AT_ONCE = {"file_delete_delay_ms": "0", "orphan_retention_ms": "0", "retention_ms": "-1"}
"""Settings under which nothing waits, as arguments of `StoredTopic`."""


def batch_of(values: Sequence[bytes], times_ms: Sequence[int] | None = None) -> pa.RecordBatch:
    """Return rows as they are stored."""
    times = pa.array([each * 1000 for each in times_ms or [0] * len(values)], schema.TIMESTAMP)
    return pa.record_batch([pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), times], schema.RECORD)


class Clock:
    """The time of day that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0


class StoredTopic:
    """Topic t of a log."""

    def __init__(self, store: Store | None = None, partitions: int = 1, **settings: str) -> None:
        """`settings` are of the topic, with "_" for each "." of Kafka's names."""
        self.store = store or MemoryStore("the url")
        self.clock = Clock()
        self.log = self.open()
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.handle = self.log.create_topic("t", partitions, parse(config))
        self.expected: dict[int, list[bytes]] = defaultdict(list)
        self._batches = itertools.count()
        self.parquet = config.get("segment.format") == "parquet"
        """Whether `roll` and `merge` write Parquet, however small the segment is."""

    def open(self) -> Log:
        """Return the log as another process would open it."""
        environment = msgspec.structs.replace(real_environment(), now_ms=lambda: self.clock.now_ms, store_clock=None)
        log = Log(self.store, environment)
        log.open(create=True)
        return log

    @property
    def folder(self) -> str:
        return topic_folder("t", self.handle.topic_id)

    def keys(self, folder: str = "") -> list[str]:
        """Return the keys in a folder of the topic, without the topic's."""
        return [key.removeprefix(self.folder) for key in self.store.list(f"{self.folder}{folder}")]

    def stage(
        self,
        rows: Mapping[int, Sequence[bytes]],
        times_ms: Sequence[int] | None = None,
        compression: str = "lz4",
        *,
        with_headers: bool = False,
    ) -> SequencedFile:
        """Write an append file that no entry names."""
        self.handle.refresh()
        name = born_name(self.handle.journal.number, self.log.environment.nonce())
        writer = AppendFileWriter(self.store.open_write(self.handle.append_file(name), durable=True))
        for partition, values in rows.items():
            batch, schema_id = batch_of(values, times_ms), schema.RECORD_ID
            if with_headers:
                columns = [*batch.columns, pa.nulls(len(values), schema.HEADERS)]
                batch = pa.record_batch(columns, schema=schema.RECORD_WITH_HEADERS)
                schema_id = schema.RECORD_WITH_HEADERS_ID
            writer.append(partition, batch, schema_id, compression)
        writer.close()
        holders = tuple(Holder(*each) for each in self.handle.journal.state.incarnations.items())
        return SequencedFile(name, holders, tuple(writer.chunks))

    def append(
        self,
        rows: Mapping[int, Sequence[bytes]],
        times_ms: Sequence[int] | None = None,
        compression: str = "lz4",
        *,
        with_headers: bool = False,
    ) -> None:
        """Append values to partitions, one chunk each, in one batch. The schema of the chunks may have headers."""
        staged = self.stage(rows, times_ms, compression, with_headers=with_headers)
        claim = ProducerClaim("q", "q", "r", next(self._batches))
        self.handle.submit(CommitBatch(claim, (staged,)))
        for partition, values in rows.items():
            self.expected[partition] += values

    def fill(self, batches: int, rows: int = 3, partitions: Sequence[int] = (0,)) -> None:
        """Append batches of small rows, all different."""
        for _ in range(batches):
            start = len(self.expected[partitions[0]])
            self.append({p: [b"row %d of %d" % (start + row, p) for row in range(rows)] for p in partitions})

    def job(self, chunks: int | None = None, partition: int = 0) -> roll_plan.RollJob:
        """Return the job of rolling the oldest chunks of a partition, all where no number is given."""
        one = self.handle.refresh().partitions[partition]
        taken = tuple(one.chunks[: len(one.chunks) if chunks is None else chunks])
        return roll_plan.RollJob(partition, one.leader_epoch, 1, (), taken, one.epoch_starts, self.parquet)

    def merge_job(self, segments: int | None = None, partition: int = 0) -> roll_plan.RollJob:
        """Return the job of merging the oldest segments of a partition."""
        one = self.handle.refresh().partitions[partition]
        taken = one.segments[: len(one.segments) if segments is None else segments]
        return roll_plan.RollJob(partition, one.leader_epoch, 2, taken, (), one.epoch_starts, self.parquet)

    def carry_out(self, job: roll_plan.RollJob) -> SwapSegments:
        """Write a job's segment, and swap nothing in."""
        return run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)

    def roll(self, chunks: int | None = None, partition: int = 0) -> None:
        """Roll the oldest chunks of a partition into one segment."""
        self.handle.submit(MaintainSegments((self.carry_out(self.job(chunks, partition)),)))

    def merge(self, segments: int | None = None, partition: int = 0) -> None:
        """Merge the oldest segments of a partition into one."""
        self.handle.submit(MaintainSegments((self.carry_out(self.merge_job(segments, partition)),)))

    def segment_key(self, number: int = 0, partition: int = 0) -> str:
        """Return the key of one of a partition's segments, without ending."""
        return self.handle.segment(partition, self.handle.refresh().partitions[partition].segments[number].name)

    def entries(self, number: int = 0) -> list[IndexEntry]:
        """Return the chunks, or row groups, of one of the segments of partition 0."""
        return segment.scan(self.store, self.segment_key(number), schema.RECORD_SCHEMAS)

    def damage(self, key: str, position: int = -1) -> None:
        """Turn one bit of an object over."""
        data = bytearray(self.store.read(key))
        data[position] ^= 1
        self.store.put(key, bytes(data))

    def read(self, partition: int = 0, start: int | None = None, handle: TopicHandle | None = None) -> list[Any]:
        """Return the values of a partition; check their offsets."""
        handle = handle or self.handle
        one = handle.refresh().partitions[partition]
        begin = one.log_start if start is None else start
        if begin == one.high_watermark:
            return []
        values: list[Any] = []
        split = split_of(handle, Range("t", partition, begin, one.high_watermark))
        for offsets, batch in fetch(self.log.store_at, split):
            assert offsets[0] == begin + len(values)
            values += batch.column("value").to_pylist()
        assert len(values) == one.high_watermark - begin
        return values

    def check(self) -> None:
        """Hold every partition against the list of what was written."""
        for number, partition in enumerate(self.handle.refresh().partitions):
            assert self.read(number) == self.expected[number][partition.log_start :]
