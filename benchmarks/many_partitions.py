"""Many partitions: what an operation costs in topics of 10, 1,000 and 10,000 partitions.

Two questions. Does an operation that touches 10 partitions cost the same, however many there are? And does one that
touches all of them cost the same for each? Everything is counted in processor time of this process, which other
programs on the machine disturb little. The topics are made in advance, and take turns.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from typer.testing import CliRunner

from benchmarks.planning import Reader
from benchmarks.prefill import VALUE, another_process, without_flushing
from benchmarks.report import Line, at_most, detail
from pyspark_log import Consumer, Producer
from pyspark_log.cli.main import app
from pyspark_log.metrics.cluster_metrics import measure
from pyspark_log.source.row import row_schema
from pyspark_log.source.splits import read_split
from pyspark_log_coordinator.topic.machine import AlterConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark_log_storage.errors import LogError

    Steps = Mapping[str, Callable[["Wide"], None]]

TOPIC = "wide"
FEW = 10
ROWS = 12
"""Rows of each partition in each batch that touches all of them."""
SMALL_BATCHES = 6
"""Batches that touch all partitions before the topic is maintained."""
ROUNDS = 5
POLL_MS = 10_000
MILLI, MICRO = 1_000, 1_000_000
ROW_SCHEMA = row_schema(include_headers=False)
FEW_MAX, EACH_MAX = 1.5, 2.0


class Wide:
    """A topic with many partitions, a producer, a stream and a consumer that have read it to its end."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.path = str(folder / f"partitions-{partitions}")
        self.partitions = partitions
        self._numbers = pa.array([number for number in range(partitions) for _ in range(ROWS)], pa.int32())
        self._values = pa.array([VALUE.format(row).encode() for row in range(ROWS)] * partitions)
        another_process(self.path, create=True).create_topic(TOPIC, partitions)
        self._producer = Producer(self.path, linger_ms=5)
        self.write_all()
        self._stream = Reader(self.path, TOPIC, startingOffsets="latest")
        self._consumer = Consumer(self.path, max_poll_records=1_000_000)
        self._consumer.assign(self._consumer.partitions(TOPIC), "earliest")
        self._poll(partitions * ROWS)

    def write_few(self) -> None:
        """Write a row into each of a few partitions, and wait until all are acknowledged."""
        for number in range(FEW):
            self._producer.send(TOPIC, b"a row", partition=number)
        assert self._producer.flush() == 0, "a row is not in the log"

    def write_all(self) -> None:
        """Write some rows into every partition."""
        rows = pa.record_batch({"value": self._values, "partition": self._numbers})
        self._producer.send_batch(TOPIC, rows).result()

    def plan(self) -> None:
        """Plan a micro-batch of the new rows, as Spark's driver does."""
        self._planned = self._stream.next_partitions()

    def read(self) -> None:
        """Read the micro-batch that was planned last, as Spark's tasks do."""
        for each in self._planned:
            for _ in read_split(each, ROW_SCHEMA):
                pass

    def poll_few(self) -> None:
        """Poll the rows of a few partitions."""
        self._poll(FEW)

    def poll_all(self) -> None:
        """Poll some rows of every partition."""
        self._poll(self.partitions * ROWS)

    def _poll(self, rows: int) -> None:
        while rows > 0:
            rows -= len(self._consumer.poll(POLL_MS))

    def describe(self) -> None:
        """Run `topics describe`."""
        self._run("topics", "describe", TOPIC, "--json")

    def make_due(self) -> None:
        """Make it time to roll every partition."""
        another_process(self.path).topic(TOPIC).submit(AlterConfig({"flush.messages": "1"}))

    def maintain(self) -> None:
        """Run `maintain`, which rolls every partition."""
        self._run("maintain", TOPIC)

    def metrics(self) -> None:
        """Collect the metrics of the cluster."""
        found = measure(another_process(self.path), _fail)
        assert found, "there are no metrics"

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def _run(self, *arguments: str) -> None:
        done = CliRunner().invoke(app, [*arguments, "--path", self.path])
        assert done.exit_code == 0, done.output


def _fail(what: str, error: LogError) -> None:
    raise AssertionError(what) from error


def measure_many_partitions(folder: Path, counts: Sequence[int], log: Callable[[str], object]) -> list[Line]:
    """Return the lines about topics with these numbers of partitions; the first two are what others are held against.

    What touches a few partitions is compared with the smallest topic. What touches all is compared, for each partition,
    with the second: in the smallest one most of the time is what an operation costs by itself.
    """
    with without_flushing():
        topics = []
        for count in counts:
            log(f"writing to {count:,} partitions")
            topics.append(Wide(folder, count))
        few = {
            "write": Wide.write_few,
            "plan": Wide.plan,
            "read": Wide.read,
            "poll": Wide.poll_few,
        }
        each = {
            "write": Wide.write_all,
            "plan": Wide.plan,
            "read": Wide.read,
            "poll": Wide.poll_all,
            "describe": Wide.describe,
            "metrics": Wide.metrics,
        }
        log(f"{ROUNDS} rounds that touch {FEW} partitions")
        few_cpu = _in_turns(topics, few, 2 * ROUNDS)
        log(f"{ROUNDS} rounds that touch all partitions")
        each_cpu = _in_turns(topics, each, ROUNDS)
        log(f"maintaining after {SMALL_BATCHES} batches")
        for topic in topics:
            for _ in range(max(0, SMALL_BATCHES - ROUNDS - 1)):
                topic.write_all()
            topic.make_due()
        each_cpu |= _in_turns(topics, {"maintain": Wide.maintain}, 1)
        for topic in topics:
            topic.close()
    lines = []
    for name, spent in few_cpu.items():
        lines += _few_lines(name, counts, spent)
    for name, spent in each_cpu.items():
        lines += _each_lines(name, counts, spent)
    return lines


def _in_turns(topics: Sequence[Wide], steps: Steps, rounds: int) -> dict[str, list[float]]:
    """Return the median of the processor seconds of each step, for each topic."""
    spent: dict[str, list[list[float]]] = {name: [[] for _ in topics] for name in steps}
    for _ in range(rounds):
        for number, topic in enumerate(topics):
            for name, step in steps.items():
                gc.collect()
                begun = time.process_time()
                step(topic)
                spent[name][number].append(time.process_time() - begun)
    return {name: [statistics.median(found) for found in each] for name, each in spent.items()}


def _few_lines(name: str, counts: Sequence[int], spent: Sequence[float]) -> list[Line]:
    return [
        Line(
            name=f"{name}, {FEW} of {count:,} partitions, beside all of {counts[0]}",
            unit="ms",
            product=found * MILLI,
            ceiling=spent[0] * MILLI,
            ratio=found / spent[0],
            target=at_most(FEW_MAX),
        )
        for count, found in zip(counts[1:], spent[1:], strict=True)
    ]


def _each_lines(name: str, counts: Sequence[int], spent: Sequence[float]) -> list[Line]:
    each = [found / count * MICRO for count, found in zip(counts, spent, strict=True)]
    lines = [detail(f"{name}, each of {counts[0]} partitions", "us", each[0])]
    lines += [
        Line(
            name=f"{name}, each of {count:,} partitions, beside {counts[1]:,}",
            unit="us",
            product=found,
            ceiling=each[1],
            ratio=found / each[1],
            target=at_most(EACH_MAX),
        )
        for count, found in zip(counts[2:], each[2:], strict=True)
    ]
    return lines
