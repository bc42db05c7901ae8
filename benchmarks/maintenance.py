"""Maintenance: how much inline maintenance slows down writing.

A stream writes micro-batches into a topic that has a past and is maintained as usual. In alternation, the same stream
writes into a new topic for which no maintenance is ever due (`unmaintained.py`). About every eighth batch rolls a
segment of each partition, and some merge. Means are compared, not medians, because few batches do maintenance.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.prefill import PARTITIONS, Clock, SmallBatches, another_process, without_flushing
from benchmarks.report import Line, at_most, detail
from benchmarks.rows import fresh_rows
from benchmarks.stopwatch import percentile, timed
from benchmarks.unmaintained import Unmaintained
from pyspark_log.reading.arrow_rows import COLUMNS, record_schema
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.segments.swap import SegmentsSwapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

TASKS = 8
WARM_UP = 10
"""Batches of a query that do not count."""
WARM_UP_FIRST = 60
"""Batches of the first query of each side, of which none counts."""
TARGET = 1.10
PAST = 704
"""Batches in the past of the maintained topic: at ten a second, more than `file.delete.delay.ms`."""
PAST_ROWS_MAX = 4_000_000


@dataclass
class Batches:
    """The micro-batches of one side: their milliseconds, and the processor time of its queries (seconds)."""

    took: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Sides:
    """A topic that is maintained, and others that are not, all written by the same stream."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, batches: int) -> None:
        """Prepare turns of `batches` micro-batches with `rows` rows each."""
        self.spark = spark
        self.folder = folder
        self.rows = rows
        self.batches = batches + WARM_UP
        self.path = str(folder / f"maintenance-{rows}")
        self._sample = str(folder / f"maintenance-{rows}.arrow")
        self._queries = 0
        arrow = fresh_rows(spark, max(rows, 100_000), 1).toArrow()
        self._take_sample(arrow)
        self.maintained, self.unmaintained = Batches(), Batches()
        clock = Clock.before_now(PAST)
        past = another_process(self.path, clock.environment(), create=True)
        with without_flushing():
            SmallBatches(past, clock, "kept", arrow, rows, TASKS).send(min(PAST, PAST_ROWS_MAX // rows))
        self._journal = another_process(self.path).topic("kept").journal
        self._counted = self._journal.number
        self.segments: Counter[int] = Counter()
        """How many segments of each level the turns made."""

    def _take_sample(self, rows: pa.Table) -> None:
        """Keep rows as a source gives them."""
        count = rows.num_rows
        columns = [
            rows.column("key").cast(pa.binary()),
            rows.column("value").cast(pa.binary()),
            *(pa.nulls(count, kind) for kind in list(COLUMNS.values())[2:7]),
        ]
        names = tuple(COLUMNS)[:7]
        table = pa.Table.from_arrays(columns, schema=record_schema(names)).combine_chunks()
        with pa.ipc.new_file(self._sample, table.schema) as file:
            file.write_table(table)

    def warm_up(self) -> None:
        """Write a few batches to both, which do not count."""
        self._run("pyspark_log", "kept", Batches(), WARM_UP_FIRST)
        self._run("bench_unmaintained", "warm-up", Batches(), WARM_UP_FIRST)
        self._journal.refresh()
        self._counted = self._journal.number

    def turn(self) -> None:
        """Write a turn's batches to both."""
        self._run("pyspark_log", "kept", self.maintained, self.batches)
        self._count_segments()
        self._run("bench_unmaintained", f"free-{self._queries}", self.unmaintained, self.batches)

    def _run(self, sink: str, topic: str, into: Batches, batches: int) -> None:
        self._queries += 1
        source = self.spark.readStream.format("bench_stream")
        rows = source.options(sample=self._sample, rows=self.rows, partitions=TASKS, batches=batches).load()
        writer = rows.select("key", "value").writeStream.format(sink)
        options = {
            "topic": topic,
            "path": self.path,
            "num.partitions": str(PARTITIONS),
            "checkpointLocation": str(self.folder / f"maintenance-{self.rows}-{self._queries}"),
        }
        query = writer.options(**options).trigger(availableNow=True).start()
        into.cpu.append(timed(query.awaitTermination).cpu)
        done = [each for each in query.recentProgress if each["numInputRows"]]
        assert len(done) == batches, f"{len(done)} micro-batches"
        into.took += [each["durationMs"]["triggerExecution"] for each in done[WARM_UP:]]

    def _count_segments(self) -> None:
        """Add up the segments made since the last call; the journal keeps only its newest entries."""
        for step in history(self._journal, self._counted):
            self.segments.update(event.segment.level for event in step.events if isinstance(event, SegmentsSwapped))
        self._counted = self._journal.number


def measure_maintenance(
    spark: SparkSession, folder: Path, rows: int, batches: int, turns: int, log: Callable[[str], object]
) -> list[Line]:
    """Return the lines about micro-batches of `rows` rows, with and without maintenance."""
    spark.dataSource.register(Unmaintained)
    log(f"{turns} turns of {batches:,} micro-batches of {rows:,} rows, with and without maintenance")
    sides = Sides(spark, folder, rows, batches)
    sides.warm_up()
    for _ in range(turns):
        sides.turn()
        with_it, without = (statistics.mean(side.took) for side in (sides.maintained, sides.unmaintained))
        log(f"so far {with_it:.1f} ms with maintenance and {without:.1f} ms without")
    kept, free = sides.maintained, sides.unmaintained
    with_it, without = statistics.mean(kept.took), statistics.mean(free.took)
    levels = ", ".join(f"{count:,} of level {level}" for level, count in sorted(sides.segments.items()))
    return [
        Line(
            name=f"writing micro-batches of {rows:,} rows, with maintenance beside without",
            unit="ms",
            product=with_it,
            ceiling=without,
            target=at_most(TARGET),
            ratio=with_it / without,
            cpu_ratio=sum(kept.cpu) / sum(free.cpu),
            note=f"means of {len(kept.took):,}; segments made: {levels}",
        ),
        detail("median", "ms", statistics.median(kept.took), statistics.median(free.took)),
        detail("99th percentile", "ms", percentile(kept.took, 99), percentile(free.took, 99)),
    ]
