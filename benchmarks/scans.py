"""`scan` beside PyArrow reading the same Parquet segment, and of the same rows as chunks, without Spark."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks.parquet_segments import Measured
from benchmarks.prefill import opened, without_flushing
from benchmarks.report import Line, information
from benchmarks.stopwatch import in_turns
from pyspark_log import scan
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

STORED = ("partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a Parquet segment."""
FEW = ("partition", "offset", "timestamp")


def measure_scans(folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about scans of a topic whose rows are in one Parquet segment, and of one with a .log."""
    log(f"scanning {rows:,} rows")
    path = folder / "scans"
    with without_flushing():
        opened_log = opened(LocalStore(str(path)), create=True)
        for kind in ("parquet", "log"):
            Measured(opened_log, kind, "zstd", rows)
    (file,) = path.glob("topics/parquet-zstd/*/0/*.parquet")
    lines = []
    for what, columns in ("all columns", STORED), ("three of six columns", FEW):
        found = in_turns(
            [
                partial(_consume, path, "parquet-zstd", columns, rows),
                partial(_read, file, columns, rows, use_threads=True),
                partial(_read, file, columns, rows, use_threads=False),
                partial(_consume, path, "log-zstd", columns, rows),
            ],
            runs,
        )
        speed, by_arrow, by_one_thread, of_chunks = (rows / each.wall / 1e6 for each in found)
        lines += [
            information(f"scan, {what}, beside PyArrow with two threads", "M rows/s", speed, by_arrow),
            information(f"scan, {what}, beside PyArrow with one thread", "M rows/s", speed, by_one_thread),
            information(f"scan, {what}, the same rows in a .log", "M rows/s", of_chunks),
        ]
    return lines


def _consume(path: Path, topic: str, columns: Sequence[str], rows: int) -> None:
    assert sum(batch.num_rows for batch in scan(str(path), topic, columns=columns).to_reader()) == rows


def _read(file: Path, columns: Sequence[str], rows: int, *, use_threads: bool) -> None:
    batches = pq.ParquetFile(file).iter_batches(columns=list(columns), use_threads=use_threads)
    assert sum(batch.num_rows for batch in batches) == rows
