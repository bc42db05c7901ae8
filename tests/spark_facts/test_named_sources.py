"""Named sources: sources of a query come and go while its checkpoint stays (docs/guides/changing-topics.md)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.plain_log import PlainLog

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
OFFSETS_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
RETAINED = "spark.sql.streaming.minBatchesToRetain"


class Query:
    """A query with a checkpoint, and the values that it has read."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = PlainLog(folder / "log")
        self.checkpoint = folder / "checkpoint"
        for topic in ("a", "b"):
            self.log.create(topic)
            self.append(topic, "0", "1")

    def append(self, topic: str, *values: str) -> None:
        self.log.append(topic, {0: [f"{topic}{value}".encode() for value in values]})

    def source(self, topics: str, name: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("pyspark_log").option("subscribe", topics)
        reader = reader.option("startingOffsets", "earliest").options(**options)
        if name:
            reader = reader.name(name)
        return reader.load(self.log.path).selectExpr("CAST(value AS STRING) AS value")

    def read(self, *sources: DataFrame, fails: bool = False) -> list[str]:
        """Run the query with these sources until it has read what is there, and return the values in order."""
        values: list[str] = []

        def gather(batch: DataFrame, _: int) -> None:
            assert not fails, "made to fail"
            values.extend(row.value for row in batch.collect())

        rows = sources[0]
        for each in sources[1:]:
            rows = rows.union(each)
        writer = rows.writeStream.foreachBatch(gather).option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(values)


@pytest.fixture
def evolution(spark: SparkSession) -> Iterator[None]:
    """The settings with which Spark tells sources by their names."""
    spark.conf.set(EVOLUTION, "true")
    spark.conf.set(OFFSETS_FORMAT, "2")
    yield
    for name in (EVOLUTION, OFFSETS_FORMAT, RETAINED):
        spark.conf.unset(name)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def test_sources_are_added_moved_and_removed_and_return_where_they_were(evolution: None, query: Query) -> None:
    a, b = query.source("a", "first"), query.source("b", "second")
    assert query.read(a) == ["a0", "a1"]
    query.append("a", "2")
    assert query.read(b, a) == ["a2", "b0", "b1"], "the new source begins at its startingOffsets"
    query.append("a", "3")
    query.append("b", "2")
    assert query.read(a) == ["a3"]
    assert query.read(a, b) == ["b2"]


def test_a_source_that_was_away_for_longer_than_the_offset_log_reaches_begins_anew(
    evolution: None, query: Query, spark: SparkSession
) -> None:
    spark.conf.set(RETAINED, "2")
    a, b = query.source("a", "first"), query.source("b", "second")
    assert query.read(a, b) == ["a0", "a1", "b0", "b1"]
    for number in range(4):
        query.append("a", f"-{number}")
        assert query.read(a) == [f"a-{number}"]
    assert query.read(a, b) == ["b0", "b1"]


def test_rows_of_a_source_that_is_removed_in_an_unfinished_batch_are_skipped_for_good(
    evolution: None, query: Query
) -> None:
    a, b = query.source("a", "first"), query.source("b", "second")
    with pytest.raises(StreamingQueryException, match="made to fail"):
        query.read(a, b, fails=True)
    assert query.read(a) == ["a0", "a1"]
    query.append("b", "2")
    assert query.read(a, b) == ["b2"], "Spark's offset log has the batch as read"


def test_a_name_that_stands_for_another_topic_is_an_error(evolution: None, query: Query) -> None:
    query.read(query.source("a", "first"))
    with pytest.raises(StreamingQueryException, match="topic 'a', partition 0 does not exist or is not subscribed any"):
        query.read(query.source("b", "first"))


def test_one_source_takes_further_topics_and_gives_them_up_only_if_told_to(query: Query) -> None:
    assert query.read(query.source("a")) == ["a0", "a1"]
    query.append("a", "2")
    assert query.read(query.source("a,b")) == ["a2", "b0", "b1"]
    query.append("a", "3")
    with pytest.raises(StreamingQueryException, match="topic 'b', partition 0 does not exist or is not subscribed any"):
        query.read(query.source("a"))
    assert query.read(query.source("a", failOnDataLoss="false")) == ["a3"]
    query.append("b", "2")
    assert query.read(query.source("a,b")) == ["b2"], "the query continues where it was"
