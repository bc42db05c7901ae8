"""Many producers of one topic. Each commit is an entry of the topic's journal, so they contend for the next one.

Every producer sends one row at a time and waits for its acknowledgement: the worst case, in which each row is a commit
of its own. They are spread over a few processes. The ceiling is what one producer reaches. On a slow store requests
are what a commit costs, on a fast one it is processor time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.report import Line, detail, information
from benchmarks.stopwatch import percentile
from pyspark_log import Producer
from pyspark_log.opening import open_log, own_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNTS = (1, 10, 100, 1_000)
QUICK_COUNTS = (1, 10)
PROCESSES = 8
MILLI = 1_000
SLOW_STORE_COUNTS = (1, 10, 30)
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
        latencies, entries, cpu = _contend(path, count, seconds, slower)
        rate = len(latencies) / seconds
        alone = alone or rate
        note = f"p50 {percentile(latencies, 50):,.0f} ms, p99 {percentile(latencies, 99):,.0f} ms"
        lines += [
            information(f"commits of {count:,} producers on one topic{where}", "commits/s", rate, alone, note),
            detail("journal entries for each commit", "", entries / len(latencies)),
            detail("processor time of a commit", "ms", cpu / len(latencies) * MILLI),
            detail("their p50", "ms", percentile(latencies, 50)),
            detail("their p99", "ms", percentile(latencies, 99)),
        ]
    return lines


def _contend(path: str, count: int, seconds: int, slower: float) -> tuple[list[float], int, float]:
    """Return the latencies of all acknowledged rows in milliseconds, the number of entries, and the processor time."""
    topic = "contended"
    open_log(path, create=True)
    with Producer(path) as producer:
        producer.partitions_for(topic)
    processes = min(PROCESSES, count)
    shares = [count // processes + (number < count % processes) for number in range(processes)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contending_producers", path, topic, *map(str, (share, seconds, slower))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", "a worker has failed"
    before = _entries(path, topic)
    latencies: list[float] = []
    cpu = 0.0
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("begin\n")
        worker.stdin.flush()
    for worker in workers:
        output, _ = worker.communicate()
        waited, spent = json.loads(output)
        latencies += waited
        cpu += spent
    return latencies, _entries(path, topic) - before, cpu


def _entries(path: str, topic: str) -> int:
    log = own_log(path)
    log.open(create=False)
    return log.topic(topic).journal.number
