"""Timing: wall-clock time, and the processor time of all processes together.

Two things are compared in alternation, A B A B, so that any other load on the machine affects both. The processor time
of this process and its descendants is steadier than the clock if others use the machine too.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Timing:
    """Seconds of wall-clock time and of processor time."""

    wall: float
    cpu: float


def timed(run: Callable[[], object]) -> Timing:
    """Return the times of one run."""
    cpu, wall = _cpu_seconds(), time.perf_counter()
    run()
    return Timing(time.perf_counter() - wall, _cpu_seconds() - cpu)


def by_turns(first: Callable[[], object], second: Callable[[], object], runs: int) -> tuple[Timing, Timing]:
    """Return the medians of two things, run in alternation after one run of each to warm up."""
    one, other = in_turns([first, second], runs)
    return one, other


def in_turns(things: Sequence[Callable[[], object]], runs: int) -> list[Timing]:
    """Return the medians of several things, run in alternation after one run of each to warm up."""
    for run in things:
        run()
    timings = [[timed(run) for run in things] for _ in range(runs)]
    return [median(each) for each in zip(*timings, strict=True)]


def median(timings: Sequence[Timing]) -> Timing:
    """Return the median of each."""
    return Timing(statistics.median(t.wall for t in timings), statistics.median(t.cpu for t in timings))


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value that `share` percent of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def _cpu_seconds() -> float:
    """Return the processor time of this process and its descendants, including those that have ended."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
        if process.pid != me.pid:  # its own ended children belong to earlier Spark sessions
            total += times.children_user + times.children_system
    return total
