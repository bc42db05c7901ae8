"""What a group adds to the planning of a micro-batch: the query commits its offsets to it.

Measured without Spark, whose times vary by more than this from batch to batch: the calls of the source on the driver,
`latestOffset` and `partitions`. The two queries plan their batches in turn, so that all meet the same disturbances.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.prefill import Producer
from benchmarks.report import Line, information
from pyspark_log.opening import open_log
from pyspark_log.options import parse_source
from pyspark_log.reading.source_offset import INITIAL
from pyspark_log.reading.stream_planner import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTITIONS = 8
ROWS = 1_000
WARM_UP = 20
MILLI = 1_000
SOURCE = {"subscribe": "a", "startingoffsets": "earliest", "maxoffsetspertrigger": str(ROWS)}
QUERIES: dict[str, dict[str, str]] = {
    "alone": {},
    "committing": {"group.id": "committing"},
}


def measure_group_planning(folder: Path, batches: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about what a group adds to each of so many micro-batches."""
    log(f"planning {batches} micro-batches of {ROWS:,} rows, with and without a group")
    path = str(folder / "group-planning")
    Producer(open_log(path, create=True), "a", PARTITIONS, ROWS // PARTITIONS).send(batches + WARM_UP)
    queries = {name: _Query({"path": path, **SOURCE, **options}) for name, options in QUERIES.items()}
    spent: dict[str, list[float]] = {name: [] for name in queries}
    for _ in range(batches + WARM_UP):
        for name, query in queries.items():
            spent[name].append(query.plan())
    alone, committing = (statistics.median(each[WARM_UP:]) for each in spent.values())
    return [
        information("planning a micro-batch, without a group", "ms", alone),
        information("a query that commits its offsets to a group adds", "ms", committing - alone),
    ]


class _Query:
    """The planner of a query, and Spark's offset log."""

    def __init__(self, options: dict[str, str]) -> None:
        self._planner = StreamPlanner(parse_source(options, streaming=True))
        self._end: dict[str, Any] = INITIAL

    def plan(self) -> float:
        """Plan the next micro-batch that has rows; return the milliseconds that this one took."""
        while True:
            begun = time.perf_counter()
            end = self._planner.end(self._end, unlimited=False)
            splits = self._planner.plan(self._end, end).splits
            took = (time.perf_counter() - begun) * MILLI
            self._end = json.loads(json.dumps(end))
            if splits:
                return took
