"""Lookup: finding the position of one offset, or of one time, in a partition of 1,000 segments.

A process that has the topic's state looks for new entries in the journal, finds the segment, and reads the blocks of
its index that locate the chunk. The bytes read are counted at the store. Reading the row itself also reads its chunk:
this is measured in a second partition, whose chunks are as large as writers make them. A third partition has an index
as long as that of a segment of a gigabyte.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.prefill import US_PER_MS, VALUE, Writer, opened, without_flushing
from benchmarks.report import Line, at_most, detail
from benchmarks.stopwatch import percentile
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import offset_for_time
from pyspark_log_coordinator.model.batch import SequencedFile, StagedFile
from pyspark_log_coordinator.model.partition import Holder, SegmentRef
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name, segment_name
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_log_coordinator.log.log import Log

TOPIC = "long"
LOOKUPS = 2_000
MS_MAX = 5.0
KIB = 1024
READ_KIB_MAX = 64.0
LEVEL_MAX = 3
"""Segments of this level are not merged further."""


class Shape(msgspec.Struct, frozen=True):
    """The segments and chunks of a partition."""

    segments: int
    chunks: int
    """In each segment."""
    rows: int
    """In each chunk."""


ROW_BYTES = 117
"""Of a row before compression."""
FULL = chunk.CHUNK_BYTES // ROW_BYTES
"""Rows of a chunk as large as writers make them."""
LONG, FULL_CHUNKS, LONG_INDEX = 0, 1, 2
SHAPES = (Shape(1_000, 256, 4), Shape(16, 4, FULL), Shape(8, 2_560, 1))
QUICK_SHAPES = (Shape(1_000, 8, 4), Shape(4, 2, FULL), Shape(2, 2_560, 1))


class CountingStore(LocalStore):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = super().read(key, start, length)
        self.bytes_read += len(data)
        return data


class Builder(Writer):
    """Writes partitions of given shapes. A row's timestamp is its offset in milliseconds."""

    def __init__(self, log: Log, shapes: tuple[Shape, ...]) -> None:
        super().__init__(log, TOPIC, len(shapes), parse({"retention.ms": "-1"}))
        state = self.handle.journal.state
        self._holders = tuple(Holder(*item) for item in state.incarnations.items())
        for partition, shape in enumerate(shapes):
            rows = shape.chunks * shape.rows
            for number in range(shape.segments):
                self._add(partition, rows_between(number * rows, (number + 1) * rows), shape.rows)

    def _add(self, partition: int, rows: pa.RecordBatch, chunk_rows: int) -> None:
        """Append rows, and replace them by a segment with chunks of `chunk_rows`."""
        start = self.handle.journal.state.partitions[partition].log_end
        born, nonce = self.handle.journal.number, self.log.environment.nonce()
        file = AppendFileWriter(
            self.log.store.open_write(self.handle.append_file(born_name(born, nonce)), durable=False)
        )
        file.append(partition, rows, schema.RECORD_ID, "lz4")
        file.close()
        name = segment_name(start, born, nonce)
        writer = segment.SegmentWriter(self.log.store, self.handle.segment(partition, name), ((0, 0),))
        for first in range(0, rows.num_rows, chunk_rows):
            writer.append(*chunk.encode(rows.slice(first, chunk_rows), schema.RECORD_ID, "lz4"))
        made = writer.close()
        reference = SegmentRef(
            **msgspec.structs.asdict(made),
            holders=self._holders,
            level=LEVEL_MAX,
            timestamp_reached=made.max_timestamp,
        )
        staged = SequencedFile(born_name(born, nonce), self._holders, tuple(file.chunks))
        self.commit([StagedFile(self.handle.name, self.handle.topic_id, staged)], [])
        self.handle.submit(MaintainSegments((SwapSegments(partition, 0, (reference,)),)))


def rows_between(start: int, end: int) -> pa.RecordBatch:
    """Return the rows at these offsets."""
    keys = pa.array([f"key-{i}".encode() for i in range(start, end)])
    values = pa.array([VALUE.format(i).encode() for i in range(start, end)])
    times = pa.array(np.arange(start, end) * US_PER_MS, schema.TIMESTAMP)
    return pa.record_batch([keys, values, times], schema=schema.RECORD)


