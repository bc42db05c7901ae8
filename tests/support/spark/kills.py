"""Drivers that are killed: queries from topic to topic, run by processes of their own, and what they leave behind.

    python -m tests.support.spark.kills '<JSON: a list of queries>'      is such a driver

A driver's processes (Python, the JVM, and Python's workers, which have a process group of their own) share a session of
the operating system, so that all of them can be killed, stopped and continued together, as a machine would be.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.class_archive import TOO_BUSY
from tests.support.log_reader import TopicContents, open_topic, read_topic
from tests.support.spark.faulty_source import FORMAT, FaultySource

DEADLINE_S = 300  # of a machine on which much else runs; nothing here takes long by itself
POLL_S = 0.005


def wait_for(condition: Callable[[], Any], what: str, poll_s: float = POLL_S) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"it has not happened: {what}"
        time.sleep(poll_s)


Values = list[list[bytes | None]]
"""A topic's values, by partition and offset."""


@dataclass(frozen=True)
class Query:
    """A streaming query from topics to topics of one log, and its checkpoint."""

    path: str
    checkpoint: str
    trap: str
    source: dict[str, str]
    target: dict[str, str]
    columns: list[str] = field(default_factory=lambda: ["key", "value"])
    where: str = "true"

    def start(self, spark: SparkSession, *, available_now: bool) -> StreamingQuery:
        """Start it, up to what is there now or forever."""
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10000")  # the tests read the checkpoint's history
        spark.dataSource.register(FaultySource)
        read = spark.readStream.format(FORMAT).option("trap", self.trap).options(**self.source).load(self.path)
        write = read.where(self.where).selectExpr(*self.columns).writeStream.format(FORMAT).option("trap", self.trap)
        write = write.options(**self.target).option("checkpointLocation", self.checkpoint)
        if available_now:
            write = write.trigger(availableNow=True)
        return write.start(self.path)

    def run(self, spark: SparkSession) -> StreamingQuery:
        """Run it up to what is there now."""
        query = self.start(spark, available_now=True)
        try:
            assert query.awaitTermination(DEADLINE_S), "the query still runs"
        finally:
            query.stop()
        return query

    def check_copied(self, source: str, target: str) -> None:
        """Assert that a topic has what another has: every row once, in each partition in the same order."""
        self.check_batches(target)
        assert _values(self.path, target) == _values(self.path, source)

    @property
    def id(self) -> str:
        """Spark's id of the query, which its checkpoint keeps."""
        found = json.loads((Path(self.checkpoint) / "metadata").read_text())["id"]
        assert isinstance(found, str)
        return found

    def newest(self, log: str) -> int:
        """The newest batch in the checkpoint's `offsets` or `commits`, -1 for none."""
        folder = Path(self.checkpoint) / log
        return max((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdecimal()), default=-1)

    def offset(self, batch: int) -> dict[str, Any]:
        """The source's offset in the checkpoint, by topic."""
        topics = self._offset(batch)["topics"]
        assert isinstance(topics, dict)
        return topics

    def _offset(self, batch: int) -> dict[str, Any]:
        found = json.loads((Path(self.checkpoint) / "offsets" / str(batch)).read_text().splitlines()[-1])
        assert isinstance(found, dict)
        return found

    def planned(self, batch: int, values_of: Callable[[str], Values] | None = None) -> Counter[bytes | None]:
        """The values of the rows that Spark's offset log says are the batch's, read without Spark."""
        before = self.offset(batch - 1) if batch else {}
        values: Counter[bytes | None] = Counter()
        for topic, positions in self.offset(batch).items():
            rows = values_of(topic) if values_of else _values(self.path, topic)
            for partition, (end, _) in positions["end"].items():
                begin, _ = positions.get("begin", {}).get(partition) or before[topic]["end"][partition]
                values.update(rows[int(partition)][begin:end])
        return values

    def sequenced_batch(self, topic: str) -> int:
        """The newest batch of this query that the topic's journal has, -1 for none."""
        producer = open_topic(self.path, topic).journal.state.producers.get(self.target.get("txnAppId", self.id))
        return -1 if producer is None else producer.batch_id

    def check_batches(self, topic: str) -> TopicContents:
        """Read the topic and assert that each batch in it is, once and whole, what the offset log says."""
        contents = read_topic(self.path, topic)
        batches = contents.of_producer(self.target.get("txnAppId", self.id))
        values_of = functools.cache(functools.partial(_values, self.path))
        for number in range(self.newest("commits") + 1):
            planned = self.planned(number, values_of)
            assert (batches[number].values if number in batches else Counter()) == planned, f"batch {number}"
        return contents


