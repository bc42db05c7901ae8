"""APIs that take a name: views, tables of the catalog, SQL. They are the table in docs/reference/spark-apis.md."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_log.spark_conf.installation import use_in_this_thread
from tests.support.plain_log import PlainLog

VALUES = [b"0", b"1", b"2"]


class Way:
    """A log with the topic `in`, and statements about it. `[log]` in them stands for its path."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.plain = PlainLog(folder / "log")
        self.path = self.plain.path
        self.plain.create("in")
        self.plain.append("in", {0: VALUES})

    def sql(self, statement: str) -> DataFrame:
        return self.spark.sql(statement.replace("[log]", f"path='{self.path}'"))

    def rows(self, topic: str) -> int:
        return sum(each.high_watermark for each in self.plain.log.topic(topic).journal.state.partitions)

    def frame(self) -> DataFrame:
        """Rows that have the columns of a table without column list."""
        return self.spark.read.format("pyspark_log").option("subscribe", "in").load(self.path)

    def drain(self, stream: DataFrame, topic: str) -> None:
        """Write what a stream has into a topic."""
        writer = stream.select("key", "value").writeStream.format("pyspark_log").option("topic", topic)
        writer = writer.option("checkpointLocation", str(self.folder / topic)).trigger(availableNow=True)
        writer.start(self.path).awaitTermination()


@pytest.fixture
def way(spark: SparkSession, tmp_path: Path) -> Way:
    return Way(spark, tmp_path)


@pytest.fixture
def table(way: Way) -> Iterator[str]:
    """A table of the catalog that has neither columns nor options."""
    way.sql("CREATE TABLE events USING pyspark_log")
    yield "events"
    way.sql("DROP TABLE events")


@pytest.fixture
def view(way: Way) -> Iterator[str]:
    """A temporary view of the topic, which has its options."""
    way.sql(f"CREATE TEMPORARY VIEW seen USING pyspark_log OPTIONS (path '{way.path}', subscribe 'in')")
    yield "seen"
    way.spark.catalog.dropTempView("seen")


def refusal(do: Any) -> str:
    with pytest.raises(AnalysisException) as caught:
        do()
    return str(caught.value)


def test_a_temporary_view_reads_a_topic(way: Way, view: str) -> None:
    found = way.sql("SELECT CAST(value AS STRING) AS value FROM seen WHERE offset > 0")
    assert sorted(row.value for row in found.collect()) == ["1", "2"]
    assert way.spark.read.table(view).count() == way.spark.table(view).count() == len(VALUES)


def test_a_temporary_view_of_a_topic_is_not_written_and_not_a_stream(way: Way, view: str) -> None:
    insert = "INSERT INTO seen SELECT key, value, topic, partition, offset, timestamp, timestampType FROM seen"
    assert "option subscribe is for a batch read or a streaming read, not for a batch write" in refusal(
        lambda: way.sql(insert)
    )
    assert "not a temp view of streaming logical plan" in refusal(lambda: way.spark.readStream.table(view).schema)


def test_a_temporary_view_of_a_stream_is_a_stream(way: Way) -> None:
    stream = way.spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
    stream.load(way.path).createOrReplaceTempView("flow")
    way.drain(way.spark.readStream.table("flow"), "by-table")
    way.drain(way.sql("SELECT key, value FROM flow WHERE CAST(value AS STRING) > '0'"), "by-SQL")
    assert (way.rows("by-table"), way.rows("by-SQL")) == (3, 2)


def test_a_table_reads_with_the_options_of_the_statement(way: Way, table: str) -> None:
    assert way.sql("SELECT * FROM events WITH ([log], subscribe='in')").count() == len(VALUES)
    batch = way.spark.read.option("path", way.path).option("subscribe", "in").table(table)
    assert batch.count() == len(VALUES)
    stream = way.spark.readStream.option("path", way.path).option("subscribe", "in")
    way.drain(stream.option("startingOffsets", "earliest").table(table), "copy")
    assert way.rows("copy") == len(VALUES)


def test_a_table_is_written_with_the_options_of_the_statement(way: Way, table: str) -> None:
    way.sql(
        "INSERT INTO events WITH ([log], topic='sql') (key, value) VALUES (CAST('k' AS BINARY), CAST('v' AS BINARY))"
    )
    frame = way.frame()
    frame.writeTo(table).option("path", way.path).option("topic", "writeTo").append()
    saved = frame.write.format("pyspark_log").mode("append").option("path", way.path).option("topic", "saved")
    saved.saveAsTable(table)
    stream = way.spark.readStream.format("pyspark_log").option("subscribe", "in").option("startingOffsets", "earliest")
    writer = stream.load(way.path).writeStream.option("path", way.path).option("topic", "toTable")
    writer = writer.option("checkpointLocation", str(way.folder / "to-table")).trigger(availableNow=True)
    writer.toTable(table).awaitTermination()
    assert [way.rows(topic) for topic in ("sql", "writeTo", "saved", "toTable")] == [1, 3, 3, 3]


def test_a_permanent_view_keeps_the_options_of_its_query(way: Way, table: str) -> None:
    way.sql("CREATE VIEW kept AS SELECT * FROM events WITH ([log], subscribe='in')")
    try:
        assert way.spark.read.table("kept").count() == len(VALUES)
        way.plain.append("in", {0: [b"3"]})
        assert way.spark.read.table("kept").count() == len(VALUES) + 1
    finally:
        way.sql("DROP VIEW kept")


def test_a_table_may_choose_columns(way: Way) -> None:
    way.sql("CREATE TABLE pairs (key BINARY, value BINARY) USING pyspark_log")
    try:
        found = way.sql("SELECT * FROM pairs WITH ([log], subscribe='in')")
        assert found.columns == ["key", "value"]
        assert found.count() == len(VALUES)
    finally:
        way.sql("DROP TABLE pairs")


def test_a_table_does_not_keep_options_so_they_are_refused(way: Way, table: str) -> None:
    create = f"CREATE TABLE kept USING pyspark_log OPTIONS (path '{way.path}', subscribe 'in')"
    assert "give options with each statement: FROM events WITH" in refusal(lambda: way.sql(create))
    unnamed = refusal(lambda: way.sql("SELECT * FROM events").count())
    assert "option path is required for a batch read" in unnamed
    assert "FROM events WITH (path='...')" in unnamed
    assert "option path is required" in refusal(lambda: way.frame().write.option("topic", "x").insertInto(table))


def test_a_path_is_no_table(way: Way) -> None:
    said = refusal(lambda: way.sql(f"SELECT * FROM pyspark_log.`{way.path}`"))
    assert "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY" in said


def test_a_thread_without_an_active_session_finds_no_source_for_a_batch_write(way: Way) -> None:
    write = way.frame().select("value").write.format("pyspark_log").mode("append").option("topic", "in")

    with ThreadPoolExecutor(1) as thread:
        assert "[DATA_SOURCE_NOT_FOUND]" in str(thread.submit(write.save, way.path).exception())
        thread.submit(use_in_this_thread, way.spark).result()
        thread.submit(write.save, way.path).result()