class Lookups:
    """Finds rows of one partition. A row's timestamp is its offset in milliseconds."""

    def __init__(self, log: Log, store: CountingStore, partition: int) -> None:
        self.log, self.store, self.partition = log, store, partition
        state = log.topic(TOPIC).journal.state.partitions[partition]
        assert not state.chunks, "some rows are not in segments"
        self.rows = state.high_watermark

    def position_of_offset(self, offset: int) -> None:
        """Find the chunk that holds an offset."""
        split = split_of(self.log.topic(TOPIC), Range(TOPIC, self.partition, offset, offset + 1))
        (key,) = split.segments
        (entry,) = index.between(index.table(self.store, key), offset, offset + 1)
        assert entry.base_offset <= offset < entry.end_offset

    def position_of_time(self, offset: int) -> None:
        """Find the first chunk that reaches the time of a row."""
        handle, timestamp = self.log.topic(TOPIC), offset * US_PER_MS
        first = handle.journal.state.partitions[self.partition].segments_reaching(timestamp)[0]
        entry = index.first_reaching(index.table(self.store, handle.segment(self.partition, first.name)), timestamp)
        assert entry is not None
        assert entry.base_offset <= offset < entry.end_offset

    def row_of_offset(self, offset: int) -> None:
        """Read the row at an offset."""
        split = split_of(self.log.topic(TOPIC), Range(TOPIC, self.partition, offset, offset + 1))
        ((found, rows),) = fetch(self.log.store_at, split)
        assert (found.tolist(), rows.num_rows) == ([offset], 1)

    def row_of_time(self, offset: int) -> None:
        """Find the offset of a time, as `offsets --time` and `startingTimestamp` do."""
        assert offset_for_time(self.log.topic(TOPIC), self.partition, offset) == offset

    def measure(self, find: Callable[[int], None], lookups: int) -> tuple[list[float], list[int]]:
        """Return the milliseconds and the bytes read of many random lookups."""
        chance = random.Random(find.__name__)
        took, read = [], []
        for _ in range(lookups):
            offset = chance.randrange(self.rows)
            before, begun = self.store.bytes_read, time.perf_counter()
            find(offset)
            took.append((time.perf_counter() - begun) * 1_000)
            read.append(self.store.bytes_read - before)
        return took, read


def measure_lookup(folder: Path, shapes: tuple[Shape, ...], log: Callable[[str], object]) -> list[Line]:
    """Return the lines about finding rows in partitions of these shapes."""
    for shape in shapes:
        log(f"a partition of {shape.segments:,} segments, each of {shape.chunks:,} chunks of {shape.rows:,} rows")
    store = CountingStore(str(folder / "lookup"))
    opened_log = opened(store, create=True)
    with without_flushing():
        Builder(opened_log, shapes)
    long, full, indexed = (Lookups(opened_log, store, number) for number in (LONG, FULL_CHUNKS, LONG_INDEX))
    long.measure(long.position_of_offset, LOOKUPS // 10)
    lines = []
    for what, position, row in (
        ("an offset", Lookups.position_of_offset, Lookups.row_of_offset),
        ("a time", Lookups.position_of_time, Lookups.row_of_time),
    ):
        took, read = long.measure(getattr(long, position.__name__), LOOKUPS)
        name = f"position of {what} among {shapes[LONG].segments:,} segments"
        note = f"{LOOKUPS:,} random ones"
        lines += [
            Line(f"{name}, 99th percentile", "ms", percentile(took, 99), target=at_most(MS_MAX, "ms"), note=note),
            Line(f"{name}, read at most", "KiB", max(read) / KIB, target=at_most(READ_KIB_MAX, "KiB"), note=note),
            detail("median", "ms", statistics.median(took)),
        ]
        took, read = indexed.measure(getattr(indexed, position.__name__), LOOKUPS)
        where = f"in an index of {shapes[LONG_INDEX].chunks:,} chunks"
        lines.append(detail(f"{where}, 99th percentile", "ms", percentile(took, 99)))
        lines.append(detail(f"{where}, read at most", "KiB", max(read) / KIB))
        took, read = full.measure(getattr(full, row.__name__), LOOKUPS // 4)
        lines.append(detail(f"row of {what}, with its chunk, median", "ms", statistics.median(took)))
        lines.append(detail(f"row of {what}, with its chunk, read at most", "KiB", max(read) / KIB))
    return lines
