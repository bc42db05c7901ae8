"""Compacted topics: what compaction costs, and the newest state beside a Delta table that MERGE keeps current."""

from __future__ import annotations

import itertools
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import pyspark_log
from benchmarks.kafka import JVM
from benchmarks.prefill import opened, without_flushing
from benchmarks.report import Line, at_least, at_most, information
from benchmarks.stopwatch import Timing, in_turns, timed
from benchmarks.tables import has_delta
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_storage.stores.local import LocalStore
from tests.servers import kafka, maven_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.report import Target
    from pyspark_log_coordinator.log.log import TopicHandle

BATCH_ROWS = 100_000
"""Rows that are written at once where Spark does not write them."""
CHANGES = 10_000
"""Changes in a micro-batch."""
ROUNDS = 20
TAIL = 100_000
"""Rows that are not compacted."""
COMPACT = {"cleanup.policy": "compact", "file.delete.delay.ms": "0"}
EAGER, NEVER = ({"min.cleanable.dirty.ratio": each} for each in ("0.001", "1"))
CLEANER_BYTES = 128 * 1024 * 1024
"""Kafka's default of log.cleaner.dedupe.buffer.size."""
ROLLED_SECONDS, CLEANED_SECONDS = 3, 180
KAFKAS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
"""Kafka compacts all but its active segment, which with its defaults is of up to seven days."""
MEGA = 1_000_000


