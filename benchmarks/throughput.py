"""Throughput: many rows into a topic and out of it, compared with a source and a sink that do nothing.

All four read from memory: writes take the persisted rows, reads take files that the operating system has cached, and
the read ceiling's batches are built in advance, more than fit the processor's cache. Reads end in an aggregate over
every column of every row, so that no column is skipped; it costs the same for both. Each ceiling has the batch size
that is best for it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.report import Line, at_least
from benchmarks.rows import persisted_rows
from benchmarks.stopwatch import Timing, by_turns, in_turns, timed
from benchmarks.stored import merge_everything
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 8
BATCH_ROWS = (5_000, 10_000, 20_000, 50_000, 100_000)
SAMPLE_ROWS = 500_000
"""About 75 MB for each Python worker."""
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
LOOK_AT_ALL = (
    "sum(octet_length(key))",
    "sum(octet_length(value))",
    "sum(octet_length(topic))",
    "sum(partition)",
    "max(offset)",
    "max(timestamp)",
    "sum(timestampType)",
)
READ_TARGETS = {"read": 0.90, "read, all in segments": 0.95}
WRITE_TARGET = 0.65
MEGA = 1_000_000


class Throughput:
    """The runs over one set of rows."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> None:
        self.spark = spark
        self.rows = rows
        self.runs = runs
        self.log = log
        self.path = str(folder / "throughput")
        self.folder = folder
        self._topics = 0
        self.newest = ""

    def measure(self, *, read: bool, write: bool, rolled: bool) -> list[Line]:
        """Return the chosen lines of the table. Both reads are compared with the same runs of the ceiling."""
        self.log(f"making {self.rows:,} rows")
        frame, sizes = persisted_rows(self.spark, self.rows, PARTITIONS)
        self.log(f"on average a key has {sizes.key:.1f} bytes and a value {sizes.value:.1f}")
        lines = [self._write(frame)] if write else []
        if not self.newest:
            self.save(frame, self.new_topic())
        topics = {"read": self.newest} if read else {}
        if rolled:
            topics["read, all in segments"] = self._rolled(frame)
        frame.unpersist(blocking=True)
        return [*lines, *self._read(topics)] if topics else lines

    def _write(self, frame: DataFrame) -> Line:
        best = self._best("write", lambda rows: self.count(frame, rows))
        # Created in advance: only the write is timed.
        topics = iter([self.new_topic() for _ in range(self.runs + 1)])
        product, ceiling = by_turns(lambda: self.save(frame, next(topics)), lambda: self.count(frame, best), self.runs)
        return self._line("write, lz4", product, ceiling, WRITE_TARGET, best)

    def _rolled(self, frame: DataFrame) -> str:
        """Write all rows into a topic, put all of them into segments, and return its name."""
        topic = self.new_topic()
        self.save(frame, topic)
        log = open_log(self.path)
        merge_everything(log.topic(topic))
        return topic

    def _read(self, topics: Mapping[str, str]) -> list[Line]:
        """Return a line for each topic, by its name in the table."""
        self._take_samples()
        best = self._best("read", self.scan)
        reads = [functools.partial(self.load, topic) for topic in topics.values()]
        *products, ceiling = in_turns([*reads, functools.partial(self.scan, best)], self.runs)
        return [
            self._line(what, product, ceiling, READ_TARGETS[what], best)
            for what, product in zip(topics, products, strict=True)
        ]

    def new_topic(self) -> str:
        """Create a topic and return its name."""
        self._topics += 1
        name = f"rows-{self._topics}"
        open_log(self.path, create=True).create_topic(name, PARTITIONS)
        return name

    def save(self, frame: DataFrame, topic: str) -> None:
        """Write all rows into a topic."""
        self.newest = topic
        frame.write.format("pyspark_log").mode("append").option("topic", topic).save(self.path)

    def count(self, frame: DataFrame, batch_rows: int) -> None:
        """Write all rows into the sink that counts."""
        usual = self.spark.conf.get(ARROW_ROWS) or ""
        self.spark.conf.set(ARROW_ROWS, batch_rows)
        frame.write.format("bench_count").mode("append").save()
        self.spark.conf.set(ARROW_ROWS, usual)

    def load(self, topic: str) -> None:
        """Read a topic."""
        self._look_at(self.spark.read.format("pyspark_log").option("subscribe", topic).load(self.path))

    def scan(self, batch_rows: int) -> None:
        """Read the same number of rows in prebuilt batches."""
        self._look_at(
            self.spark.read.format("bench_batches")
            .options(sample=self._sample(batch_rows), rows=self.rows, partitions=PARTITIONS)
            .load()
        )

    def _look_at(self, frame: DataFrame) -> None:
        frame.selectExpr(*LOOK_AT_ALL).collect()

    def _best(self, what: str, run: Callable[[int], object]) -> int:
        """Try each batch size twice; return the one with which a ceiling is fastest."""
        run(BATCH_ROWS[0])
        best = min(BATCH_ROWS, key=lambda rows: min(timed(lambda: run(rows)).wall for _ in range(2)))
        self.log(f"the {what} ceiling is highest with batches of {best:,} rows")
        return best

    def _take_samples(self) -> None:
        """Store rows as the source yields them, in batches of each size, for the ceiling."""
        frame = self.spark.read.format("pyspark_log").option("subscribe", self.newest).load(self.path)
        rows = frame.limit(SAMPLE_ROWS).toArrow()
        for batch_rows in BATCH_ROWS:
            with pa.ipc.new_file(self._sample(batch_rows), rows.schema) as file:
                file.write_table(rows.combine_chunks(), max_chunksize=batch_rows)

    def _sample(self, batch_rows: int) -> str:
        return str(self.folder / f"sample-{batch_rows}.arrow")

    def _line(self, name: str, product: Timing, ceiling: Timing, target: float, best: int) -> Line:
        return Line(
            name=f"{name}, {self.rows:,} rows",
            unit="M rows/s",
            product=self.rows / product.wall / MEGA,
            ceiling=self.rows / ceiling.wall / MEGA,
            target=at_least(target),
            ratio=ceiling.wall / product.wall,
            cpu_ratio=ceiling.cpu / product.cpu,
            note=f"ceiling: batches of {best:,} rows",
        )
