"""A compacted topic with real bytes in a store, and a plain model of what it must hold."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments import compaction_plan, roll_plan
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter, read_chunk
from pyspark_log_storage.files.chunk import decode
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.store import Store
from tests.support.memory_store import MemoryStore

Key = bytes
Value = bytes | None


class Row(NamedTuple):
    """A row as it is stored."""

    offset: int
    key: Key | None
    value: Value


TYPED = schema.typed(
    pa.schema([("key", pa.string()), ("part", pa.int32()), ("value", pa.binary()), ("gone", pa.bool_())])
)
"""The columns of a topic whose keys are in two of them."""


class CompactedTopic:
    """Topic t, with one partition, and a list of all rows that were ever written to it."""

    def __init__(self, store: Store | None = None, *, is_typed: bool = False, **settings: str) -> None:
        """`settings` are of the topic, with "_" for each "." of Kafka's names.

        A typed topic has a key in two columns, and another one that says whether a row deletes its key.
        """
        self.is_typed = is_typed
        self.store = store or MemoryStore("the url")
        self.now_ms = 1_000_000
        self.log = self._opened(self.store)
        config = {"cleanup.policy": "compact", "file.delete.delay.ms": "0", "delete.retention.ms": "1000"}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        columns = None
        if is_typed:
            config |= {"key.column": "key,part", "delete.when": "gone"}
            columns = schema.columns_of(TYPED)
        self.handle = self.log.create_topic("t", 1, parse(config), columns=columns)
        self.written: list[Row] = []
        self._cleaned: dict[int, int] = {}
        """When a row was compacted for the first time, by its offset (ms)."""

    def _opened(self, store: Store) -> Log:
        environment = msgspec.structs.replace(real_environment(), now_ms=lambda: self.now_ms, store_clock=None)
        log = Log(store, environment)
        log.open(create=True)
        return log

    def reopen(self, store: Store) -> None:
        """Continue as another process, which knows nothing."""
        self.store = store
        self.log = self._opened(store)
        self.handle = self.log.topic("t")

    @property
    def partition(self):
        return self.handle.refresh().partitions[0]

    def write(self, rows: Sequence[tuple[Key | None, Value]]) -> None:
        """Append rows in one batch, as one chunk."""
        self.handle.refresh()
        name = born_name(self.handle.journal.number, self.log.environment.nonce())
        writer = AppendFileWriter(self.store.open_write(self.handle.append_file(name), durable=True))
        keys, values = zip(*rows, strict=True)
        times = pa.array([self.now_ms * 1000] * len(rows), schema.TIMESTAMP)
        arrays, stored = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema.RECORD
        if self.is_typed:
            texts = [None if each is None else each.decode() for each in keys]
            gone = pa.array([each is None for each in values])
            arrays, stored = [pa.array(texts), pa.array([7] * len(rows), pa.int32()), arrays[1], gone], TYPED
        writer.append(0, pa.record_batch([*arrays, times], stored), schema.RECORD_ID, "lz4")
        writer.close()
        holders = tuple(Holder(*each) for each in self.handle.journal.state.incarnations.items())
        self.handle.submit(CommitBatch(None, (SequencedFile(name, holders, tuple(writer.chunks)),)))
        end = len(self.written)
        self.written += [Row(end + number, *row) for number, row in enumerate(rows)]

    # Jobs, whether they are due or not

    def clean_job(self, pieces: int | None = None) -> RollJob | None:
        """Return the cleaning of the oldest dense segments and chunks, all where no number is given; None without."""
        return clean_job(self.handle, self.now_ms, pieces)

    def merge_job(self, first: int, count: int) -> RollJob | None:
        """Return the merge of neighbours of the head; None if there are not so many."""
        chosen = self.partition.keyed_segments[first : first + count]
        work = chosen, True
        return _job(self.handle, work, self.now_ms) if len(chosen) == count and count else None

    def roll_job(self, chunks: int) -> RollJob | None:
        """Return the roll of the oldest chunks into a dense segment."""
        one = self.partition
        taken = one.chunks[:chunks]
        return RollJob(0, one.leader_epoch, 1, (), tuple(taken), one.epoch_starts) if taken else None

    def make(self, job: RollJob) -> SwapSegments:
        """Write a job's segments, and swap nothing in."""
        return run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)

    def do(self, job: RollJob | None) -> bool:
        """Carry a job out; return whether it was swapped in."""
        return job is not None and self.swap_in(self.make(job))

    def swap_in(self, swap: SwapSegments) -> bool:
        """Submit a swap; return whether it was taken."""
        if not self.handle.submit(MaintainSegments((swap,))).events:
            return False
        self._note_cleaned()
        return True

    def _note_cleaned(self) -> None:
        for ref in self.partition.keyed_segments:
            for row in self.written[ref.base_offset : ref.end_offset]:
                self._cleaned.setdefault(row.offset, ref.cleaned_ms)

    def maintain(self) -> int:
        """Do what is due until nothing is; return the number of jobs."""
        done = 0
        while jobs := roll_plan.plan(self.handle.refresh(), self.now_ms, 2**30):
            for job in jobs:
                assert self.do(job)
                done += 1
                assert done < 1000, "it never ends"
        return done

    # What is stored

    def head_rows(self) -> list[Row]:
        """Return the rows of the head, in order, without placeholders."""
        found = []
        for ref in self.partition.keyed_segments:
            key = self.handle.segment(0, ref.name)
            footer = parquet_footer.read(self.store, key)
            rows = []
            for entry in footer.entries:
                batch, offsets = row_group.keyed_rows(self.store, key, footer, entry, self.handle.schemas)
                rows += self._rows(offsets.tolist(), batch)
            assert [len(rows), sum(row.value is None for row in rows)] == [ref.keyed.rows, ref.keyed.tombstones]
            assert all(ref.base_offset <= row.offset < ref.end_offset for row in rows)
            assert all(self.written[row.offset] == row for row in rows), "a surviving row has changed"
            if ref.keyed.placeholder is None:
                found += rows
            else:
                assert [row.offset for row in rows] == [ref.keyed.placeholder]
        return found

    def dense_rows(self) -> list[Row]:
        """Return the rows from the compacted end on."""
        one, found = self.partition, []
        for piece in one.pieces_from(one.compacted_end):
            if piece in one.segments:
                batches = [
                    decode(data, header, self.handle.schemas, "a chunk")
                    for _, header, data in segment.chunks(self.store, self.handle.segment(0, piece.name))
                ]
            else:
                key = self.handle.append_file(self.handle.state.file(piece.file).name)
                batches = [read_chunk(self.store, key, piece.place(0), self.handle.schemas, "a chunk")]
            start = piece.base_offset
            for batch in batches:
                found += self._rows(range(start, start + batch.num_rows), batch)
                start += batch.num_rows
        return found

    def newest(self) -> dict[Key, Row]:
        """Return the newest row of each key, as a reader of the newest rows would find it."""
        state = {row.key: row for row in [*self.head_rows(), *self.dense_rows()] if row.key is not None}
        return {key: row for key, row in state.items() if row.value is not None}

    # What must hold

    def newest_written(self, end: int | None = None) -> dict[Key, Row]:
        """Return the newest row of each key by the list of what was written, up to an offset."""
        return {row.key: row for row in self.written[:end] if row.key is not None}

    def expected(self) -> dict[Key, Row]:
        """Return the newest row of each key that was not deleted, by the list of what was written."""
        return {key: row for key, row in self.newest_written().items() if row.value is not None}

    def check(self) -> None:
        """Check every promise of a compacted partition."""
        one = self.partition
        self._note_cleaned()  # of a process that was killed before it knew
        assert self.newest() == self.expected()
        head = self.head_rows()
        offsets = [row.offset for row in head]
        assert offsets == sorted(set(offsets))
        keys = [row.key for row in head]
        assert None not in keys, "a row without a key is in the head"
        assert len(set(keys)) == len(keys), "a key has two rows in the head"
        assert self.dense_rows() == self.written[one.compacted_end :]
        assert one.log_end == one.high_watermark == len(self.written)
        newest = self.newest_written(one.compacted_end)
        assert all(newest[row.key] == row for row in head), "the head has an older row of a key"
        for key in set(newest) - set(keys):
            retained = self._cleaned[newest[key].offset] + self.handle.config.delete_retention_ms
            assert newest[key].value is None, "the newest row of a key is gone"
            assert self.now_ms >= retained, "a deletion is gone too early"

    def _rows(self, offsets, batch) -> list[Row]:
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        if self.is_typed:
            keys = [None if each is None else each.encode() for each in keys]
        return [Row(*each) for each in zip(offsets, keys, values, strict=True)]


def clean_job(handle: TopicHandle, now_ms: int, pieces: int | None = None) -> RollJob | None:
    """Return the cleaning of the oldest dense pieces of partition 0, whether it is due or not; None without any."""
    one = handle.refresh().partitions[0]
    dense = list(itertools.islice(one.pieces_from(one.compacted_end), pieces))
    return _job(handle, ((*one.keyed_segments, *dense), False), now_ms) if dense else None


def _job(handle: TopicHandle, work: compaction_plan.Work, now_ms: int) -> RollJob:
    return roll_plan.compaction_job(handle.state, 0, work, now_ms)
