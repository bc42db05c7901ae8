"""Opening a topic in S3, and planning its next batch: neither may cost more when the topic is older.

A past of 100,000 commits one by one takes hours in S3. So the product's own code writes it into memory, with all its
maintenance and on a simulated clock; what is there after each number of batches is copied into the bucket, object by
object. From then on everything is measured in S3.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.planning import Reader
from benchmarks.prefill import Clock, Producer, opened
from benchmarks.report import Line, at_most
from pyspark_log.opening import own_log
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers import ceph
from tests.servers.running import Server, ceph_in
from tests.support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark_log_coordinator.log.log import Log

TOPIC = "past"
PARTITIONS = 1
ROUNDS = 40
OPEN_EVERY = 4
SNAPSHOT_EVERY, ENTRIES_AFTER_SNAPSHOT = 256, 108
"""A new process reads the entries after the newest snapshot: all topics are measured around the middle between two."""
TARGET = 1.2
MILLI = 1_000
UPLOADS = 8


class _SortedKeys(dict[str, bytes]):
    """Objects by key, which can be listed without sorting them each time."""

    def __init__(self) -> None:
        self.ordered: list[str] = []

    def __setitem__(self, key: str, data: bytes) -> None:
        if key not in self:
            bisect.insort(self.ordered, key)
        super().__setitem__(key, data)

    def pop(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if key in self:
            del self.ordered[bisect.bisect_left(self.ordered, key)]
        return super().pop(key, default)


class _Memory(MemoryStore):
    """An object store in memory: journals are read as in S3."""

    is_object_store = True

    def __init__(self) -> None:
        super().__init__()
        self.objects = self._objects = _SortedKeys()

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        ordered = self.objects.ordered
        start = max(bisect.bisect_left(ordered, prefix), bisect.bisect_right(ordered, after))
        yield from itertools.takewhile(lambda key: key.startswith(prefix), ordered[start:])


def _pasts(histories: Sequence[int]) -> Iterator[tuple[int, Mapping[str, bytes]]]:
    """Yield how many batches a topic has had, at least those numbers, ascending, and the objects of its log."""
    store, clock = _Memory(), Clock.before_now(histories[-1])
    producer = Producer(opened(store, clock.environment(), create=True), TOPIC, PARTITIONS, rows=1, clock=clock)
    for batches in histories:
        producer.send(batches - producer.sent)
        while producer.handle.journal.number % SNAPSHOT_EVERY != ENTRIES_AFTER_SNAPSHOT:
            producer.send()
        yield producer.sent, dict(store.objects)


class _Cost(NamedTuple):
    """The milliseconds of a step, those of this process's processor time, and the requests."""

    ms: float
    cpu_ms: float
    requests: float


class _Past:
    """A log in S3 with a past, a process that writes to its topic, and one that has read it to its end."""

    def __init__(self, server: Server, bucket: str, batches: int, sent: int, objects: Mapping[str, bytes]) -> None:
        self.batches = batches
        self.url = f"s3://{bucket}/past-{batches}"
        client, folder = server.client(), f"past-{batches}"  # type: ignore[no-untyped-call]

        def upload(key: str) -> None:
            client.put_object(Bucket=bucket, Key=f"{folder}/{key}", Body=objects[key])

        with ThreadPoolExecutor(UPLOADS) as pool:
            list(pool.map(upload, objects))
        self._options = StorageOptions.given(server.options)
        self._producer = Producer(self._open(), TOPIC, PARTITIONS, rows=1)
        self._producer.sent = sent
        self._reader = Reader(self.url, TOPIC, storage_options=self._options.text)
        self.plans: list[_Cost] = []
        self.openings: list[_Cost] = []

    def plan_next(self) -> None:
        """Write a batch, and measure how it is planned."""
        self._producer.send()
        self.plans.append(self._cost(self._reader.plan))

    def open_cold(self) -> None:
        """Measure until a new process has the topic's state; it is connected already."""
        self.openings.append(self._cost(lambda: self._open().topic(TOPIC)))

    def _open(self) -> Log:
        log = own_log(self.url, self._options)
        log.open(create=False)
        return log

    def _cost(self, step: Callable[[], object]) -> _Cost:
        counts = counts_of(self.url)
        before, cpu, begun = counts.total().number, time.process_time(), time.perf_counter()
        step()
        wall, spent = time.perf_counter() - begun, time.process_time() - cpu
        return _Cost(wall * MILLI, spent * MILLI, counts.total().number - before)


def measure_s3_planning(folder: Path, histories: Sequence[int], log: Callable[[str], object]) -> list[Line]:
    """Return the lines about topics of these numbers of batches, beside the first; none without the server."""
    if why := ceph.why_not():
        log(f"s3: {why}")
        return []
    server = ceph_in(folder / "ceph")
    bucket = server.new_bucket()
    log(f"s3: writing {histories[-1]:,} batches in memory, and copying {len(histories)} pasts into the bucket")
    pasts = [
        _Past(server, bucket, batches, sent, objects)
        for batches, (sent, objects) in zip(histories, _pasts(histories), strict=True)
    ]
    log(f"s3: planning {ROUNDS} batches of each")
    for number in range(ROUNDS):
        for past in pasts:
            past.plan_next()
            if number % OPEN_EVERY == 0:
                past.open_cold()
    lines = []
    for past in pasts[1:]:
        beside = f"{past.batches:,} batches in S3, beside {pasts[0].batches:,}"
        for name, costs, short in (
            (f"planning after {beside}", past.plans, pasts[0].plans),
            (f"opening a topic of {beside}", past.openings, pasts[0].openings),
        ):
            long, first = _median(costs), _median(short)
            lines += [
                Line(
                    name,
                    "ms",
                    long.ms,
                    first.ms,
                    long.ms / first.ms,
                    target=at_most(TARGET),
                    cpu_ratio=long.cpu_ms / first.cpu_ms,
                ),
                Line(
                    f"requests of {name}",
                    "requests",
                    long.requests,
                    first.requests,
                    long.requests / first.requests,
                    target=at_most(1.0),
                ),
            ]
    return lines


def _median(costs: Sequence[_Cost]) -> _Cost:
    return _Cost(*(statistics.median(each) for each in zip(*costs, strict=True)))
