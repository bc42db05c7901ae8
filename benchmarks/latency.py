"""Latency: a micro-batch of 1,000 rows from a topic to a topic, compared with a source and a sink that do nothing.

Both run with the low-latency settings of spark-conf. The empty source has a task for each of as many partitions; the
driver reads those of the topic, for one task. The rows to be read were written in batches of the same size, as if one
query followed another. The time is Spark's own `triggerExecution`; the two alternate. The first turn of each does not
count: the JVM compiles code that both run, and the first one would pay for it. A third chain is that from topic to
topic whose query commits its offsets to a group.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.prefill import Producer
from benchmarks.report import Line, at_most, detail
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 8
ROWS = 1_000
WARM_UP = 20
TURNS = 2
TARGET = 1.3
TARGET_IN_GROUP = 1.03
PHASES = ("latestOffset", "walCommit", "queryPlanning", "getBatch", "addBatch", "commitOffsets")


class Latency:
    """The two chains, with a new pair of queries in each turn."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int) -> None:
        self.spark = spark
        self.folder = folder
        self.batches = batches + WARM_UP
        self.path = str(folder / "latency")
        Producer(open_log(self.path, create=True), "a", PARTITIONS, ROWS // PARTITIONS).send(self.batches)
        self.sample = take_sample(spark, self.path, folder, ROWS)
        self._queries = 0

    def product(self, **options: str) -> list[dict[str, int]]:
        """Return the phases of each micro-batch from topic to topic; `options` are further ones of the source."""
        source = self.spark.readStream.format("pyspark_log").option("subscribe", "a").options(**options)
        rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=ROWS).load(self.path)
        return self._run(rows, lambda writer: writer.format("pyspark_log").options(topic="b", path=self.path))

    def ceiling(self) -> list[dict[str, int]]:
        """Return the phases of each micro-batch of the empty pair."""
        source = self.spark.readStream.format("bench_stream")
        rows = source.options(sample=self.sample, rows=ROWS, partitions=PARTITIONS, batches=self.batches).load()
        return self._run(rows, lambda writer: writer.format("bench_stream"))

    def _run(self, rows: DataFrame, into: Callable[[DataStreamWriter], DataStreamWriter]) -> list[dict[str, int]]:
        self._queries += 1
        checkpoint = str(self.folder / f"checkpoint-{self._queries}")
        writer = into(rows.select("key", "value").writeStream)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        done = [each for each in query.recentProgress if each["numInputRows"]]
        assert [each["numInputRows"] for each in done] == [ROWS] * self.batches, f"{len(done)} micro-batches"
        return [each["durationMs"] for each in done[WARM_UP:]]


def take_sample(spark: SparkSession, path: str, folder: Path, rows: int) -> str:
    """Return the path of a new Arrow file with rows of the topic `a` of a log."""
    import pyarrow as pa

    sample = folder / "sample.arrow"
    found = spark.read.format("pyspark_log").option("subscribe", "a").load(path).limit(rows).toArrow()
    with pa.ipc.new_file(str(sample), found.schema) as file:
        file.write_table(found)
    return str(sample)


def measure_latency(spark: SparkSession, folder: Path, batches: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about micro-batches; each turn has `batches` of them after the warm-up."""
    log(f"{TURNS} turns of {batches} micro-batches of {ROWS:,} rows, after one that does not count")
    latency = Latency(spark, folder, batches)
    latency.product()
    latency.ceiling()
    products: list[dict[str, int]] = []
    in_group: list[dict[str, int]] = []
    ceilings: list[dict[str, int]] = []
    for _ in range(TURNS):
        products += latency.product()
        in_group += latency.product(**{"group.id": "g"})
        ceilings += latency.ceiling()
    product, ceiling = _medians(products), _medians(ceilings)
    whole = "triggerExecution"
    lines = [
        Line(
            name=f"micro-batch of {ROWS:,} rows, source to sink",
            unit="ms",
            product=product[whole],
            ceiling=ceiling[whole],
            target=at_most(TARGET),
            ratio=product[whole] / ceiling[whole],
            note=f"median of {len(products)}",
        ),
        _beside("in a group beside without", in_group, product[whole]),
    ]
    return lines + [
        detail(f"of that {phase}", "ms", product[phase], ceiling[phase]) for phase in PHASES if phase in product
    ]


def _beside(name: str, phases: list[dict[str, int]], without: float) -> Line:
    found = _medians(phases)["triggerExecution"]
    return Line(
        name=f"micro-batch of {ROWS:,} rows, {name}",
        unit="ms",
        product=found,
        ceiling=without,
        target=at_most(TARGET_IN_GROUP),
        ratio=found / without,
        note=f"median of {len(phases)}",
    )


def _medians(phases: list[dict[str, int]]) -> dict[str, float]:
    return {name: statistics.median(each.get(name, 0) for each in phases) for name in phases[0]}