def _values(path: str, topic: str) -> Values:
    contents = read_topic(path, topic)
    values: Values = [[] for _ in range(contents.partitions)]
    for row in contents.rows:
        values[row.partition].append(row.value)
    return values


class Driver:
    """A driver process that runs queries forever, from `begin` on."""

    def __init__(self, queries: list[Query], output: Path) -> None:
        """Start the process, which gets everything ready for the queries."""
        self._output = output
        # A killed driver tidies nothing up; and its sockets lie here, whose paths must be short.
        self._temporary = tempfile.TemporaryDirectory(prefix="driver-", ignore_cleanup_errors=True)
        folder = self._temporary.name
        environment = {
            **os.environ,
            "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} -Djava.io.tmpdir={folder}",
            "SPARK_LOCAL_DIRS": folder,
            "TMPDIR": folder,
        }
        command = [sys.executable, "-m", __name__, json.dumps([asdict(query) for query in queries])]
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._jvm: psutil.Process | None = None

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text()

    def processes(self) -> list[psutil.Process]:
        """All processes of its session that live, the JVM first: it is what acts."""
        found = []
        for process in psutil.process_iter(["name", "status"]):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(process.pid) == self._process.pid and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return sorted(found, key=lambda process: process.info["name"] != "java")

    def wait_for(self, condition: Callable[[], Any], what: str, poll_s: float = POLL_S) -> None:
        """Poll until `condition` holds; fails at once where the driver has ended."""

        def holds() -> bool:
            held = bool(condition())
            assert held or self._process.poll() is None, f"the driver ended before {what}: {self.output[-5000:]}"
            return held

        wait_for(holds, what, poll_s)

    def begin(self) -> None:
        """Start the queries, and return when they are started."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()
        self.wait_for(lambda: "begun" in self.output, "the queries' start")
        self._jvm = self.processes()[0]

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def signal(self, what: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    def kill(self) -> None:
        """SIGKILL every process of it, also those that are being forked meanwhile, and wait until all are gone."""
        if self._jvm is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._jvm.kill()  # first, and without a look at all processes: it may be about to act
        deadline = time.monotonic() + DEADLINE_S
        while self.processes():
            assert time.monotonic() < deadline, "SIGKILL does not kill"
            self.signal(signal.SIGKILL)
            self._process.poll()
        self._process.wait()
        self._temporary.cleanup()


@contextlib.contextmanager
def driver(queries: list[Query], output: Path) -> Iterator[Driver]:
    """A driver whose queries are started, and that is dead afterwards, whatever happens."""
    started = Driver(queries, output)
    try:
        started.begin()
        yield started
    finally:
        started.kill()


def _exit_at_the_end_of_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Run the queries in the argument, once a line on the standard input says so, until one fails.

    The input's end means that the test is gone, and the driver goes too.
    """
    spark = SparkSession.builder.getOrCreate()
    if not sys.stdin.readline():
        return
    threading.Thread(target=_exit_at_the_end_of_input, daemon=True).start()
    queries = [Query(**query) for query in json.loads(sys.argv[1])]
    while True:
        running = [query.start(spark, available_now=False) for query in queries]
        print("begun", flush=True)
        with contextlib.suppress(StreamingQueryException):
            spark.streams.awaitAnyTermination()
        errors = [error for query in running if (error := query.exception()) is not None]
        print(*errors, sep="\n", flush=True)
        if not any(TOO_BUSY in str(error) for error in errors):
            return
        for query in running:
            query.stop()
        spark.streams.resetTerminated()


if __name__ == "__main__":
    main()
