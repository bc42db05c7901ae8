"""A log that is written and read by Spark, and by plain Python where Spark has no part in what is tested."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from tests.support.plain_log import PlainLog

FORMAT = "pyspark_log"
_number = itertools.count()


class SparkLog(PlainLog):
    """A log in a folder, with a checkpoint beside it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(folder / "log")
        self.spark = spark
        self.folder = folder

    def write(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format(FORMAT).mode("append").options(**options).save(self.path)

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format(FORMAT).options(**options).load(self.path)

    def stream(self, **options: Any) -> DataFrame:
        return self.spark.readStream.format(FORMAT).options(**options).load(self.path)

    def drain(self, frame: DataFrame, checkpoint: str = "checkpoint", mode: str = "append", **options: Any) -> Any:
        """Write what a stream has now, and return the query, which has ended."""
        writer = frame.writeStream.format(FORMAT).outputMode(mode).options(**options)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        query = writer.trigger(availableNow=True).start(self.path)
        query.awaitTermination()
        return query

    def gathered(self, frame: DataFrame, **trigger: Any) -> list[list[Row]]:
        """The rows of each micro-batch of a stream that ends by itself."""
        batches: list[list[Row]] = []
        writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
        writer = writer.option("checkpointLocation", str(self.folder / f"gathered-{next(_number)}"))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        query.awaitTermination()
        return batches

    def rows(self, topic: str) -> int:
        """How many rows are in the log."""
        return sum(partition.high_watermark for partition in self.log.topic(topic).journal.state.partitions)


@contextmanager
def configured(spark: SparkSession, **settings: Any) -> Iterator[None]:
    """Settings of the session for a while; a name's dots are written as two underscores."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


class Shown:
    """What a Spark user is shown of an error."""

    text = ""

    @property
    def first_line(self) -> str:
        """The line with the message. Spark's Python errors of tasks are announced by a line of their own."""
        lines = self.text.splitlines()
        return lines[1] if lines[0] == "An exception was thrown from the Python worker:" else lines[0]


@contextmanager
def refused() -> Iterator[Shown]:
    """Expect an error that is shown without a Python traceback."""
    assert not os.environ.get("SPARK_HIDE_TRACEBACK"), "set for all processes, it would hide what this looks for"
    shown = Shown()
    with pytest.raises(PySparkException) as caught:
        yield shown
    shown.text = str(caught.value)
    assert "Traceback" not in shown.text
