"""A compacted topic with real bytes in a store, and a plain model of what it must hold."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments import compaction_plan, roll_plan
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_coordinator.topic.machine import CommitBatch, Holder, MaintainSegments, SequencedFile
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter, read_chunk
from pyspark_log_storage.files.chunk import decode
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.parquet import keyed_segment, parquet_footer
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
    version: int = 0
    """In a topic without versions all have the same."""
    written_ms: int = 0

    def __eq__(self, other: object) -> bool:
        """The time is not stored."""
        return isinstance(other, Row) and self[:4] == other[:4]

    def __hash__(self) -> int:
        return hash(self[:4])

    @property
    def order(self) -> tuple[int, int]:
        """By which the newest row of a key is the largest."""
        return self.version, self.offset


VERSIONED = schema.typed(
    pa.schema([("key", pa.binary()), ("value", pa.binary()), ("gone", pa.bool_()), ("version", pa.int64())])
)
"""The columns of a topic with versions."""
NO_VERSION = -(2**63)


class CompactedTopic:
    """Topic t, with one partition, and a list of all rows that were ever written to it."""

    def __init__(self, store: Store | None = None, *, has_versions: bool = False, **settings: str) -> None:
        """`settings` are of the topic, with "_" for each "." of Kafka's names.

        With versions it is a typed topic with the same columns, and two more: `gone` and `version`.
        """
        self.has_versions = has_versions
        self.store = store or MemoryStore("the url")
        self.now_ms = 1_000_000
        self.log = self._opened(self.store)
        config = {"cleanup.policy": "compact", "file.delete.delay.ms": "0", "delete.retention.ms": "1000"}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        columns = None
        if has_versions:
            config |= {"key.column": "key", "delete.when": "gone", "compaction.version.column": "version"}
            columns = schema.columns_of(VERSIONED)
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

    def write(self, rows: Sequence[tuple[Key | None, Value]], versions: Sequence[int | None] = ()) -> None:
        """Append rows in one batch, as one chunk."""
        self.handle.refresh()
        name = born_name(self.handle.journal.number, self.log.environment.nonce())
        writer = AppendFileWriter(self.store.open_write(self.handle.append_file(name), durable=True))
        keys, values = zip(*rows, strict=True)
        times = pa.array([self.now_ms * 1000] * len(rows), schema.TIMESTAMP)
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        if self.has_versions:
            arrays += [pa.array([each is None for each in values]), pa.array(versions, pa.int64())]
        stored = VERSIONED if self.has_versions else schema.RECORD
        writer.append(0, pa.record_batch([*arrays, times], stored), schema.RECORD_ID, "lz4")
        writer.close()
        holders = tuple(Holder(*each) for each in self.handle.journal.state.incarnations.items())
        self.handle.submit(CommitBatch(None, (SequencedFile(name, holders, tuple(writer.chunks)),)))
        end = len(self.written)
        known = [NO_VERSION if each is None else each for each in versions] or [0] * len(rows)
        self.written += [Row(end + number, *row, known[number], self.now_ms) for number, row in enumerate(rows)]

    # Jobs, whether they are due or not

    def _job(self, segments, chunks, others=None, older=(), *, parquet=True) -> RollJob:
        one = self.partition
        job = RollJob(0, one.leader_epoch, 1, tuple(segments), tuple(chunks), one.epoch_starts, parquet)
        if others is None:
            return job
        needs = compaction_plan.compaction_of(self.handle.state, one, tuple(others), self.now_ms, tuple(older))
        return msgspec.structs.replace(job, compaction=needs)

    def fold_job(self, pieces: int | None = None) -> RollJob | None:
        """Return the fold of the oldest dense segments and chunks, all where no number is given; None without any."""
        return fold_job(self.handle, self.now_ms, pieces)

    def merge_job(self, first: int, count: int) -> RollJob | None:
        """Return the merge of neighbouring keyed segments; None if there are not so many."""
        keyed = self.partition.keyed_segments
        chosen = keyed[first : first + count]
        others, older = keyed[first + count :], keyed[:first]
        return self._job(chosen, (), others, older) if len(chosen) == count and count else None

    def roll_job(self, chunks: int) -> RollJob | None:
        """Return the roll of the oldest chunks into a dense segment."""
        taken = self.partition.chunks[:chunks]
        return self._job((), taken, parquet=False) if taken else None

    def make(self, job: RollJob) -> SwapSegments:
        """Write a job's segment, and swap nothing in."""
        return run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)

    def do(self, job: RollJob | None) -> bool:
        """Carry a job out; return whether its segment was swapped in."""
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
                self._cleaned.setdefault(row.offset, ref.keyed.cleaned_ms)

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

    def keyed_rows(self) -> list[Row]:
        """Return the rows in keyed segments, in order."""
        found = []
        for ref in self.partition.keyed_segments:
            key = self.handle.segment(0, ref.name)
            footer = parquet_footer.read(self.store, key)
            rows = []
            for entry in footer.entries:
                batch, offsets = keyed_segment.read_rows(self.store, key, footer, entry, self.handle.schemas)
                rows += _rows(offsets.tolist(), batch)
            assert [len(rows), sum(row.value is None for row in rows)] == [ref.keyed.rows, ref.keyed.tombstones]
            assert all(ref.base_offset <= row.offset < ref.end_offset for row in rows)
            found += rows
        return found

    def superseded(self) -> set[int]:
        """Return the offsets that keyed segments say are superseded."""
        found: set[int] = set()
        for ref in self.partition.keyed_segments:
            offsets = keyed_segment.read_superseded(self.store, self.handle.segment(0, ref.name)).tolist()
            assert not found.intersection(offsets), "two segments supersede one row"
            own = [each for each in offsets if each >= ref.base_offset]
            assert not own or ref.keyed.rows == 1, "only a last row may be superseded by itself"
            found.update(offsets)
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
                found += _rows(range(start, start + batch.num_rows), batch)
                start += batch.num_rows
        return found

    def newest(self) -> dict[Key, Row]:
        """Return the newest row of each key, as a reader of the newest state would find it."""
        superseded, tail = self.superseded(), self.dense_rows()
        state: dict[Key, Row] = {}
        for row in self.keyed_rows():
            if row.offset not in superseded:
                assert row.key is not None, "a row without a key is not superseded"
                assert row.key not in state, f"two rows of {row.key!r} are not superseded"
                state[row.key] = row
        for row in tail:
            if row.key is not None and (row.key not in state or row.order > state[row.key].order):
                state[row.key] = row
        return {key: row for key, row in state.items() if row.value is not None}

    # What must hold

    def newest_written(self, end: int | None = None) -> dict[Key, Row]:
        """Return the newest row of each key by the list of what was written, up to an offset."""
        state: dict[Key, Row] = {}
        for row in sorted(self.written[:end], key=lambda each: each.order):
            if row.key is not None:
                state[row.key] = row
        return state

    def expected(self) -> dict[Key, Row]:
        """Return the newest row of each key that was not deleted, by the list of what was written."""
        return {key: row for key, row in self.newest_written().items() if row.value is not None}

    def may_be(self, rows: Sequence[Row]) -> set[Row | None]:
        """Return which row may be the newest of those of a key, None if it is deleted.

        A row that deletes the key, and that was compacted, is forgotten after delete.retention.ms: older rows that are
        written later than that come back, or are deleted as well, according to whether it was still there.
        """
        if not rows:
            return {None}
        newest = max(rows, key=lambda each: each.order)
        if newest.value is not None:
            return {newest}
        found: set[Row | None] = {None}
        if newest.offset in self._cleaned:
            until = self._cleaned[newest.offset] + self.handle.config.delete_retention_ms
            later = [each for each in rows if each.written_ms >= until]
            for first in range(len(later)):
                found |= self.may_be(later[first:])
        return found

    def _check_state(self) -> None:
        newest, expected = self.newest(), self.expected()
        if not self.has_versions:
            assert newest == expected
            return
        by_key: dict[Key, list[Row]] = {}
        for row in self.written:
            if row.key is not None:
                by_key.setdefault(row.key, []).append(row)
        for key, rows in by_key.items():
            assert newest.get(key) in self.may_be(rows), key
        assert set(newest) <= set(by_key)

    def check(self) -> None:
        """Check every promise of a compacted partition."""
        one = self.partition
        self._note_cleaned()  # of a process that was killed before it knew
        self._check_state()
        rows = [*self.keyed_rows(), *self.dense_rows()]
        assert [row.offset for row in rows] == sorted({row.offset for row in rows})
        assert all(self.written[row.offset] == row for row in rows), "a surviving row has changed"
        assert self.dense_rows() == self.written[one.compacted_end :]
        assert one.log_end == one.high_watermark == len(self.written)
        kept = {row.offset for row in rows}
        for row in self.newest_written(one.compacted_end).values():
            if row.value is None:
                retained = self._cleaned[row.offset] + self.handle.config.delete_retention_ms
                assert row.offset in kept or self.now_ms >= retained
                older = [each for each in rows if each.key == row.key and each.offset < row.offset]
                assert row.offset in kept or not older, "who reads all rows finds a deleted key"


def fold_job(handle: TopicHandle, now_ms: int, pieces: int | None = None) -> RollJob | None:
    """Return the fold of the oldest dense pieces of partition 0, whether it is due or not; None without any."""
    one = handle.refresh().partitions[0]
    dense = list(itertools.islice(one.pieces_from(one.compacted_end), pieces))
    segments = [each for each in dense if each in one.segments]
    chunks = dense[len(segments) :]
    job = RollJob(0, one.leader_epoch, 1, tuple(segments), tuple(chunks), one.epoch_starts, parquet=True)
    needs = compaction_plan.compaction_of(handle.state, one, one.keyed_segments, now_ms)
    return msgspec.structs.replace(job, compaction=needs) if dense else None


def _rows(offsets, batch) -> list[Row]:
    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
    versions = [0] * len(keys)
    if "version" in batch.schema.names:
        versions = [NO_VERSION if each is None else each for each in batch.column("version").to_pylist()]
    return [Row(*each) for each in zip(offsets, keys, values, versions, strict=True)]
