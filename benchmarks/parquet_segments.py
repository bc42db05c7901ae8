"""Segments as Parquet beside segments as .log: what a roll takes, the bytes of a row, and how fast both are read.

Everything but the sizes is processor time of one process without Spark. The rows look like those of `rows`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.prefill import Writer, opened, without_flushing
from benchmarks.report import Line, at_most, detail, information
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.batch import SequencedFile, StagedFile
from pyspark_log_coordinator.model.partition import Holder, SegmentRef
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_log_coordinator.log.log import Log

CHUNK_ROWS = 70_000
"""Rows of a chunk as large as writers make them."""
KAFKA_BYTES = 56
"""Of a row of the benchmarks in Kafka with lz4, see `stored`."""
KAFKA_TARGET = 0.6


class Measured:
    """A topic with the rows in one segment of a format."""

    def __init__(self, log: Log, kind: str, compression: str, rows: int) -> None:
        config = parse({"retention.ms": "-1", "compression.type": compression})
        writer = Writer(log, f"{kind}-{compression}", 1, config)
        self._log, self._handle, self.rows = log, writer.handle, rows
        state = self._handle.journal.state
        holders = tuple(Holder(*item) for item in state.incarnations.items())
        name = born_name(self._handle.journal.number, log.environment.nonce())
        file = AppendFileWriter(log.store.open_write(self._handle.append_file(name), durable=False))
        batches = [rows_between(first, min(rows, first + CHUNK_ROWS)) for first in range(0, rows, CHUNK_ROWS)]
        begun = time.process_time()
        for batch in batches:
            file.append(0, batch, schema.RECORD_ID, compression)
        file.close()
        self.write_seconds = time.process_time() - begun
        staged = SequencedFile(name, holders, tuple(file.chunks))
        writer.commit([StagedFile(self._handle.name, self._handle.topic_id, staged)], [])
        self.roll_seconds = self._roll(parquet=kind == "parquet")

    def _roll(self, *, parquet: bool) -> float:
        """Roll all rows into one segment; return the processor time."""
        one = self._handle.refresh().partitions[0]
        job = RollJob(0, one.leader_epoch, 1, (), tuple(one.chunks), one.epoch_starts, parquet)
        work = roll_task_of(self._handle, job)
        begun = time.process_time()
        swap = run_roll(self._log.store_at, work, self._log.environment)
        took = time.process_time() - begun
        self._handle.submit(MaintainSegments((swap,)))
        return took

    @property
    def segment(self) -> SegmentRef:
        """The only segment."""
        (found,) = self._handle.refresh().partitions[0].segments
        return found

    def read_seconds(self) -> float:
        """Read all rows; return the processor time."""
        split = split_of(self._handle, Range(self._handle.name, 0, 0, self.rows))
        begun = time.process_time()
        found = sum(batch.num_rows for _, batch in fetch(self._log.store_at, split))
        took = time.process_time() - begun
        assert found == self.rows
        return took


def rows_between(start: int, end: int) -> pa.RecordBatch:
    """Return rows as those of `rows`: a key of about 10 bytes, and a JSON value of about 90."""
    dice = np.random.default_rng(start)
    ids = np.arange(start, end)

    def text(numbers: object) -> pa.Array:
        return pa.array(numbers).cast(pa.string())

    def chosen(*names: str) -> pa.Array:
        return pa.array(names).take(pa.array(dice.integers(0, len(names), end - start)))

    times = pa.array(1356998400 + dice.integers(0, 31_536_000, end - start), pa.timestamp("s"))
    value = pc.binary_join_element_wise(
        '{"id":',
        text(ids),
        ',"carrier":"',
        chosen("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN"),
        '","origin":"',
        chosen("EWR", "LGA", "JFK"),
        '","delay":',
        text(dice.integers(-60, 180, end - start)),
        ',"at":"',
        pc.strftime(times, "%Y-%m-%d %H:%M:%S"),
        '","air":',
        text(dice.integers(20, 620, end - start)),
        "}",
        "",
    )
    key = pc.binary_join_element_wise("key-", text(dice.integers(0, 1_000_003, end - start)), "")
    now = pa.array(np.full(end - start, 1_700_000_000_000_000 + start)).cast(schema.TIMESTAMP)
    return pa.RecordBatch.from_arrays([key.cast(pa.binary()), value.cast(pa.binary()), now], schema=schema.RECORD)


def measure_parquet(folder: Path, rows: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about segments of both formats."""
    log(f"rolling {rows:,} rows to a .log and to Parquet, with lz4 and with zstd")
    lines = []
    with without_flushing():
        opened_log = opened(LocalStore(str(folder / "parquet")), create=True)
        for compression in ("lz4", "zstd"):
            chunks, parquet = (Measured(opened_log, kind, compression, rows) for kind in ("log", "parquet"))
            lines += _lines(chunks, parquet, compression)
    return lines


def _lines(chunks: Measured, parquet: Measured, compression: str) -> list[Line]:
    rows = chunks.rows
    size = parquet.segment.log_bytes / rows
    how = f"Parquet segment, {compression}"
    bytes_line = Line(
        f"{how}: bytes per row, beside Kafka's lz4",
        "B",
        size,
        KAFKA_BYTES,
        size / KAFKA_BYTES,
        at_most(KAFKA_TARGET),
    )
    return [
        bytes_line,
        detail("beside the .log", "B", size, chunks.segment.log_bytes / rows),
        information(
            f"{how}: read by the product, beside the .log",
            "M rows/s",
            rows / parquet.read_seconds() / 1e6,
            rows / chunks.read_seconds() / 1e6,
        ),
        information(
            f"{how}: seconds of a roll per million rows, beside the .log",
            "s",
            parquet.roll_seconds / rows * 1e6,
            chunks.roll_seconds / rows * 1e6,
        ),
        detail(
            "beside encoding and writing the chunks",
            "s",
            parquet.roll_seconds / rows * 1e6,
            chunks.write_seconds / rows * 1e6,
        ),
    ]
