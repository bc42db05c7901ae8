"""The same Spark jobs with pyspark_log, with Kafka by Spark's connector, with Delta, and with Parquet files.

Every job is the one that a user of the system would write, with the defaults of each, and lz4 for the rows of both
logs. All are on one disk and two cores; Kafka's broker is one of the processes that share them. The systems take
turns. Of streams the time is Spark's own `triggerExecution`.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.kafka import JVM
from benchmarks.plot import Bars, draw_bars
from benchmarks.report import information
from benchmarks.rows import fresh_rows, persisted_rows
from benchmarks.stopwatch import in_turns
from benchmarks.tables import has_delta
from pyspark_log.opening import open_log
from tests.servers import kafka, maven_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.report import Line

PARTITIONS = 4
MEGA = 1_000_000
BATCH_ROWS = 1_000
WARM_UP = 10
TURNS = 2
LOOK_AT_ALL = ("sum(octet_length(key))", "sum(octet_length(value))")
FLUSHED = {"flush.messages": "1"}
"""Of a topic of Kafka whose broker flushes each batch to the disk before it acknowledges it."""


class PysparkLog:
    """Topics of one log."""

    name = "pyspark_log"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.path = spark, str(folder / "log")
        open_log(self.path, create=True)

    def create(self, name: str) -> None:
        open_log(self.path).create_topic(name, PARTITIONS)

    def write(self, rows: DataFrame, name: str) -> None:
        rows.write.format("pyspark_log").mode("append").option("topic", name).save(self.path)

    def read(self, name: str) -> DataFrame:
        return self.spark.read.format("pyspark_log").option("subscribe", name).load(self.path)

    def stream(self, name: str, limit: int | None = None) -> DataFrame:
        reader = self.spark.readStream.format("pyspark_log").option("subscribe", name)
        return reader.options(**_from_the_first_row(limit)).load(self.path)

    def sink(self, name: str) -> tuple[str, dict[str, Any]]:
        return "pyspark_log", {"topic": name, "path": self.path}


class Kafka:
    """Topics of one broker, through Spark's Kafka connector."""

    name = "Kafka"

    def __init__(self, spark: SparkSession, address: str, config: dict[str, str]) -> None:
        from confluent_kafka import admin

        library: Any = admin
        self.spark, self._library, self._config = spark, library, config
        self._client = library.AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._options = {"kafka.bootstrap.servers": address}
        self._lz4 = self._options | {"kafka.compression.type": "lz4"}

    def create(self, name: str) -> None:
        topic = self._library.NewTopic(name, PARTITIONS, 1, config=self._config)
        self._client.create_topics([topic])[name].result(30)

    def write(self, rows: DataFrame, name: str) -> None:
        rows.write.format("kafka").options(**self._lz4, topic=name).save()

    def read(self, name: str) -> DataFrame:
        return self.spark.read.format("kafka").options(**self._options, subscribe=name).load()

    def stream(self, name: str, limit: int | None = None) -> DataFrame:
        reader = self.spark.readStream.format("kafka").options(**self._options, subscribe=name)
        return reader.options(**_from_the_first_row(limit)).load()

    def sink(self, name: str) -> tuple[str, dict[str, Any]]:
        return "kafka", self._lz4 | {"topic": name}


