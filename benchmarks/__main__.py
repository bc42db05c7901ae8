"""`python -m benchmarks`: measure, and print the table of docs/benchmarks.md.

Writes nothing into the repository, unless `--docs` asks for the table there to be replaced.
"""

from __future__ import annotations

import enum
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import report
from benchmarks.machine import describe
from benchmarks.session import benchmark_session

QUICK_ROWS = 1_000_000
QUICK_BATCHES = 20
QUICK_HISTORY = 1_000
PLAIN_WIDTH = 150


class Part(str, enum.Enum):
    """What can be measured by itself."""

    WRITE = "write"
    READ = "read"
    LATENCY = "latency"
    PLANNING = "planning"


def main(
    *,
    rows: Annotated[int, typer.Option(help="Rows of a throughput run.", min=10_000)] = 10_000_000,
    runs: Annotated[int, typer.Option(help="Throughput runs, of which the median counts.", min=1)] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of everything, to see that it runs.")] = False,
    only: Annotated[list[Part] | None, typer.Option(help="Measure only this part; may be repeated.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
    docs: Annotated[bool, typer.Option("--docs", help="Replace the table in docs/benchmarks.md.")] = False,
) -> None:
    """Measure throughput, latency and planning beside what Spark itself allows."""
    parts = only or list(Part)
    rows = min(rows, QUICK_ROWS) if quick else rows
    batches = QUICK_BATCHES if quick else 100
    lines: list[report.Line] = []
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    with tempfile.TemporaryDirectory(prefix="pyspark-log-bench-") as folder:
        if Part.PLANNING in parts:
            from benchmarks.planning import measure_planning

            lines += measure_planning(Path(folder), QUICK_HISTORY if quick else 10_000, console.log)
        if parts != [Part.PLANNING]:
            from benchmarks.latency import measure_latency
            from benchmarks.throughput import Throughput

            with benchmark_session(Path(folder)) as spark:
                if Part.WRITE in parts or Part.READ in parts:
                    throughput = Throughput(spark, Path(folder), rows, runs, console.log)
                    lines += throughput.measure(read=Part.READ in parts, write=Part.WRITE in parts)
                if Part.LATENCY in parts:
                    lines += measure_latency(spark, Path(folder), batches, console.log)
    machine = describe()
    console.print(report.table(lines), report.footer(machine, rows), sep="\n")
    if json is not None:
        report.write_json(json, lines, machine, rows)
    if docs:
        report.write_docs(Path(__file__).parent.parent / "docs" / "benchmarks.md", lines, machine, rows)


typer.run(main)
