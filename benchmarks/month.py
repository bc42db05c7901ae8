"""A simulated month: a topic that gets ten batches a second must cost the same on every day.

A month has 26 million batches. Here one batch stands for a thousand, on a simulated clock, with the product's own code:

    real                                                    here
    a day: 864,000 batches                                  864 batches, on the clock 86.4 seconds
    retention.ms, segment.ms: 7 days                        604.8 seconds: 6,048 batches
    orphan.retention.ms: 1 day                              86.4 seconds: 864 batches
    64 chunks are rolled, 16 and 16 neighbours merged:      4, 2 and 2:
    a segment of the third level has 16,384 batches         16 batches, so there are as many segments

Everything that is bounded by a number of batches or by seconds is as in the product: snapshots every 256 entries and
how many are kept, cleaning up at every 64th entry, `file.delete.delay.ms` of a minute. Batches are small, so that
inline maintenance makes segments of the third level. One batch in a hundred loses a task, which leaves a file that no
entry names.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING
from unittest import mock

import msgspec

from benchmarks import plot
from benchmarks.planning import KILO, MILLI, Reader, opening
from benchmarks.prefill import STEP_MS, Clock, Producer, another_process, without_flushing
from benchmarks.report import Line, at_most
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments import roll_plan, tiers
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.layout import topic_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "month"
PARTITIONS = 2
DAYS = 30
RETENTION_DAYS = 7
DAY_MS = 86_400_000
ROLL_CHUNKS, MERGE_COUNT = 4, 2
LOST_TASK_EVERY = 100
PLANNED = 100
"""The last batches of a day, which a stream reads one by one."""
LOOKS = 32
"""How often a day the topic is opened, and how its files and entries are counted: both rise and fall by the hour."""
WEEK = 7
TARGET = 1.2


class Look(msgspec.Struct, frozen=True):
    """Measurements of the topic at one moment."""

    state_kb: float
    open_ms: float
    objects: float
    """Files of the topic, of every kind, for each partition."""
    entries: float
    """Journal entries kept."""
    segments: float
    """Of each partition."""
    megabytes: float


class Day(msgspec.Struct, frozen=True):
    """The cost of the topic on one day: means of counts, medians of times."""

    state_kb: float
    open_ms: float
    plan_ms: float
    commit_ms: float
    objects: float
    entries: float
    segments: float
    batch_ms: float
    """The mean of a whole batch, with its inline maintenance."""
    megabytes: float


MEASURES = {
    "state_kb": ("state", "kB"),
    "open_ms": ("opening", "ms"),
    "plan_ms": ("planning", "ms"),
    "commit_ms": ("commit", "ms"),
    "objects": ("files per partition", ""),
    "entries": ("journal entries kept", ""),
    "segments": ("segments per partition", ""),
    "batch_ms": ("a batch with its upkeep, mean", "ms"),
    "megabytes": ("stored", "MB"),
}
"""The name and the unit in the table."""
PLOTTED = ("state_kb", "open_ms", "plan_ms", "commit_ms", "objects", "entries")


class Month:
    """The topic, and the clock of its writer."""

    def __init__(self, path: Path, scale: int) -> None:
        """One batch stands for `scale` batches."""
        self.path = path
        self.day_batches = DAY_MS // STEP_MS // scale
        self._clock = Clock.before_now(DAYS * self.day_batches)
        week, day = RETENTION_DAYS * DAY_MS // scale, DAY_MS // scale
        config = parse({"retention.ms": str(week), "segment.ms": str(week), "orphan.retention.ms": str(day)})
        log = another_process(path, self._clock.environment(), create=True)
        self.producer = Producer(log, TOPIC, PARTITIONS, rows=1, config=config)
        self._reader = Reader(path, TOPIC)

    def live_a_day(self) -> Day:
        """Write a day's batches."""
        commits: list[float] = []
        batches: list[float] = []
        plans: list[float] = []
        looks: list[Look] = []
        for number in range(self.day_batches):
            if number % LOST_TASK_EVERY == 0:
                self.producer.stage()
            begun = time.perf_counter()
            staged, swaps = self.producer.stage(), self.producer.ride()
            ready = time.perf_counter()
            self.producer.commit([staged], swaps)
            done = time.perf_counter()
            self._clock.step()
            commits.append((done - ready) * MILLI)
            batches.append((done - begun) * MILLI)
            left = self.day_batches - number
            if left == PLANNED:
                self._reader.plan()  # brings the reader here, because it did not read all day
            elif left < PLANNED:
                parts, took = self._reader.plan()
                assert parts == PARTITIONS, f"{parts} partitions have new rows"
                plans.append(took)
            if number % max(1, self.day_batches // LOOKS) == 0:
                looks.append(self._look())
        return Day(
            state_kb=statistics.mean(look.state_kb for look in looks),
            open_ms=statistics.median(look.open_ms for look in looks),
            plan_ms=statistics.median(plans),
            commit_ms=statistics.median(commits),
            objects=statistics.mean(look.objects for look in looks),
            entries=statistics.mean(look.entries for look in looks),
            segments=statistics.mean(look.segments for look in looks),
            batch_ms=statistics.mean(batches),
            megabytes=statistics.mean(look.megabytes for look in looks),
        )

    def _look(self) -> Look:
        handle = self.producer.handle
        state = handle.refresh()
        folder = self.path / topic_folder(TOPIC, handle.topic_id)
        files = [file for file in folder.rglob("*") if file.is_file()]
        return Look(
            state_kb=len(topic.MACHINE.encode_state(state)) / KILO,
            open_ms=opening(self.path, TOPIC),
            objects=len(files) / PARTITIONS,
            entries=sum(1 for file in files if file.parent.name == "entries"),
            segments=sum(len(each.segments) for each in state.partitions) / PARTITIONS,
            megabytes=sum(file.stat().st_size for file in files) / KILO / KILO,
        )

    def check_rows(self) -> None:
        """Check that the log has every row of the last week, and no other."""
        handle = self.producer.handle
        state = handle.refresh()
        for number, partition in enumerate(state.partitions):
            low, high = partition.log_start, partition.high_watermark
            assert high == self.producer.sent
            split = split_of(handle, Range(TOPIC, number, low, high))
            read = sum(rows.num_rows for _, rows in fetch(self.producer.log.store_at, split))
            assert read == high - low >= RETENTION_DAYS * self.day_batches, f"{read} rows were read of [{low}, {high})"
            assert high - low < (RETENTION_DAYS + 1) * self.day_batches, f"{high - low} rows were kept"


def measure_month(folder: Path, scale: int, log: Callable[[str], object]) -> tuple[list[Line], str]:
    """Return the lines about a month in which one batch stands for `scale`, and its plots as SVG."""
    month = Month(folder / "month", scale)
    log(f"a month of {DAYS * month.day_batches:,} batches, one for {scale:,}")
    days = []
    with (
        without_flushing(),
        mock.patch.object(roll_plan, "ROLL_CHUNKS", ROLL_CHUNKS),
        mock.patch.object(tiers, "MERGE_COUNT", MERGE_COUNT),
    ):
        for number in range(1, DAYS + 1):
            days.append(month.live_a_day())
            if number in {1, RETENTION_DAYS, DAYS}:
                log(f"day {number}: {days[-1]}, {month.producer.segments:,} segments made")
    month.check_rows()
    panels = [plot.Panel(_title(name), [getattr(day, name) for day in days]) for name in PLOTTED]
    return [_line(name, days) for name in MEASURES], plot.draw(panels, RETENTION_DAYS, "retention begins")


def _line(name: str, days: list[Day]) -> Line:
    """Return the last week compared with the first week with retention."""
    what, unit = MEASURES[name]
    second, last = days[RETENTION_DAYS : RETENTION_DAYS + WEEK], days[-WEEK:]
    before, after = (statistics.median(getattr(day, name) for day in week) for week in (second, last))
    return Line(
        name=f"{what}, last week of a month beside the second",
        unit=unit,
        product=after,
        ceiling=before,
        target=at_most(TARGET) if name in PLOTTED else None,
        ratio=after / before,
        detail=True,  # the page has the plot
        note=f"{getattr(days[0], name):,.2f} on the first day",
    )


def _title(name: str) -> str:
    what, unit = MEASURES[name]
    return f"{what} ({unit})" if unit else what
