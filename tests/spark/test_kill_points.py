"""A machine, or one Python process, is lost at each point of a micro-batch: after the restart each row is there once.

The log is verified by `log_reader`, without Spark, against the input's rows and against Spark's offset log.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.log_reader import orphans, read_topic
from tests.support.rings import default
from tests.support.spark.faulty_source import (
    COMMITTED,
    COMMITTING,
    HANDING,
    PLANNING,
    READING,
    STAGED,
    STAGING,
    Trap,
    sequenced,
)
from tests.support.spark.kills import Query, driver

ROWS = 300
PARTITIONS = 4
KILLED_BATCH = 1

MakeQuery = Callable[..., Query]


def write(spark: SparkSession, path: str, first: int, end: int) -> None:
    """Write numbers into the topic `in`."""
    rows = spark.range(first, end, numPartitions=1)
    rows = rows.selectExpr("cast(id % 17 as string) key", "cast(id as string) value")
    writer = rows.write.format("pyspark_log").mode("append").option("num.partitions", PARTITIONS)
    writer.option("topic", "in").save(path)


@pytest.fixture
def make_query(spark: SparkSession, tmp_path: Path) -> MakeQuery:
    """Write the topic `in` and make a query from it to another topic, or to those that its rows name."""
    path = str(tmp_path / "log")
    write(spark, path, 0, ROWS)

    def made(target: str | None = "out", *, columns: tuple[str, ...] = ("key", "value")) -> Query:
        return Query(
            path,
            str(tmp_path / "checkpoint"),
            str(tmp_path / "trap"),
            {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"},
            {"num.partitions": str(PARTITIONS), **({"topic": target} if target else {})},
            list(columns),
        )

    return made


@dataclass(frozen=True)
class Left:
    """What a kill left: the newest batch that Spark has planned, that the topic has, that Spark calls done."""

    planned: int
    sequenced: int
    done: int
    orphans: bool
    """Whether staged rows lie around that no journal entry names."""


LEFT = {
    READING: Left(1, 0, 0, orphans=False),
    STAGING: Left(1, 0, 0, orphans=False),
    STAGED: Left(1, 0, 0, orphans=True),
    COMMITTING: Left(1, 0, 0, orphans=True),
    COMMITTED: Left(1, 1, 0, orphans=False),
}


def left_by(query: Query) -> Left:
    left_over = orphans(query.path, "out")
    return Left(query.newest("offsets"), query.sequenced_batch("out"), query.newest("commits"), bool(left_over))


def check_left(query: Query, point: str) -> None:
    found, expected = left_by(query), LEFT[point]
    # Other tasks of the batch may have been further than the one that died.
    assert (found.planned, found.sequenced, found.done) == (expected.planned, expected.sequenced, expected.done)
    assert found.orphans or not expected.orphans


@pytest.mark.parametrize("point", [READING, STAGING, STAGED, COMMITTING, COMMITTED])
def test_a_killed_python_process_fails_the_query_and_its_restart_writes_each_row_once(
    spark: SparkSession, make_query: MakeQuery, point: str
) -> None:
    query = make_query()
    if point == READING:
        query.source["maxRecordsOnDriver"] = "0"
    trap = Trap(query.trap)
    trap.set(point, signal.SIGKILL, KILLED_BATCH)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(point)
    check_left(query, point)
    query.run(spark)
    query.check_copied("in", "out")


@pytest.mark.parametrize("point", [PLANNING, HANDING])
def test_a_killed_planner_fails_the_query_and_its_restart_reads_the_rows_that_it_had_found_or_read(
    spark: SparkSession, make_query: MakeQuery, point: str
) -> None:
    query = make_query()
    trap = Trap(query.trap)
    trap.set(point, signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(point)
    query.run(spark)
    query.check_copied("in", "out")


@pytest.mark.parametrize("point", [STAGING, default(STAGED), COMMITTING, default(COMMITTED)])
@pytest.mark.timeout(300)
def test_a_killed_driver_is_replaced_by_one_that_writes_each_row_once(
    spark: SparkSession, make_query: MakeQuery, tmp_path: Path, point: str
) -> None:
    query = make_query()
    trap = Trap(query.trap)
    trap.set(point, signal.SIGSTOP, KILLED_BATCH)
    with driver([query], tmp_path / "driver.txt") as doomed:
        doomed.wait_for(lambda: trap.caught(point), point)
    check_left(query, point)
    query.run(spark)
    query.check_copied("in", "out")


def test_a_kill_between_the_entries_of_two_topics_leaves_each_topic_whole_and_the_restart_completes_the_batch(
    spark: SparkSession, make_query: MakeQuery
) -> None:
    query = make_query(
        target=None, columns=("key", "value", "concat('out', CAST(CAST(value AS STRING) AS INT) % 2) AS topic")
    )
    trap = Trap(query.trap)
    trap.set(sequenced("out0"), signal.SIGKILL, KILLED_BATCH)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(sequenced("out0"))
    assert (query.sequenced_batch("out0"), query.sequenced_batch("out1")) == (1, 0)
    query.run(spark)
    for parity in (0, 1):
        contents = read_topic(query.path, f"out{parity}")
        assert sorted(contents.numbers()) == list(range(parity, ROWS, 2))
        batches = contents.of_producer(query.id)
        for number in range(query.newest("commits") + 1):
            planned = {value: count for value, count in query.planned(number).items() if int(value or 0) % 2 == parity}
            assert batches[number].values == planned


def test_a_query_that_nobody_kills_leaves_nothing(spark: SparkSession, make_query: MakeQuery) -> None:
    query = make_query()
    query.run(spark)
    left = left_by(query)
    assert left == Left(left.planned, left.planned, left.planned, orphans=False)