def measure_compaction(folder: Path, rows: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about compaction itself, without Spark: `rows` rows of a tenth as many keys."""
    log(f"compacting {rows:,} rows")
    keys = rows // 10
    with without_flushing():
        topic = _topic(folder / "compacted", COMPACT)
        _write(folder / "compacted", _random(rows, keys))
        came = sum(each.length for each in topic.refresh().partitions[0].pieces_from(0))
        spent, written = _compacted(topic)
        read = timed(partial(_consume, folder / "compacted", keys))
        for seed in range(1, ROUNDS + 1):
            end = topic.refresh().partitions[0].log_end
            _write(folder / "compacted", _random(keys // 4, keys, seed))
            came += sum(each.length for each in topic.refresh().partitions[0].pieces_from(end))
            written += _compacted(topic)[1]
    speed = rows / spent.wall / 1e6
    return [
        Line(
            f"compacting {rows / 1e6:g} M rows of {keys / 1e6:g} M keys",
            "M rows/s",
            speed,
            target=at_least(2, "M rows/s"),
        ),
        information("scan of its newest rows, without Spark", "M rows/s", keys / read.wall / 1e6),
        _line("bytes that compaction writes, beside those that came in", "MB", written / 1e6, came / 1e6, at_most(3)),
    ]


class NewestState:
    """A topic, and a Delta table, that hold the newest state of some keys."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int, runs: int, log: Callable[[str], object]) -> None:
        self.spark, self.keys, self.runs, self.log = spark, keys, runs, log
        self.folder = folder / "newest-state"
        self.path, self.table = str(self.folder / "log"), str(self.folder / "delta")
        self._seeds = itertools.count(1)

    def measure(self) -> list[Line]:
        """Return the lines about writing, reading and keeping the state current."""
        self.log(f"the newest state of {self.keys:,} keys")
        topic = _topic(self.folder / "log", COMPACT)
        topic.log.create_topic("plain", 1, parse({"retention.ms": "-1"}))
        _write(self.folder / "log", _each(self.keys))
        topic_roll.roll_and_merge(topic)
        lines = [self._writes()]
        topic.alter_config(EAGER)
        topic_roll.roll_and_merge(topic)
        topic.alter_config(NEVER)
        lines += self._reads()
        lines += self._beside_kafka()
        return lines + (self._kept_current(topic) if has_delta(self.spark) else [])

    def changes(self, count: int) -> DataFrame:
        """Return random changes: the number of the key, and the new value."""
        seed = next(self._seeds)
        return self.spark.range(count).selectExpr(
            f"cast(concat('key-', lpad(cast(rand({seed}) * {self.keys} as bigint), 8, '0')) as binary) as key",
            f"cast(concat('{{\"v\": ', cast(rand({seed + 1000}) * 1e9 as bigint), '}}') as binary) as value",
        )

    def _writes(self) -> Line:
        rows = self.changes(self.keys).repartition(1).persist()
        rows.count()

        def write(topic: str) -> None:
            rows.write.format("pyspark_log").mode("append").option("topic", topic).save(self.path)

        compacted, plain = in_turns([partial(write, "t"), partial(write, "plain")], self.runs)
        rows.unpersist()
        ours, plains = (self.keys / each.wall / 1e6 for each in (compacted, plain))
        return _line("write to a compacted topic, beside a plain one", "M rows/s", ours, plains, at_least(0.9))

    def _reads(self) -> list[Line]:
        state = pyspark_log.latest(self.spark, self.path, "t").select("key", "value")
        copy = str(self.folder / "parquet")
        state.write.parquet(copy)

        ours, files = in_turns([self._latest, lambda: _look_at(self.spark.read.parquet(copy))], self.runs)
        speed, ceiling = (self.keys / each.wall / 1e6 for each in (ours, files))
        self.changes(TAIL).coalesce(1).write.format("pyspark_log").mode("append").option("topic", "t").save(self.path)
        behind, *_ = in_turns([self._latest], self.runs)
        return [
            information("latest of a compacted topic, beside Spark's Parquet of its rows", "M rows/s", speed, ceiling),
            information(f"latest with a tail of {TAIL:,} rows", "s", behind.wall),
        ]

    def _beside_kafka(self) -> list[Line]:
        """Return the line about a topic of Kafka that has one row of each key, read by Spark's connector."""
        try:
            maven_jars.jars("connector")
            with kafka.running(self.folder / "kafka", JVM, {"log.cleaner.dedupe.buffer.size": CLEANER_BYTES}) as broker:
                return self._beside(broker.address)
        except maven_jars.Unavailable as unavailable:
            self.log(f"not beside Kafka: {unavailable}")
            return []

    def _beside(self, address: str) -> list[Line]:
        from confluent_kafka import admin
        from pyspark.sql import functions as f

        library: Any = admin
        client = library.AdminClient({"bootstrap.servers": address, "log_level": 0})
        for created in client.create_topics([library.NewTopic("t", 1, 1, config=KAFKAS)]).values():
            created.result(30)
        options = {"kafka.bootstrap.servers": address, "topic": "t", "subscribe": "t", "startingOffsets": "earliest"}
        first = self.spark.read.parquet(str(self.folder / "parquet")).repartition(1)
        for rows in (first, self.changes(self.keys).coalesce(1), self.changes(1)):
            rows.write.format("kafka").options(**options).save()
            time.sleep(ROLLED_SECONDS)  # the next row begins a segment, and the one before may be compacted
        everything = self.spark.read.format("kafka").options(**options).load()
        deadline = time.monotonic() + CLEANED_SECONDS
        while (count := everything.count()) > 1.01 * self.keys:
            assert time.monotonic() < deadline, f"Kafka's log cleaner left {count:,} rows"
            time.sleep(1)

        newest = everything.groupBy("key").agg(f.max_by(f.struct("value", "offset"), "offset").alias("row"))
        state = newest.select("key", "row.value").where("value IS NOT NULL")
        ours, kafkas, plain = in_turns([self._latest, lambda: _look_at(state), lambda: _look_at(everything)], self.runs)
        speeds = [self.keys / each.wall / 1e6 for each in (ours, kafkas, plain)]
        name = "latest, beside Kafka's compacted topic by Spark's connector"
        return [
            _line(f"{name}, newest row of each key", "M rows/s", speeds[0], speeds[1], at_least(5)),
            information(f"{name}, all rows that are there", "M rows/s", speeds[0], speeds[2]),
        ]

    def _latest(self) -> None:
        _look_at(pyspark_log.latest(self.spark, self.path, "t"))

    def _kept_current(self, topic: TopicHandle) -> list[Line]:
        topic.alter_config({"min.cleanable.dirty.ratio": "0.5"})
        self.spark.read.parquet(str(self.folder / "parquet")).write.format("delta").option(
            "delta.enableDeletionVectors", "true"
        ).save(self.table)

        def append() -> None:
            frame = self.changes(CHANGES).coalesce(1)
            frame.write.format("pyspark_log").mode("append").option("topic", "t").save(self.path)

        def merge() -> None:
            self.changes(CHANGES).dropDuplicates(["key"]).createOrReplaceTempView("changes")
            self.spark.sql(
                f"MERGE INTO delta.`{self.table}` t USING changes c ON t.key = c.key "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        rounds = max(self.runs, 5)
        ours, merged = in_turns([append, merge], rounds)
        compaction = timed(partial(_compact_all, topic))
        before = timed(self._latest)
        table = timed(lambda: _look_at(self.spark.read.format("delta").load(self.table)))
        return [
            _line(
                f"MERGE of {CHANGES:,} changes into a Delta table, beside writing and compacting them",
                "s of processor time",
                merged.cpu,
                ours.cpu + compaction.cpu / (rounds + 1),
                at_least(5),
            ),
            information(f"the same, {self.keys / 1e6:g} M keys, until they can be read", "s", ours.wall, merged.wall),
            information("compaction of these changes", "s of processor time", compaction.cpu),
            information("latest, beside the Delta table", "s", before.wall, table.wall),
        ]


def _line(name: str, unit: str, product: float, ceiling: float, target: Target) -> Line:
    return Line(name, unit, product, ceiling, product / ceiling, target)


def _topic(folder: Path, config: dict[str, str]) -> TopicHandle:
    shutil.rmtree(folder, ignore_errors=True)
    return opened(LocalStore(str(folder)), create=True).create_topic("t", 1, parse(config))


def _compacted(topic: TopicHandle) -> tuple[Timing, int]:
    """Do what is due; return the time that it took, and how many bytes were written."""
    before = {each.name for each in topic.refresh().partitions[0].segments}
    written = 0
    seen = set(before)

    def count() -> None:
        nonlocal written
        new = [each for each in topic.refresh().partitions[0].segments if each.name not in seen]
        seen.update(each.name for each in new)
        written += sum(each.log_bytes for each in new)

    return timed(partial(topic_roll.roll_and_merge, topic, between=count)), written


def _compact_all(topic: TopicHandle) -> None:
    topic.alter_config(EAGER)
    topic.refresh()
    topic_roll.roll_and_merge(topic)


def _write(folder: Path, batches: itertools.chain[pa.RecordBatch] | map[pa.RecordBatch]) -> None:
    with pyspark_log.Producer(str(folder)) as producer:
        for batch in batches:
            producer.send_batch("t", batch)


def _each(keys: int) -> map[pa.RecordBatch]:
    """Return one row of each key."""
    return map(_rows, (np.arange(first, min(first + BATCH_ROWS, keys)) for first in range(0, keys, BATCH_ROWS)))


def _random(rows: int, keys: int, seed: int = 0) -> map[pa.RecordBatch]:
    """Return rows of random keys."""
    chance = np.random.default_rng(seed)
    return map(_rows, (chance.integers(0, keys, min(BATCH_ROWS, rows - at)) for at in range(0, rows, BATCH_ROWS)))


def _rows(numbers: np.ndarray) -> pa.RecordBatch:
    keys = pa.array([b"key-%08d" % number for number in numbers.tolist()], pa.binary())
    values = pa.array([b'{"v": %d}' % (number * 7919 % 1_000_003) for number in numbers.tolist()], pa.binary())
    return pa.record_batch({"key": keys, "value": values})


def _consume(folder: Path, keys: int) -> None:
    rows = sum(each.num_rows for each in pyspark_log.scan(str(folder), "t", columns=["key", "value"], latest=True))
    assert 0.9 * keys < rows <= keys


def _look_at(frame: DataFrame) -> None:
    """Read key and value of each row."""
    frame.selectExpr("max(length(key))", "max(length(value))").collect()
