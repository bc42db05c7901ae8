"""Planning: the driver's work for the newest batch must not cost more when the topic is older.

After another process's write, `latestOffset` and `partitions` are called as Spark calls them in a process that has
planned before. Topics with a short and with a long past alternate; each got ten batches a second.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.prefill import PARTITIONS, Clock, Producer, another_process, without_flushing
from benchmarks.report import Line, at_most, detail
from pyspark_log.source.readers import StreamReader
from pyspark_log.source.row import row_schema
from pyspark_log_coordinator.topic import machine as topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql.datasource import InputPartition

SHORT = 100
ROUNDS = 200
TARGET = 1.2
TOPIC = "past"
MILLI = 1_000
KILO = 1_000
OPEN_EVERY = 8
"""The rounds in which each topic is opened: the time depends on how many entries follow the newest snapshot."""


class Reader:
    """A stream that has read a topic to its end."""

    def __init__(self, path: Path | str, topic_name: str, **options: str) -> None:
        given = {"path": str(path), "subscribe": topic_name, "maxRecordsOnDriver": "0", **options}
        self._reader = StreamReader(row_schema(include_headers=False), given)
        self._limit = self._reader.getDefaultReadLimit()
        self._end = self._reader.latestOffset(self._reader.initialOffset(), self._limit)

    def plan(self) -> tuple[int, float]:
        """Plan the next batch; return the number of its splits and the milliseconds."""
        begun = time.perf_counter()
        parts = self.next_partitions()
        return len(parts), (time.perf_counter() - begun) * MILLI

    def next_partitions(self) -> Sequence[InputPartition]:
        """Plan the next batch, and return Spark's partitions of it."""
        end = self._reader.latestOffset(self._end, self._limit)
        parts = self._reader.partitions(self._end, end)
        self._end = end
        return parts


class Past:
    """A topic with `batches` batches, and a stream that has read it to its end."""

    def __init__(self, path: Path, batches: int) -> None:
        self.path = path
        self.batches = batches
        clock = Clock.before_now(batches)
        log = another_process(path, clock.environment(), create=True)
        self._producer = Producer(log, TOPIC, PARTITIONS, rows=1, clock=clock)
        with without_flushing():
            self._producer.send(batches)
        self._reader = Reader(path, TOPIC)

    def plan_next(self) -> float:
        """Write one more batch and return the milliseconds of planning it."""
        self._producer.send()
        parts, took = self._reader.plan()
        assert parts == PARTITIONS, f"{parts} partitions have new rows"
        return took

    def open_cold(self) -> float:
        """Return the milliseconds until a new process has the topic's state."""
        return opening(self.path, TOPIC)

    def state_bytes(self) -> int:
        """Return the size of the topic's state in a snapshot."""
        return len(topic.MACHINE.encode_state(self._producer.handle.refresh()))


def opening(path: Path, topic_name: str) -> float:
    """Return the milliseconds until a new process has a topic's state."""
    begun = time.perf_counter()
    another_process(path).topic(topic_name)
    return (time.perf_counter() - begun) * MILLI


def measure_planning(folder: Path, histories: Sequence[int], log: Callable[[str], object]) -> list[Line]:
    """Return the lines about planning after each of these numbers of batches, compared with a short past."""
    pasts = []
    for batches in (SHORT, *histories):
        log(f"writing {batches:,} batches")
        pasts.append(Past(folder / f"past-{batches}", batches))
    log(f"planning {ROUNDS} batches of each")
    plans: list[list[float]] = [[] for _ in pasts]
    openings: list[list[float]] = [[] for _ in pasts]
    for number in range(ROUNDS):
        for past, planned, opened in zip(pasts, plans, openings, strict=True):
            planned.append(past.plan_next())
            if number % OPEN_EVERY == 0:
                opened.append(past.open_cold())
    short, cold_short = statistics.median(plans[0]), statistics.median(openings[0])
    lines = []
    for past, planned, opened in zip(pasts[1:], plans[1:], openings[1:], strict=True):
        long, cold = statistics.median(planned), statistics.median(opened)
        name = f"a topic of {past.batches:,} batches, beside {SHORT}"
        lines += [
            Line(
                name=f"planning after {past.batches:,} batches, beside {SHORT}",
                unit="ms",
                product=long,
                ceiling=short,
                target=at_most(TARGET),
                ratio=long / short,
                detail=past is not pasts[-1],
            ),
            detail(f"opening {name}", "ms", cold, cold_short),
            detail(f"state of {name}", "kB", past.state_bytes() / KILO, pasts[0].state_bytes() / KILO),
        ]
    return lines
