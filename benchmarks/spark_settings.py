"""What settings of Spark gain: micro-batches with the settings of the profile `tests`, and without one of them.

    python -m benchmarks.spark_settings

"copy" is a query of 1,000 rows a micro-batch from topic to topic, "sums" one that counts 100 rows a micro-batch by key.
Queries with and without a setting alternate in one session, or sessions do if a setting is one of the session. Times
are the medians of Spark's `triggerExecution`, in ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark_log.spark_conf.profiles import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = 2
BATCHES = 12
WARM_UP = 4
POLL_SECONDS = 0.2
SOCKETS = "spark.python.unix.domain.socket.enabled"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
SHUFFLE = "spark.sql.shuffle.partitions"
TESTS = settings("tests")
DEFAULTS = {SHUFFLE: "200"}
"""Those that cannot be unset, because the session was started with them."""


class Session:
    """A session, and the queries that are timed in it."""

    def __init__(self, folder: str, without: str) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        for name, value in TESTS.items():
            if name not in {without, CHECKPOINTS, SHUFFLE}:
                builder = builder.config(name, value)
        self.spark: SparkSession = builder.getOrCreate()
        self.folder = folder
        self._queries = 0
        rows = self.spark.range(0, BATCHES * 1000, numPartitions=1)
        rows = rows.selectExpr("CAST(id % 50 AS STRING) key", "CAST(id AS STRING) value")
        rows.write.format("pyspark_log").mode("append").option("topic", "in").option("num.partitions", 1).save(folder)

    def time(self, query: str, without: str) -> float:
        """Return the median of a query's micro-batches."""
        for name in (CHECKPOINTS, SHUFFLE):
            self.spark.conf.set(name, TESTS[name])
        if without in DEFAULTS:
            self.spark.conf.set(without, DEFAULTS[without])
        elif without == CHECKPOINTS:
            self.spark.conf.unset(without)
        self._queries += 1
        source = self.spark.readStream.format("pyspark_log").option("subscribe", "in")
        source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=1000 if query == "copy" else 100)
        rows = source.load(self.folder).select("key", "value")
        if query == "sums":
            rows = rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) value")
        sink = rows.writeStream.format("pyspark_log").option("topic", f"out-{self._queries}")
        sink = sink.outputMode("append" if query == "copy" else "complete")
        sink = sink.option("checkpointLocation", f"{self.folder}/checkpoint-{self._queries}")
        running = sink.start(self.folder)
        try:
            while len(done := [each for each in running.recentProgress if each["numInputRows"]]) < BATCHES:
                if (failed := running.exception()) is not None:
                    raise failed
                time.sleep(POLL_SECONDS)
        finally:
            running.stop()
        return float(statistics.median(each["durationMs"]["triggerExecution"] for each in done[WARM_UP:]))


def measure(without: str) -> dict[str, float]:
    """Return the medians in a session of this process."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(folder, without)
        session.time("copy", "")  # the JVM compiles code that all queries run
        found = {f"copy, without {without}": session.time("copy", "")}
        if not without:
            found = {"copy": found.popitem()[1], f"copy, without {CHECKPOINTS}": session.time("copy", CHECKPOINTS)}
            found |= {"sums": session.time("sums", ""), f"sums, without {SHUFFLE}": session.time("sums", SHUFFLE)}
        session.spark.stop()
        return found


def main() -> None:
    """Measure and print."""
    found: dict[str, list[float]] = defaultdict(list)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment |= {"SPARK_CONF_DIR": tempfile.gettempdir()}
    for _ in range(TURNS):
        for without in ("", SOCKETS):
            command = [sys.executable, "-m", "benchmarks.spark_settings", without]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            for name, ms in json.loads(done.stdout.splitlines()[-1]).items():
                found[name].append(ms)
                print(f"{name}: {ms:.0f} ms", flush=True)
    print("medians of all turns")
    for name, times in sorted(found.items()):
        print(f"{name}: {statistics.median(times):.0f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
