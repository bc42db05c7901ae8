"""Many producers of one topic. Each commit is an entry of the topic's journal, so they contend for the next one.

Every producer sends one row at a time and waits for its acknowledgement: the worst case, in which each row is a commit
of its own. They are spread over a few processes. The ceiling is what one producer reaches. On a slow store requests
are what a commit costs, on a fast one it is processor time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report import Line, detail, information
from benchmarks.stopwatch import percentile
from pyspark_log import Producer
from pyspark_log.opening import open_log, own_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNTS = (1, 10, 100, 300, 1_000)
QUICK_COUNTS = (1, 10)
PROCESSES = 8
MILLI = 1_000
SLOW_STORE_COUNTS = (1, 10, 30, 100)
SLOW_STORE_SECONDS = 0.02


def measure_producers(folder: Path, seconds: int, log: Callable[[str], object], *, quick: bool) -> list[Line]:
    """Return the lines about commits per second and their latency, for each number of producers."""
    counts = QUICK_COUNTS if quick else COUNTS
    slow = f", a store of {SLOW_STORE_SECONDS * MILLI:.0f} ms"
    return [
        *_measure(folder / "local", counts, seconds, 0, "", log),
        *_measure(folder / "slow", SLOW_STORE_COUNTS, seconds, SLOW_STORE_SECONDS, slow, log),
    ]


def _measure(
    folder: Path, counts: tuple[int, ...], seconds: int, slower: float, where: str, log: Callable[[str], object]
) -> list[Line]:
    lines: list[Line] = []
    alone: float | None = None
    for count in counts:
        log(f"{count:,} producers, each row a commit of its own, for {seconds} s{where}")
        path = str(folder / f"producers-{count}")
        found = _contend(path, count, seconds, slower)
        alone = alone or found.rate
        p50, p99 = percentile(found.latencies, 50), percentile(found.latencies, 99)
        lines += [
            information(
                f"commits of {count:,} producers on one topic{where}",
                "commits/s",
                found.rate,
                alone,
                f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms",
            ),
            detail("journal entries for each commit", "", found.entries / len(found.latencies)),
            detail("processor time of a commit", "ms", found.cpu / len(found.latencies) * MILLI),
            detail("their p50", "ms", p50),
            detail("their p99", "ms", p99),
        ]
    return lines


class _Contention(NamedTuple):
    latencies: list[float]
    """Of all rows that were acknowledged, in milliseconds."""
    rate: float
    """How many that were in a second."""
    entries: int
    cpu: float
    """Seconds of processor time."""


def _contend(path: str, count: int, seconds: int, slower: float) -> _Contention:
    """Return what a number of producers have done in so many seconds, after as long a warm-up."""
    topic = "contended"
    open_log(path, create=True)
    with Producer(path) as producer:
        producer.partitions_for(topic)
    processes = min(PROCESSES, count)
    shares = [count // processes + (number < count % processes) for number in range(processes)]
    settings = [str(each) for each in (seconds, seconds, slower)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contending_producers", path, topic, str(share), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", "a worker has failed"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("begin\n")
        worker.stdin.flush()
    time.sleep(seconds)
    before = _entries(path, topic)
    time.sleep(seconds)
    entries = _entries(path, topic) - before
    latencies: list[float] = []
    rate = cpu = 0.0
    for worker in workers:
        output, _ = worker.communicate()
        waited, spent, elapsed = json.loads(output)
        latencies += waited
        rate += len(waited) / elapsed
        cpu += spent
    return _Contention(latencies, rate, entries, cpu)


def _entries(path: str, topic: str) -> int:
    log = own_log(path)
    log.open(create=False)
    return log.topic(topic).journal.number
