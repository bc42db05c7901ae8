"""`python -m benchmarks`: measure, and print the table of docs/benchmarks.md.

Writes nothing into the repository, except with `--docs`, which replaces the table and the plots there.
"""

from __future__ import annotations

import enum
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from benchmarks import report
from benchmarks.machine import describe
from benchmarks.session import benchmark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK_ROWS = 1_000_000
PLAIN_WIDTH = 170
DOCS = Path(__file__).parent.parent / "docs"


class Part(str, enum.Enum):
    """The parts that can be measured separately."""

    BESIDE = "beside"
    WRITE = "write"
    READ = "read"
    ROLLED = "rolled"
    TABLES = "tables"
    BYTES = "bytes"
    LATENCY = "latency"
    MAINTENANCE = "maintenance"
    PLANNING = "planning"
    PARTITIONS = "partitions"
    LOOKUP = "lookup"
    PARQUET = "parquet"
    SCAN = "scan"
    COMPACTION = "compaction"
    UI = "ui"
    MONTH = "month"
    JOURNAL = "journal"
    CLIENTS = "clients"
    PRODUCERS = "producers"
    MEMBERS = "members"
    REPLICATION = "replication"
    KAFKA = "kafka"
    S3 = "s3"
    IDLE = "idle"


THROUGHPUT = {Part.WRITE, Part.READ, Part.ROLLED}
WITH_SPARK = THROUGHPUT | {
    Part.BESIDE,
    Part.COMPACTION,
    Part.TABLES,
    Part.BYTES,
    Part.LATENCY,
    Part.MAINTENANCE,
    Part.REPLICATION,
    Part.S3,
}


