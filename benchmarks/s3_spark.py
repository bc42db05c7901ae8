"""Micro-batches of a running Spark query on a log in S3, and the requests that all its processes make.

Each query runs in turns on S3, on a local disk, and with an empty source and an empty sink, which is Spark's own part.
The time is Spark's `triggerExecution`, which ends when the batch is committed and Spark has recorded it. Ceph's gateway
logs what it is asked for (`served`), so that the driver's Python processes and the tasks' workers count.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.latency import take_sample
from benchmarks.prefill import Producer
from benchmarks.report import Line, at_most, detail, information
from benchmarks.served import OpsLog
from pyspark_log.opening import open_log
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions
from tests.servers import ceph
from tests.servers.gateway import Gateway
from tests.servers.running import ceph_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.served import Served

ROWS = 1_000
WARM_UP = 5
TURNS = 2
CHAIN_TASKS = 8
OTHERS_TARGET = 2
CLOCK_MS = 5
"""The gateway's clock is up to so much behind."""
SETTLING_SECONDS = 3


class Batch(NamedTuple):
    """A micro-batch: when it began, in ms since 1970, and its phases in ms."""

    at_ms: float
    phases: dict[str, int]


class Place:
    """A log, with a topic `a` to be read and a topic `b` to be written."""

    def __init__(self, path: str, options: StorageOptions, batches: int) -> None:
        self.given = {"path": path, "storage_options": options.text}
        Producer(open_log(path, options, create=True), "a", CHAIN_TASKS, ROWS // CHAIN_TASKS).send(batches)


class Queries:
    """Starts queries, each with a new checkpoint on the local disk."""

    def __init__(self, spark: SparkSession, folder: Path, sample: str, batches: int) -> None:
        """`sample` is an Arrow file for empty sources, and `batches` how many micro-batches a query has."""
        self._spark, self._folder, self._sample, self._batches = spark, folder, sample, batches
        self._started = 0

    def sink(self, place: Place | None) -> list[Batch]:
        """Return the micro-batches of a query of one task from an empty source into a topic, or an empty sink."""
        return self._run(self._empty(1), place)

    def chain(self, place: Place | None) -> list[Batch]:
        """Return the micro-batches of a query from topic to topic, or from an empty source into an empty sink."""
        return self._run(self._empty(CHAIN_TASKS) if place is None else self._topic(place), place)

    @contextmanager
    def idle(self, place: Place) -> Iterator[None]:
        """Run a query with a trigger of one second, for which there are no rows."""
        query = self._start(self._topic(place, starting="latest"), place, processingTime="1 second")
        try:
            while not query.recentProgress:  # its first batch, which is empty
                if (failed := query.exception()) is not None:
                    raise failed
                time.sleep(0.1)
            time.sleep(SETTLING_SECONDS)
            yield
        finally:
            query.stop()

    def _empty(self, tasks: int) -> DataFrame:
        source = self._spark.readStream.format("bench_stream")
        return source.options(sample=self._sample, rows=ROWS, partitions=tasks, batches=self._batches).load()

    def _topic(self, place: Place, starting: str = "earliest") -> DataFrame:
        source = self._spark.readStream.format("pyspark_log").options(subscribe="a", **place.given)
        return source.options(startingOffsets=starting, maxOffsetsPerTrigger=ROWS).load()

    def _run(self, rows: DataFrame, place: Place | None) -> list[Batch]:
        query = self._start(rows, place, availableNow=True)
        query.awaitTermination()
        done = [each for each in query.recentProgress if each["numInputRows"]]
        assert [each["numInputRows"] for each in done] == [ROWS] * self._batches, f"{len(done)} micro-batches"
        return [
            Batch(datetime.fromisoformat(each["timestamp"]).timestamp() * 1000, each["durationMs"])
            for each in done[WARM_UP:]
        ]

    def _start(self, rows: DataFrame, place: Place | None, **trigger: Any) -> StreamingQuery:
        self._started += 1
        writer = rows.select("key", "value").writeStream
        if place is None:
            writer = writer.format("bench_stream")
        else:
            writer = writer.format("pyspark_log").options(topic="b", **place.given)
        return writer.option("checkpointLocation", str(self._folder / f"c{self._started}")).trigger(**trigger).start()


def measure_s3_queries(
    spark: SparkSession, folder: Path, batches: int, idle_seconds: int, log: Callable[[str], object]
) -> list[Line]:
    """Return the lines about queries of so many micro-batches after the warm-up, or none without the server."""
    if why := ceph.why_not():
        log(f"s3: {why}")
        return []
    gateway = Gateway(ceph_in(folder / "ceph"), folder / "operations")
    gateway.start()
    try:
        return _measured(spark, folder / "queries", gateway, batches + WARM_UP, idle_seconds, log)
    finally:
        gateway.kill()


def _measured(
    spark: SparkSession, folder: Path, gateway: Gateway, batches: int, seconds: int, log: Callable[[str], object]
) -> list[Line]:
    log(f"s3: {TURNS} turns of {batches} micro-batches of two queries, each in three places, after one to warm up")
    folder.mkdir()
    operations = OpsLog(folder.parent / "operations")
    bucket = Place(f"s3://{gateway.server.new_bucket()}/log", StorageOptions.given(gateway.server.options), batches)
    disk = Place(str(folder / "log"), NO_OPTIONS, batches)
    queries = Queries(spark, folder, take_sample(spark, disk.given["path"], folder, ROWS), batches)
    lines: list[Line] = []
    for name, tasks, run in (
        ("into a topic, one task", 1, queries.sink),
        (f"from topic to topic, {CHAIN_TASKS} tasks", CHAIN_TASKS, queries.chain),
    ):
        found: dict[str, list[Batch]] = {"s3": [], "disk": [], "spark": []}
        served: list[list[Served]] = []
        for turn in range(TURNS + 1):
            for at, place in (("s3", bucket), ("disk", disk), ("spark", None)):
                operations.new()
                done = run(place)
                if turn:
                    found[at] += done
                    served += by_batch(done, operations.new()) if at == "s3" else []
        lines += _times(f"micro-batch of {ROWS:,} rows {name}", found) + _requests(name, tasks, served)
    log(f"s3: an idle query, for {seconds} s")
    with queries.idle(bucket):
        lines.append(_idle(operations, seconds))
    return lines


def by_batch(batches: Sequence[Batch], served: Sequence[Served]) -> list[list[Served]]:
    """Return the requests of each batch, which begin when it does and before the next one."""
    begins = [batch.at_ms - CLOCK_MS for batch in batches]
    return [
        [each for each in served if begin <= each.at_ms < end]
        for begin, end in zip(begins, [*begins[1:], float("inf")], strict=True)
    ]


def _times(name: str, found: dict[str, list[Batch]]) -> list[Line]:
    whole = {at: statistics.median(each.phases["triggerExecution"] for each in done) for at, done in found.items()}
    added = {at: statistics.median(each.phases["addBatch"] for each in done) for at, done in found.items()}
    return [
        information(f"{name}, S3 beside a local disk", "ms", whole["s3"], whole["disk"]),
        information(f"{name}, S3 beside Spark alone", "ms", whole["s3"], whole["spark"]),
        detail("of that addBatch, rows to committed", "ms", added["s3"], added["spark"]),
    ]


def _requests(name: str, tasks: int, served: Sequence[Sequence[Served]]) -> list[Line]:
    """Return the lines about the requests of the batches; those for the topic that is read apart from all others."""
    sinks = [[each for each in batch if not each.is_about("a")] for batch in served]
    puts = statistics.median(sum(each.method == "PUT" for each in batch) for batch in sinks)
    others = statistics.median(sum(each.method != "PUT" for each in batch) for batch in sinks)
    kinds = Counter(each.operation for batch in sinks for each in batch)
    mean = ", ".join(f"{kind} {number / len(sinks):.2f}" for kind, number in sorted(kinds.items()))
    what = f"a micro-batch {name}"
    lines = [
        Line(f"PUTs of {what}", "requests", puts, target=at_most(tasks + 1, "requests"), note=f"mean: {mean}"),
        Line(f"other requests of {what}", "requests", others, target=at_most(OTHERS_TARGET, "requests")),
    ]
    sources = [[each for each in batch if each.is_about("a")] for batch in served]
    if any(sources):
        lists = statistics.median(sum(each.is_list for each in batch) for batch in sources)
        reads = statistics.median(sum(not each.is_list for each in batch) for batch in sources)
        lines.append(information(f"lists to read {what}", "requests", lists, note=f"and {reads:.0f} reads of rows"))
    return lines


def _idle(operations: OpsLog, seconds: int) -> Line:
    """Return the line about an idle query. Spark's triggers begin with full seconds, so the window does not."""
    begin = int(time.time()) + 1.5
    time.sleep(begin + seconds + 0.5 - time.time())
    served = [each for each in operations.new() if begin <= each.at_ms / 1000 < begin + seconds]
    kinds = Counter(each.operation for each in served)
    return Line(
        f"requests of an idle query in {seconds} triggers of a second",
        "requests",
        len(served),
        target=at_most(seconds, "requests"),
        note=", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items())),
    )
