"""Planning: what the driver does for the newest batch must not cost more when the topic is older.

Another process's write is followed by `latestOffset` and `partitions`, as Spark calls them in a process that has
planned before. A topic with a short past and one with a long past take turns.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.prefill import Producer
from benchmarks.report import Line, at_most, information
from pyspark_log.opening import open_log
from pyspark_log.source.row import row_schema
from pyspark_log.source.stream_reader import StreamReader
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import Log
from pyspark_log_storage.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHORT = 100
PARTITIONS = 8
ROUNDS = 200
TARGET = 1.2
TOPIC = "past"
MILLI = 1_000


class Past:
    """A topic with so many batches, and a stream that reads on at its end."""

    def __init__(self, path: Path, batches: int) -> None:
        self.path = str(path)
        self._producer = Producer(self._other_process(create=True), TOPIC, PARTITIONS, rows=1)
        self._producer.send(batches)
        self._reader = StreamReader(row_schema(include_headers=False), {"path": self.path, "subscribe": TOPIC})
        self._limit = self._reader.getDefaultReadLimit()
        self._end = self._reader.latestOffset(self._reader.initialOffset(), self._limit)

    def _other_process(self, *, create: bool = False) -> Log:
        log = Log(open_store(self.path), real_environment())
        log.open(create=create)
        return log

    def plan_next(self) -> float:
        """Return the milliseconds that planning takes after one more batch was written."""
        self._producer.send()
        begun = time.perf_counter()
        end = self._reader.latestOffset(self._end, self._limit)
        parts = self._reader.partitions(self._end, end)
        took = time.perf_counter() - begun
        assert len(parts) == PARTITIONS, f"{len(parts)} partitions have new rows"
        self._end = end
        return took * MILLI

    def open_cold(self) -> float:
        """Return the milliseconds until a new process has the topic's state."""
        begun = time.perf_counter()
        self._other_process().topic(TOPIC)
        return (time.perf_counter() - begun) * MILLI

    def state_bytes(self) -> int:
        """Return how large the topic's state is as a snapshot holds it."""
        from pyspark_log_coordinator.topic import MACHINE

        return len(MACHINE.encode_state(open_log(self.path).topic(TOPIC).journal.state))


def measure_planning(folder: Path, history: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about planning with `history` earlier batches."""
    log(f"writing {SHORT:,} and {history:,} batches")
    short, long = Past(folder / "short", SHORT), Past(folder / "long", history)
    log(f"planning {ROUNDS} batches of each")
    shorts, longs = [], []
    for _ in range(ROUNDS):
        shorts.append(short.plan_next())
        longs.append(long.plan_next())
    product, ceiling = statistics.median(longs), statistics.median(shorts)
    cold_long, cold_short = (statistics.median(past.open_cold() for _ in range(5)) for past in (long, short))
    return [
        Line(
            name=f"planning after {history:,} batches",
            unit="ms",
            product=product,
            ceiling=ceiling,
            target=at_most(TARGET),
            ratio=product / ceiling,
            note=f"ceiling: after {SHORT} batches",
        ),
        information(f"opening a topic of {history:,} batches", "ms", cold_long, cold_short, f"beside {SHORT} batches"),
        information(
            f"state of a topic of {history:,} batches",
            "kB",
            long.state_bytes() / 1000,
            short.state_bytes() / 1000,
            f"beside {SHORT} batches",
        ),
    ]