class Files:
    """Folders with files of Spark's own, or Delta tables: no keys' partitions, no offsets, no order."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder / kind
        self.name = {"delta": "Delta", "parquet": "Parquet files"}[kind]

    def create(self, name: str) -> None:
        """Do nothing: the first write creates it."""

    def write(self, rows: DataFrame, name: str) -> None:
        rows.write.format(self.kind).mode("append").save(self._path(name))

    def read(self, name: str) -> DataFrame:
        return self.spark.read.format(self.kind).load(self._path(name))

    def stream(self, name: str, limit: int | None = None) -> DataFrame:
        """Return a stream; a limit is a file, as neither kind counts rows."""
        reader = self.spark.readStream.format(self.kind)
        if self.kind == "parquet":
            reader = reader.schema(self.read(name).schema)
        if limit is not None:
            reader = reader.option("maxFilesPerTrigger", 1)
        return reader.load(self._path(name))

    def sink(self, name: str) -> tuple[str, dict[str, Any]]:
        return self.kind, {"path": self._path(name)}

    def _path(self, name: str) -> str:
        return str(self.folder / name)


def _from_the_first_row(limit: int | None) -> dict[str, Any]:
    return {"startingOffsets": "earliest"} | ({} if limit is None else {"maxOffsetsPerTrigger": limit})


System = PysparkLog | Kafka | Files


class Beside:
    """The jobs, each of all systems in turns."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> None:
        self.spark, self.folder, self.rows, self.runs, self.log = spark, folder / "beside", rows, runs, log
        self._numbers = itertools.count(1)
        self.bars: list[Bars] = []

    def measure(self, batches: int) -> tuple[list[Line], str]:
        """Return the lines, and the chart as SVG; the time of a micro-batch is the median of `batches`."""
        self.folder.mkdir()
        try:
            maven_jars.jars("connector")
            with kafka.running(self.folder / "kafka", JVM) as broker:
                address = broker.address
                flushed = Kafka(self.spark, address, FLUSHED)
                flushed.name = "Kafka, flushed"
                return self._measure([Kafka(self.spark, address, {}), flushed], batches)
        except maven_jars.Unavailable as unavailable:
            self.log(f"not beside Kafka: {unavailable}")
            return self._measure([], batches)

    def _measure(self, brokers: list[System], batches: int) -> tuple[list[Line], str]:
        kinds = ["delta", "parquet"] if has_delta(self.spark) else ["parquet"]
        files = [Files(self.spark, self.folder, kind) for kind in kinds]
        systems: list[System] = [PysparkLog(self.spark, self.folder), *brokers, *files]
        frame, _ = persisted_rows(self.spark, self.rows, PARTITIONS)
        rows = frame.selectExpr("CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value")
        written = {each.name: f"written-{number}" for number, each in enumerate(systems)}
        for each in systems:
            each.create(written[each.name])
            each.write(rows, written[each.name])
        lines = self._rates("write a frame", systems, lambda system: system.write(rows, self._new(system)))
        frame.unpersist(blocking=True)
        lines += self._rates(
            "read a topic or table",
            systems,
            lambda system: system.read(written[system.name]).selectExpr(*LOOK_AT_ALL).collect(),
        )
        lines += self._streams("read it as a stream", systems, written, into_nothing=True)
        lines += self._streams("copy it by a stream", systems, written, into_nothing=False)
        lines += self._micro_batches(systems, batches)
        return lines, draw_bars(self.bars)

    def _rates(self, job: str, systems: list[System], run: Callable[[System], object]) -> list[Line]:
        self.log(job)
        timings = in_turns([functools.partial(run, each) for each in systems], self.runs)
        return self._lines(job, "M rows/s", systems, [self.rows / each.wall / MEGA for each in timings])

    def _streams(self, job: str, systems: list[System], names: dict[str, str], *, into_nothing: bool) -> list[Line]:
        self.log(job)
        took: dict[str, list[float]] = {each.name: [] for each in systems}
        for _ in range(self.runs + 1):
            for each in systems:
                sink = ("noop", {}) if into_nothing else each.sink(self._new(each))
                took[each.name].append(sum(self._run(each.stream(names[each.name]), *sink)) / 1_000)
        rates = [self.rows / statistics.median(took[each.name][1:]) / MEGA for each in systems]
        return self._lines(job, "M rows/s", systems, rates)

    def _micro_batches(self, systems: list[System], batches: int) -> list[Line]:
        """Measure them in turns. The first turn does not count: the JVM still compiles code that all systems use."""
        self.log(f"{TURNS} turns of {batches} micro-batches of {BATCH_ROWS:,} rows, after one that does not count")
        count = batches + WARM_UP
        took: dict[str, list[float]] = {each.name: [] for each in systems}
        for turn in range(TURNS + 1):
            for each in systems:
                name = self._new(each)
                files = count if isinstance(each, Files) else PARTITIONS
                each.write(fresh_rows(self.spark, count * BATCH_ROWS, files), name)
                times = self._run(each.stream(name, BATCH_ROWS), *each.sink(self._new(each)))
                assert len(times) >= count, f"{each.name}: {len(times)} micro-batches"
                took[each.name] += times[WARM_UP:count] if turn else []
        found = [statistics.median(took[each.name]) for each in systems]
        return self._lines("micro-batch of 1,000 rows", "ms", systems, found)

    def _run(self, rows: DataFrame, kind: str, options: dict[str, Any]) -> list[float]:
        """Run a stream to its end; return the milliseconds of each micro-batch that had rows."""
        checkpoint = self.folder / f"checkpoint-{next(self._numbers)}"
        writer = rows.select("key", "value").writeStream.format(kind).options(**options)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint)
        return [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]

    def _new(self, system: System) -> str:
        name = f"t{next(self._numbers)}"
        system.create(name)
        return name

    def _lines(self, job: str, unit: str, systems: list[System], values: list[float]) -> list[Line]:
        self.bars.append(Bars(job, unit, [(each.name, value) for each, value in zip(systems, values, strict=True)]))
        return [
            information(f"{job}, beside {each.name}", unit, values[0], value)
            for each, value in zip(systems[1:], values[1:], strict=True)
        ]
