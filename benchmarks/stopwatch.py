"""Timing: how long something takes, and what it costs all processes together.

Two things are compared by turns, A B A B, so that whatever else the machine does meanwhile hits both. The processor
time of this process and of all that it started is steadier than the clock where others use the machine too.
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
    """Seconds on the clock, and of processors."""

    wall: float
    cpu: float


def timed(run: Callable[[], object]) -> Timing:
    """Return what one run takes."""
    cpu, wall = _cpu_seconds(), time.perf_counter()
    run()
    return Timing(time.perf_counter() - wall, _cpu_seconds() - cpu)


def by_turns(first: Callable[[], object], second: Callable[[], object], runs: int) -> tuple[Timing, Timing]:
    """Return the medians of two things, run by turns after one run of each to warm up."""
    one, other = in_turns([first, second], runs)
    return one, other


def in_turns(things: Sequence[Callable[[], object]], runs: int) -> list[Timing]:
    """Return the medians of several things, run by turns after one run of each to warm up."""
    for run in things:
        run()
    timings = [[timed(run) for run in things] for _ in range(runs)]
    return [median(each) for each in zip(*timings, strict=True)]


def median(timings: Sequence[Timing]) -> Timing:
    """Return the median of each."""
    return Timing(statistics.median(t.wall for t in timings), statistics.median(t.cpu for t in timings))


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def _cpu_seconds() -> float:
    """Return the processor time of this process and its descendants, with those that have ended."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
        if process.pid != me.pid:  # its own ended children are those of Spark sessions before
            total += times.children_user + times.children_system
    return total
