"""The log as a table: typed topics with Parquet segments, beside files that Spark has written itself.

One topic has all its rows but the newest in Parquet segments. Its pinned read is compared with Spark's own reader of
files that it has written of the same rows, and with Delta if the session has it. Everything alternates, so that other
work on the machine affects both sides.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyspark_log
from benchmarks import typed_rows
from benchmarks.report import Line, at_least, at_most, information
from benchmarks.stopwatch import Timing, in_turns, timed
from benchmarks.stored import merge_everything
from benchmarks.typed_rows import ALL_COLUMNS, ONE_COLUMN, look_at
from pyspark_log.opening import open_log
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_storage.columns import column_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.report import Target
    from pyspark_log_coordinator.log.log import TopicHandle

PARTITIONS = 8
PARQUET = {"segment.format": "parquet"}
MEGA = 1_000_000
ROLLED = 0.995
"""The share of rows that are in Parquet segments when a topic is read."""
BATCHES = 4
"""Micro-batches of a stream that catches up."""
DEFAULT_SEGMENT_BYTES = 1 << 30
SEGMENT_BYTES_PER_ROW = 20
"""Fewer rows need smaller segments, as small ones stay chunks; with these a partition is one Parquet file."""
PASSING_BATCHES = 20
PASSING_PARTITIONS = 1
PASSING_SEGMENT_BYTES = 64 << 20
"""A sixteenth of it is a roll that is Parquet at once; with the default, 1 GiB, writers would leave that to others."""


class Tables:
    """The runs over one set of typed rows."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> None:
        self.spark, self.rows, self.runs, self.log = spark, rows, runs, log
        self.path, self.folder = str(folder / "tables" / "log"), folder / "tables"
        self._numbers = itertools.count(1)

    def measure(self) -> list[Line]:
        """Return all lines."""
        self.log(f"making {self.rows:,} typed rows")
        frame = typed_rows.persisted(self.spark, self.rows, PARTITIONS)
        lines = self._writes(frame)
        topic, handle = self._rolled(frame)
        frame.unpersist(blocking=True)
        lines += self._reads(topic, handle)
        lines += self._streams()
        return [*lines, self._in_passing()]

    def _writes(self, frame: DataFrame) -> list[Line]:
        """Write the frame as columns, as JSON values, and into a sink that counts."""
        self.log("writing them as columns, as JSON values, and into a sink that counts")
        self._json = ""

        def as_json() -> None:
            self._json = self._created(typed=False)
            values = frame.selectExpr("to_json(struct(*)) AS value")
            values.write.format("pyspark_log").mode("append").option("topic", self._json).save(self.path)

        def as_columns() -> None:
            self._typed = self._created()
            self._save(frame, self._typed)

        def into_nothing() -> None:
            frame.write.format("bench_count").mode("append").save()

        columns, values, ceiling = in_turns([as_columns, as_json, into_nothing], self.runs)
        return [
            self._rate("typed write", columns, ceiling, at_least(0.8)),
            self._rate("typed write, beside the frame as JSON values", columns, values, at_least(2)),
        ]

    def _rolled(self, frame: DataFrame) -> tuple[str, TopicHandle]:
        """Write the rows into a topic, roll them all but some that are written afterwards."""
        self.log("rolling them to Parquet segments")
        segment_bytes = min(DEFAULT_SEGMENT_BYTES, self.rows * SEGMENT_BYTES_PER_ROW)
        topic = self._created(PARQUET | {"segment.bytes": str(segment_bytes)})
        self._save(frame, topic)
        handle = open_log(self.path).topic(topic)
        merge_everything(handle)
        assert all(each.is_parquet for one in handle.refresh().partitions for each in one.segments), "not all Parquet"
        newest = round(self.rows * (1 / ROLLED - 1))
        self._save(typed_rows.fresh(self.spark, self.rows, self.rows + newest, 1), topic)
        return topic, handle

    def _reads(self, topic: str, handle: TopicHandle) -> list[Line]:
        """Read the topic, and the same rows from files that Spark has written of them."""
        self.log("writing the same rows with Spark's own writer")

        def union() -> DataFrame:
            return pyspark_log.read(self.spark, self.path, topic)

        ends = {number: each.segments[-1].end_offset for number, each in enumerate(handle.refresh().partitions)}

        def rolled() -> DataFrame:
            return pyspark_log.read(self.spark, self.path, topic, dict.fromkeys(ends, 0), ends)

        ordered = union().drop("topic").repartition(PARTITIONS, "partition").sortWithinPartitions("partition", "offset")
        files = {"Spark's Parquet": str(self.folder / "parquet")}
        ordered.write.parquet(files["Spark's Parquet"])
        if has_delta(self.spark):
            files["Delta"] = str(self.folder / "delta")
            ordered.write.format("delta").save(files["Delta"])
        formats = {"Spark's Parquet": "parquet", "Delta": "delta"}
        frames: list[Callable[[], DataFrame]] = [
            functools.partial(self.spark.read.format(formats[name]).load, path) for name, path in files.items()
        ]
        lines = []
        for what, columns, target in (("10 columns", ALL_COLUMNS, 0.95), ("1 of 10 columns", ONE_COLUMN, 0.9)):
            self.log(f"reading {what}")
            found = {look_at(each(), columns) for each in (union, *frames)}
            assert len(found) == 1, f"not the same rows: {found}"
            by_turns = (union, rolled, *frames, lambda: self._source(topic))
            product, in_files, *others, source = in_turns(
                [functools.partial(_look, each, columns) for each in by_turns], self.runs
            )
            for name, other in zip(files, others, strict=True):
                bound = at_least(target) if name == "Spark's Parquet" else None
                lines.append(self._rate(f"union read, {what}, beside {name}", product, other, bound))
                lines.append(self._rate(f"its rows in Parquet segments, {what}, beside {name}", in_files, other, None))
            lines.append(self._rate(f"union read, {what}, beside the source alone", product, source, None))
        segments = [each for partition in handle.refresh().partitions for each in partition.segments if each.is_parquet]
        ours = sum(each.log_bytes for each in segments) / sum(each.end_offset - each.base_offset for each in segments)
        theirs = sum(file.stat().st_size for file in (self.folder / "parquet").glob("*.parquet")) / self._all_rows()
        lines.append(information("typed row in a Parquet segment, beside Spark's Parquet", "B", ours, theirs))
        return lines

    def _streams(self) -> list[Line]:
        """Catch up over typed rows, and over JSON values."""
        limit = str(-(-self._all_rows() // BATCHES))
        took: dict[str, list[float]] = defaultdict(list)

        def record(query: StreamingQuery, kind: str) -> None:
            query.awaitTermination()
            took[kind].append(sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress) / 1000)

        def by_source(kind: str, name: str, *steps: str) -> None:
            stream = self.spark.readStream.format("pyspark_log").option("subscribe", name)
            frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", limit).load(self.path)
            for step in steps:
                frame = frame.selectExpr(step)
            writer = frame.writeStream.foreachBatch(_handed).option("checkpointLocation", self._checkpoint())
            record(writer.trigger(availableNow=True).start(), kind)

        self.log("streaming: typed rows, and from_json over values")
        from_json = f"from_json(CAST(value AS STRING), '{typed_rows.DDL}') AS row"
        streams: dict[str, Callable[[], object]] = {
            "typed": functools.partial(by_source, "typed", self._typed),
            "values": functools.partial(by_source, "values", self._json, from_json, "row.*"),
        }
        timings = dict(zip(streams, in_turns(list(streams.values()), self.runs), strict=True))
        typed, values = (
            Timing(statistics.median(took[kind][-self.runs :]), timing.cpu) for kind, timing in timings.items()
        )
        return [
            self._rate("typed stream read, beside from_json over values", typed, values, at_least(3)),
        ]

    def _in_passing(self) -> Line:
        """Write many batches into a topic with Parquet segments and one without, which roll in passing."""
        self.log(f"writing {PASSING_BATCHES} batches with and without Parquet segments")
        size = {"segment.bytes": str(PASSING_SEGMENT_BYTES)}
        kinds: dict[str, dict[str, str]] = {"parquet": PARQUET | size, "log": size}
        topics = {kind: self._created(config, PASSING_PARTITIONS) for kind, config in kinds.items()}
        each = self.rows // PASSING_BATCHES
        times: dict[str, list[Timing]] = {kind: [] for kind in kinds}
        for number in range(PASSING_BATCHES):
            frame = typed_rows.fresh(self.spark, number * each, (number + 1) * each, 2).persist()
            frame.count()
            for kind in sorted(kinds, reverse=bool(number % 2)):
                times[kind].append(timed(functools.partial(self._save, frame, topics[kind])))
            frame.unpersist(blocking=True)
        state = open_log(self.path).topic(topics["parquet"]).refresh()
        rolled = sum(one.end_offset - one.base_offset for p in state.partitions for one in p.segments if one.is_parquet)
        product, ceiling = (
            Timing(sum(t.wall for t in times[kind]), sum(t.cpu for t in times[kind])) for kind in ("parquet", "log")
        )
        return Line(
            "writing with Parquet segments made in passing, beside without",
            "s",
            product.wall,
            ceiling.wall,
            product.wall / ceiling.wall,
            at_most(1.1),
            product.cpu / ceiling.cpu,
            note=f"{rolled:,} of {each * PASSING_BATCHES:,} rows became Parquet",
        )

    def _created(
        self, config: Mapping[str, str] = MappingProxyType({}), partitions: int = PARTITIONS, *, typed: bool = True
    ) -> str:
        """Create a topic and return its name."""
        name = f"t{next(self._numbers)}"
        columns = column_ddl.parse(typed_rows.DDL) if typed else None
        given = parse({"retention.ms": "-1", **config})
        open_log(self.path, create=True).create_topic(name, partitions, given, columns=columns)
        return name

    def _save(self, frame: DataFrame, topic: str) -> None:
        frame.write.format("pyspark_log").mode("append").option("topic", topic).save(self.path)

    def _source(self, topic: str) -> DataFrame:
        return self.spark.read.format("pyspark_log").option("subscribe", topic).load(self.path)

    def _checkpoint(self) -> str:
        return str(self.folder / "checkpoints" / str(next(self._numbers)))

    def _all_rows(self) -> int:
        return round(self.rows / ROLLED)

    def _rate(self, name: str, product: Timing, ceiling: Timing, target: Target | None) -> Line:
        return Line(
            f"{name}, {self.rows:,} rows",
            "M rows/s",
            self.rows / product.wall / MEGA,
            self.rows / ceiling.wall / MEGA,
            ceiling.wall / product.wall,
            target,
            ceiling.cpu / product.cpu,
        )


def _handed(frame: DataFrame, batch_id: int) -> None:
    del batch_id
    look_at(frame, ALL_COLUMNS)


def _look(frame: Callable[[], DataFrame], columns: tuple[str, ...]) -> None:
    look_at(frame(), columns)


def has_delta(spark: SparkSession) -> bool:
    """Return whether the session was started with Delta."""
    return "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()
