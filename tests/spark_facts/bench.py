"""A bench to put the probe on: one folder, one checkpoint, and what was written down there."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

Call = dict[str, Any]

# What differs between the versions that the facts are tested on is asked of this.
SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

DEADLINE_S = 60
POLL_S = 0.02


class Bench:
    """The probe's folder, and the ways to run Spark over it."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int = 0) -> None:
        self.spark = spark
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.seen = 0
        self.set_rows(rows)

    def set_rows(self, rows: int) -> None:
        """Let the source have `rows` rows from now on."""
        fresh = self.folder / "rows.new"
        fresh.write_text(str(rows))
        fresh.rename(self.folder / "rows")

    def calls(self, *names: str) -> list[Call]:
        """The calls made since the last `forget`, only those named `names` if there are any."""
        journal = self.folder / "calls.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        calls = [json.loads(line) for line in lines[self.seen :]]
        return [call for call in calls if not names or call["call"] in names]

    def names(self) -> list[str]:
        """The names of those calls, in order."""
        return [call["call"] for call in self.calls()]

    def forget(self) -> None:
        """Make `calls` begin here."""
        self.seen += len(self.calls())

    def options(self, **options: Any) -> dict[str, str]:
        """The probe's options."""
        return {"journal": str(self.folder), **{key: str(value) for key, value in options.items()}}

    def stream(self, **options: Any) -> DataStreamReader:
        """The probe as a stream."""
        return self.spark.readStream.format("probe").options(**self.options(**options))

    def sink(self, stream: DataFrame, **options: Any) -> DataStreamWriter:
        """A stream into the probe, each trigger taking all there is."""
        writer = stream.writeStream.format("probe").options(**self.options(**options))
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)

    def drain(self, **options: Any) -> StreamingQuery:
        """Run the probe's source to its end, into a sink that does nothing."""
        writer = self.stream(**options).load().writeStream.format("noop")
        return self.run(writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True))

    def batch(self, **options: Any) -> DataFrameReader:
        """The probe as a table."""
        return self.spark.read.format("probe").options(**self.options(**options))

    def save(self, rows: DataFrame, mode: str = "append", **options: Any) -> None:
        """Write a DataFrame into the probe."""
        rows.write.format("probe").options(**self.options(**options)).mode(mode).save()

    def run(self, writer: DataStreamWriter, path: str | None = None) -> StreamingQuery:
        """Run a stream to its end, or raise what it failed with."""
        query = writer.start(path)
        try:
            assert query.awaitTermination(DEADLINE_S), f"the stream still runs: {self.names()}"
        finally:
            query.stop()
        return query

    def pump(self, *, per_trigger: int = 1000, **sink_options: Any) -> StreamingQuery:
        """Run the probe's source into the probe's sink until all rows are there."""
        return self.run(self.sink(self.stream(perTrigger=per_trigger).load(), **sink_options))

    def wal(self, batch: int) -> str:
        """The source's line of the checkpoint's offset log."""
        return (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]

    def uncommit(self, batch: int) -> None:
        """Make Spark forget that it has finished `batch`."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    @contextmanager
    def conf(self, key: str, value: str) -> Iterator[None]:
        """Set a conf of the session for a while."""
        before = self.spark.conf.get(key, None)
        self.spark.conf.set(key, value)
        try:
            yield
        finally:
            if before is None:
                self.spark.conf.unset(key)
            else:
                self.spark.conf.set(key, before)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Poll until `condition` holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"it has not happened; calls: {self.names()}"
            time.sleep(POLL_S)


@dataclass(frozen=True)
class Run:
    """A stream that has ended, and the calls it made."""

    bench: Bench
    calls: list[Call]
    query: StreamingQuery | None = None
    error: StreamingQueryException | None = None

    def named(self, *names: str) -> list[Call]:
        """The calls with these names, in order."""
        return [call for call in self.calls if call["call"] in names]

    def names(self, *names: str) -> list[str]:
        """The names of those calls, or of all."""
        return [call["call"] for call in (self.named(*names) if names else self.calls)]


MakeBench = Callable[..., Bench]
