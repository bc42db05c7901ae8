"""The Python clients: how late a row is read that another process sends, and how many rows a second of a core moves.

Latency is measured between two processes, at 1,000 rows a second, from the call of `send` to the return of `poll`. How
late the sender's own timer was is shown beside it: on a busy machine that is a part of it. The ceiling is the time in
which the disk makes two files durable one after another, as every acknowledged batch needs: its rows, then its entry.
Throughput counts processor
time, so the rates are those of one core, whatever else the machine does.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.report import Line, at_least, at_most, detail
from benchmarks.stopwatch import percentile
from pyspark_log import Consumer, Producer
from pyspark_log.opening import open_log
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RATE = 1_000
WARM_UP_SECONDS = 2
VALUE_BYTES = 100
BATCH_ROWS = 50_000
POLL_MS = 1_000
FLOOR_BYTES = 1_000
FLOOR_EVERY = 5
"""Rows for which the disk is asked once: about as many as are in a batch."""
MILLI, MEGA = 1_000, 1_000_000
P50_MS, P99_MS = 5, 15
ROWS_PER_SECOND, ARROW_ROWS_PER_SECOND = 150_000, 1_500_000
STAMP_BYTES = 20


def measure_clients(folder: Path, rows: int, seconds: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about latency over `seconds`, and about throughput with `rows` rows."""
    path = str(folder / "clients")
    log(f"clients: {RATE:,} rows a second for {seconds} s")
    return [*_latency(path, seconds, _floor(folder, seconds)), *_throughput(path, rows, log)]


def _floor(folder: Path, seconds: int) -> list[float]:
    """Return how long it takes to create two durable objects, in milliseconds."""
    store, spent = LocalStore(str(folder / "floor")), []
    for number in range(seconds * RATE // FLOOR_EVERY):
        begun = time.perf_counter()
        for name in ("rows", "entry"):
            store.create(f"{name}/{number}", bytes(FLOOR_BYTES))
        spent.append((time.perf_counter() - begun) * MILLI)
    return spent


def _latency(path: str, seconds: int, floor: list[float]) -> list[Line]:
    lines = []
    for linger in (0, 5):
        latencies, lateness = _paced(path, f"paced-{linger}", linger, seconds)
        name = f"send to poll, linger.ms={linger}"
        for share, target in ((50, P50_MS), (99, P99_MS)):
            found = percentile(latencies, share)
            goal = at_most(target, "ms") if linger == 0 else None
            note, least = f"{len(latencies):,} rows", percentile(floor, share)
            lines.append(Line(f"{name}, p{share}", "ms", found, least, found / least, target=goal, note=note))
            lines.append(detail(f"of that the sender's timer, p{share}", "ms", percentile(lateness, share)))
    return lines


def _paced(path: str, topic: str, linger: int, seconds: int) -> tuple[list[float], list[float]]:
    """Return how late each row was read, and how late each was sent, in milliseconds."""
    rows = (seconds + WARM_UP_SECONDS) * RATE
    open_log(path, create=True)
    with Producer(path) as producer:
        producer.partitions_for(topic)
    command = [sys.executable, "-m", "benchmarks.paced_sender", path, topic, str(linger), str(rows), str(RATE)]
    latencies: list[float] = []
    with Consumer(path) as consumer, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        consumer.assign(consumer.partitions(topic), "earliest")
        while len(latencies) < rows:
            records = consumer.poll(POLL_MS)
            now = time.monotonic()
            latencies += [(now - float((record.value or b"")[:STAMP_BYTES])) * MILLI for record in records]
        assert sender.stdout is not None
        lateness = [float(each) for each in sender.stdout.read().split()]
    first = WARM_UP_SECONDS * RATE
    return latencies[first:], lateness[first:]


def _throughput(path: str, rows: int, log: Callable[[str], object]) -> list[Line]:
    dice = random.Random(7)
    values = [dice.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(BATCH_ROWS)]
    batch = pa.record_batch({"value": pa.array(values)})
    open_log(path, create=True)
    log(f"clients: {rows:,} rows one by one, and {10 * rows:,} in Arrow batches")

    def send_rows() -> None:
        with Producer(path) as producer:
            for number in range(rows):
                producer.send("rows", values[number % BATCH_ROWS])

    def send_batches() -> None:
        with Producer(path) as producer:
            for _ in range(10 * rows // BATCH_ROWS):
                producer.send_batch("batches", batch)

    def poll_rows() -> None:
        with Consumer(path) as consumer:
            consumer.assign(consumer.partitions("rows"), "earliest")
            left = rows
            while left > 0:
                left -= len(consumer.poll(POLL_MS))

    def poll_batches() -> None:
        with Consumer(path) as consumer:
            consumer.assign(consumer.partitions("batches"), "earliest")
            left = 10 * rows
            while left > 0:
                left -= sum(each.rows.num_rows for each in consumer.poll_batches(POLL_MS))

    with Producer(path) as producer:  # imports, and the topics
        for topic in ("rows", "batches"):
            producer.send(topic, b"warm").result()
    return [
        _rate("Producer.send", send_rows, rows, ROWS_PER_SECOND),
        _rate("Consumer.poll", poll_rows, rows, ROWS_PER_SECOND),
        _rate("Producer.send_batch", send_batches, 10 * rows, ARROW_ROWS_PER_SECOND),
        _rate("Consumer.poll_batches", poll_batches, 10 * rows, ARROW_ROWS_PER_SECOND),
    ]


def _rate(name: str, run: Callable[[], object], rows: int, target: int) -> Line:
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    goal = at_least(target / MEGA, "M rows/s")
    note = f"per second of processor time; {rows / wall / MEGA:.2f} M rows/s by the clock"
    return Line(f"{name}, {VALUE_BYTES} B values", "M rows/s", rows / cpu / MEGA, target=goal, note=note)
