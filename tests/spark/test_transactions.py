"""`txnAppId`, `txnVersion` and `txnTakeOver`: writes that name themselves, so that a repetition is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.log_reader import TopicContents, read_topic
from tests.support.spark.kills import Query


class Log:
    """A log in a folder, and the writes of this page."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = str(folder / "log")

    def numbers(self, first: int, end: int) -> DataFrame:
        """Some rows."""
        return self.spark.range(first, end, numPartitions=2).selectExpr("CAST(id AS STRING) value")

    def write(self, rows: DataFrame, topic: str = "out", **options: Any) -> None:
        """Append rows, as a batch."""
        rows.write.format("pyspark_log").mode("append").options(topic=topic, **options).save(self.path)

    def query(self, checkpoint: str, **target: str) -> Query:
        """Return a query from `in` to `out` that calls itself `app`."""
        return Query(
            self.path,
            str(self.folder / checkpoint),
            str(self.folder / "trap"),
            {"subscribe": "in", "startingOffsets": "earliest"},
            {"topic": "out", "txnAppId": "app", **target},
        )

    def for_each_batch(self, write: Any) -> None:
        """Run a query from `in` that hands its micro-batches, of 10 rows, to `write`."""
        stream = self.spark.readStream.format("pyspark_log")
        stream = stream.options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=10)
        query = stream.load(self.path).writeStream.foreachBatch(write)
        query = query.option("checkpointLocation", str(self.folder / "for each batch")).trigger(availableNow=True)
        query.start().awaitTermination()

    def contents(self, topic: str = "out") -> TopicContents:
        """Read a topic without Spark."""
        return read_topic(self.path, topic)

    def sorted_numbers(self, topic: str = "out") -> list[int]:
        """Return all values of a topic."""
        return sorted(self.contents(topic).numbers())


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Log:
    made = Log(spark, tmp_path)
    made.write(made.numbers(0, 30), "in")
    return made


@pytest.mark.default
def test_a_new_checkpoint_with_a_known_application_id_is_refused_until_it_takes_the_id_over(log: Log) -> None:
    old, new = log.query("old"), log.query("new")
    old.run(log.spark)
    before = log.contents()
    with pytest.raises(StreamingQueryException) as refused:
        new.run(log.spark)
    shown = str(refused.value)
    assert f"txnAppId 'app' belongs to query {old.id}, which wrote up to batch 0; this is query {new.id}" in shown
    assert "with a new or different checkpoint" in shown
    assert "txnTakeOver=true" in shown
    assert log.contents() == before

    replace(new, target={**new.target, "txnTakeOver": "true"}).run(log.spark)
    log.write(log.numbers(30, 40), "in")
    new.run(log.spark)
    assert log.sorted_numbers() == sorted([*range(30), *range(40)])

    with pytest.raises(StreamingQueryException, match="was taken over"):
        old.run(log.spark)
    assert log.sorted_numbers() == sorted([*range(30), *range(40)])


@pytest.mark.default
def test_for_each_batch_with_an_application_id_and_a_version_writes_each_batch_once(log: Log) -> None:
    failures = iter([False, True])

    def write_and_fail_once(rows: DataFrame, batch: int) -> None:
        log.write(rows.select("value"), txnAppId="app", txnVersion=batch)
        if next(failures, False):
            raise RuntimeError("after the write")

    with pytest.raises(StreamingQueryException, match="after the write"):
        log.for_each_batch(write_and_fail_once)
    log.for_each_batch(write_and_fail_once)
    assert log.sorted_numbers() == list(range(30))


def test_for_each_batch_without_an_application_id_drops_no_write_of_a_batch(log: Log) -> None:
    def write_three_frames(rows: DataFrame, batch: int) -> None:
        log.write(rows.where("CAST(CAST(value AS STRING) AS INT) % 2 = 0").select("value"))
        log.write(rows.where("CAST(CAST(value AS STRING) AS INT) % 2 = 1").select("value"))
        log.write(rows.select("value"), "copy")

    log.for_each_batch(write_three_frames)
    assert log.sorted_numbers() == list(range(30))
    assert log.sorted_numbers("copy") == list(range(30))