class Run:
    """Measures the chosen parts, one after another in one folder."""

    def __init__(self, folder: Path, parts: set[Part], rows: int, runs: int, console: Console, *, quick: bool) -> None:
        self.folder = folder
        self.parts = parts
        self.rows = rows
        self.runs = runs
        self.quick = quick
        self.say = console.log
        self.plots: dict[str, str] = {}
        """SVGs by file name."""

    def measure(self) -> Iterator[list[report.Line]]:
        """Yield the lines of each part when it is measured."""
        if self.parts & WITH_SPARK:
            yield from self._with_spark()
        yield from self._without_spark()

    def _with_spark(self) -> Iterator[list[report.Line]]:
        from benchmarks.beside import Beside
        from benchmarks.compaction import NewestState
        from benchmarks.latency import measure_latency
        from benchmarks.maintenance import measure_maintenance
        from benchmarks.replication import measure_replicated_write
        from benchmarks.s3_spark import measure_s3_queries
        from benchmarks.stored import measure_stored
        from benchmarks.tables import Tables
        from benchmarks.throughput import Throughput

        with benchmark_session(self.folder) as spark:
            if Part.BESIDE in self.parts:
                beside = Beside(spark, self.folder, self.rows // 5, self.runs, self.say)
                lines, self.plots["beside.svg"] = beside.measure(20 if self.quick else 50)
                yield lines
            if self.parts & THROUGHPUT:
                throughput = Throughput(spark, self.folder, self.rows, self.runs, self.say)
                yield throughput.measure(
                    read=Part.READ in self.parts, write=Part.WRITE in self.parts, rolled=Part.ROLLED in self.parts
                )
            if Part.TABLES in self.parts:
                yield Tables(spark, self.folder, self.rows, self.runs, self.say).measure()
            if Part.COMPACTION in self.parts:
                yield NewestState(spark, self.folder, self.rows // 10, self.runs, self.say).measure()
            if Part.BYTES in self.parts:
                yield measure_stored(spark, self.folder, 200 if self.quick else 2_000, self.say)
            if Part.LATENCY in self.parts:
                yield measure_latency(spark, self.folder, 20 if self.quick else 100, self.say)
            if Part.MAINTENANCE in self.parts:
                for rows, batches, turns in ((1_000, 16, 1),) if self.quick else ((1_000, 64, 8), (100_000, 32, 4)):
                    yield measure_maintenance(spark, self.folder, rows, batches, turns, self.say)
            if Part.S3 in self.parts:
                batches, seconds = (10, 10) if self.quick else (20, 30)
                yield measure_s3_queries(spark, self.folder, batches, seconds, self.say)
            if Part.REPLICATION in self.parts:
                yield measure_replicated_write(spark, self.folder, self.rows, self.runs, self.say)

    def _without_spark(self) -> Iterator[list[report.Line]]:  # noqa: C901, PLR0912 -- a branch for each part
        if Part.PLANNING in self.parts:
            from benchmarks.planning import measure_planning

            yield measure_planning(self.folder, (1_000,) if self.quick else (10_000, 100_000), self.say)
        if Part.PARTITIONS in self.parts:
            from benchmarks.many_partitions import measure_many_partitions

            counts = (10, 100, 1_000) if self.quick else (10, 1_000, 10_000)
            yield measure_many_partitions(self.folder, counts, self.say)
        if Part.LOOKUP in self.parts:
            from benchmarks.lookup import QUICK_SHAPES, SHAPES, measure_lookup

            yield measure_lookup(self.folder, QUICK_SHAPES if self.quick else SHAPES, self.say)
        if Part.PARQUET in self.parts:
            from benchmarks.parquet_segments import measure_parquet

            yield measure_parquet(self.folder, 1_000_000 if self.quick else 5_000_000, self.say)
        if Part.SCAN in self.parts:
            from benchmarks.scans import measure_scans

            yield measure_scans(self.folder, 1_000_000 if self.quick else 5_000_000, self.runs, self.say)
        if Part.COMPACTION in self.parts:
            from benchmarks.compaction import measure_compaction

            yield measure_compaction(self.folder, self.rows, self.say)
        if Part.REPLICATION in self.parts:
            from benchmarks.replication import measure_replicas

            yield measure_replicas(self.folder, self.say, quick=self.quick)
        if Part.JOURNAL in self.parts:
            from benchmarks.journal import measure_journal

            yield measure_journal(self.folder, 100 if self.quick else 1_000, self.say)
        if Part.CLIENTS in self.parts:
            from benchmarks.clients import measure_clients

            rows, seconds = (200_000, 5) if self.quick else (1_000_000, 20)
            yield measure_clients(self.folder, rows, seconds, self.say)
        if Part.PRODUCERS in self.parts:
            from benchmarks.producers import measure_producers

            yield measure_producers(self.folder, 5 if self.quick else 20, self.say, quick=self.quick)
        if Part.MEMBERS in self.parts:
            from benchmarks.group_planning import measure_group_planning
            from benchmarks.groups import measure_groups

            yield measure_group_planning(self.folder, 50 if self.quick else 200, self.say)
            yield measure_groups(self.folder, 20 if self.quick else 100, self.say)
        if Part.KAFKA in self.parts:
            from benchmarks.kafka import measure_kafka

            yield measure_kafka(self.folder, 200_000 if self.quick else 1_000_000, self.runs, self.say)
        if Part.S3 in self.parts:
            from benchmarks.s3 import measure_s3
            from benchmarks.s3_planning import measure_s3_planning

            yield measure_s3(self.folder, 500_000 if self.quick else 2_000_000, self.runs, self.say)
            pasts = (1_000, 10_000) if self.quick else (1_000, 10_000, 100_000)
            yield measure_s3_planning(self.folder, pasts, self.say)
        if Part.UI in self.parts:
            from benchmarks.ui import measure_ui

            yield measure_ui(self.folder, 10 if self.quick else 100, self.say)
        if Part.IDLE in self.parts:
            from benchmarks.idle import measure_idle

            yield measure_idle(self.say)
        if Part.MONTH in self.parts:
            from benchmarks.month import measure_month

            days, self.plots["month.svg"] = measure_month(self.folder, 8_000 if self.quick else 1_000, self.say)
            yield days


def main(
    *,
    rows: Annotated[int, typer.Option(help="Number of rows in a throughput run.", min=10_000)] = 10_000_000,
    runs: Annotated[int, typer.Option(help="Number of throughput runs; the median counts.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version of everything.")] = False,
    only: Annotated[list[Part] | None, typer.Option(help="Measure only this part; may be repeated.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
    docs: Annotated[bool, typer.Option("--docs", help="Replace the measured lines in docs/benchmarks.md.")] = False,
) -> None:
    """Measure the product against what Spark itself allows, and the cost of a topic as it ages."""
    rows = min(rows, QUICK_ROWS) if quick else rows
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    with tempfile.TemporaryDirectory(prefix="pyspark-log-bench-") as folder:
        run = Run(Path(folder), set(only or Part), rows, runs, console, quick=quick)
        lines: list[report.Line] = []
        machine = describe()
        try:
            for measured in run.measure():
                lines += measured
        finally:  # if a part fails, those before it have taken many minutes
            console.print(report.table(lines), report.footer(machine, rows), sep="\n")
    if json is not None:
        report.write_json(json, lines, machine, rows)
    if docs:
        report.write_docs(DOCS / "benchmarks.md", lines, None if only else report.footer(machine, rows))
        for name, svg in run.plots.items():
            (DOCS / name).write_text(svg)


typer.run(main)
