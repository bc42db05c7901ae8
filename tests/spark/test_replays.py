"""A micro-batch that Spark runs again: it reads the same rows, and they are in the log once.

What is read again is compared with what the first attempt had staged, which lies in files that no entry names.
"""

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.log_reader import orphans, read_topic
from tests.support.spark.faulty_source import COMMITTED, COMMITTING, Trap
from tests.support.spark.kills import Query

PARTITIONS = 3

MakeQuery = Callable[..., Query]
Write = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log")


@pytest.fixture
def write(spark: SparkSession, path: str) -> Write:
    """Write numbers into a topic."""

    def written(topic: str, first: int, end: int) -> None:
        rows = spark.range(first, end, numPartitions=1)
        rows = rows.selectExpr("cast(id % 17 as string) key", "cast(id as string) value")
        writer = rows.write.format("pyspark_log").mode("append").option("num.partitions", PARTITIONS)
        writer.option("topic", topic).save(path)

    return written


@pytest.fixture
def make_query(path: str, tmp_path: Path) -> MakeQuery:
    """Make a query from all topics whose names begin with `in`, to the topic `out`, 100 rows at a time."""

    def made(**source: str) -> Query:
        return Query(
            path,
            str(tmp_path / "checkpoint"),
            str(tmp_path / "trap"),
            {"subscribePattern": "in.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100", **source},
            {"topic": "out", "num.partitions": str(PARTITIONS)},
        )

    return made


def fail_at(spark: SparkSession, query: Query, point: str, batch: int) -> None:
    """Run a query until the process at `point` of a micro-batch is killed."""
    trap = Trap(query.trap)
    trap.set(point, signal.SIGKILL, batch)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(point)


def staged(query: Query) -> Counter[bytes | None]:
    """The values that were staged and that no entry names."""
    return sum(orphans(query.path, "out").values(), Counter())


@pytest.mark.parametrize("batch", [0, 1])
def test_a_replay_reads_the_same_rows_though_rows_and_topics_have_come_since(
    spark: SparkSession, make_query: MakeQuery, write: Write, batch: int
) -> None:
    write("in", 0, 250)
    query = make_query()
    fail_at(spark, query, COMMITTING, batch)
    attempted = staged(query)
    assert attempted == query.planned(batch)
    assert attempted
    write("in", 250, 300)
    write("in-another", 300, 400)
    query.run(spark)
    contents = query.check_batches("out")
    assert contents.of_producer(query.id)[batch].values == attempted
    assert sorted(contents.numbers()) == list(range(400))


@pytest.mark.default
def test_a_batch_that_spark_has_forgotten_is_not_written_twice(
    spark: SparkSession, make_query: MakeQuery, write: Write
) -> None:
    write("in", 0, 250)
    query = make_query()
    query.run(spark)
    before = read_topic(query.path, "out")
    newest = query.newest("commits")
    for name in (str(newest), f".{newest}.crc"):
        (Path(query.checkpoint) / "commits" / name).unlink(missing_ok=True)
    write("in", 250, 300)
    query.run(spark)
    assert query.newest("commits") > newest
    contents = query.check_batches("out")
    assert contents.batches[: len(before.batches)] == before.batches
    assert sorted(contents.numbers()) == list(range(300))


@pytest.mark.default
def test_the_same_batch_with_another_number_of_rows_is_refused(
    spark: SparkSession, make_query: MakeQuery, write: Write
) -> None:
    write("in", 0, 250)
    query = make_query()
    fail_at(spark, query, COMMITTED, 1)
    before = read_topic(query.path, "out")
    changed = replace(query, where="CAST(CAST(value AS STRING) AS INT) % 2 = 0")
    with pytest.raises(StreamingQueryException, match=r"sends batch 1 again with \d+ rows, but \d+ are in the log"):
        changed.run(spark)
    assert read_topic(query.path, "out") == before
