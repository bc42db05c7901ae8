"""Streaming queries in a group: Spark's commits reach the group, and rewinds survive kills."""

import signal
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.opening import open_log
from pyspark_log.reading import groups
from pyspark_log.ui import content, pages
from pyspark_log_coordinator.audit.timeline import Scope
from tests.support.log_reader import read_topic
from tests.support.spark.faulty_source import COMMITTED, COMMITTING, STAGED, Trap
from tests.support.spark.kills import Query

ROWS = 300
PARTITIONS = 2


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    """A query in group g, from topic `in`, which has numbers, to topic `out`."""
    path = str(tmp_path / "log")
    rows = spark.range(0, ROWS, numPartitions=1)
    rows = rows.selectExpr("cast(id as string) value", f"cast(id % {PARTITIONS} as int) partition")
    writer = rows.write.format("pyspark_log").mode("append").option("num.partitions", PARTITIONS)
    writer.option("topic", "in").save(path)
    return Query(
        path,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "trap"),
        {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100", "group.id": "g"},
        {"topic": "out", "num.partitions": str(PARTITIONS)},
    )


def committed(query: Query) -> dict[int, int]:
    log = open_log(query.path)
    return {each.partition: each.committed for each in groups.lags(log, log.group("g").journal.state)}


def rewind(query: Query, offsets: dict[int, int]) -> None:
    groups.reset(open_log(query.path), "g", {("in", number): offset for number, offset in offsets.items()})


def copies(query: Query) -> dict[int, int]:
    """How often each number is in the target."""
    found = read_topic(query.path, "out").numbers()
    return {number: found.count(number) for number in range(ROWS)}


@pytest.mark.default
def test_all_that_a_query_has_read_is_committed_when_it_ends(spark: SparkSession, query: Query) -> None:
    query.run(spark)
    assert committed(query) == {0: 150, 1: 150}
    query.check_batches("out")
    assert set(copies(query).values()) == {1}


def test_the_page_shows_what_a_query_has_written_and_read(spark: SparkSession, query: Query) -> None:
    query.target["queryName"] = "numbers"
    query.run(spark)
    log = open_log(query.path)
    view = Past(log).read(Watch(log, query.path).look())
    found = content.queries(view, {})
    [writer] = found["writers"]
    assert (writer["query"], writer["topic"], writer["batch"], writer["rows"]) == ("numbers", "out", 2, 100)
    batches = [each for each in view.past[Scope.TOPIC, "out"].moments if each.producer]
    assert [(each.producer, each.rows) for each in batches] == [("numbers", 100)] * 3
    assert batches[-1].words == "batch 2 of 'numbers': 100 rows (partition 0 from 100 to 199)"
    assert ">numbers</th>" in pages.render("queries", view=view, **found)
    assert view.groups["g"].lag == 0
    assert [each.group_id for each in found["readers"]] == ["g"]
    assert [each.rows for each in found["known"].values()] == [300]


@pytest.mark.default
def test_a_stopped_query_goes_on_where_the_group_was_rewound_to(spark: SparkSession, query: Query) -> None:
    query.run(spark)
    rewind(query, {0: 100})
    query.run(spark)
    query.check_batches("out")
    assert copies(query) == {number: 2 if number % 2 == 0 and number >= 200 else 1 for number in range(ROWS)}
    assert committed(query) == {0: 150, 1: 150}


@pytest.mark.parametrize("point", [STAGED, COMMITTING, COMMITTED])
def test_a_batch_after_a_rewind_that_is_killed_is_repeated_exactly_and_later_rewinds_come_after_it(
    spark: SparkSession, query: Query, point: str
) -> None:
    query.run(spark)
    killed = query.newest("commits") + 1
    rewind(query, {0: 100})
    trap = Trap(query.trap)
    trap.set(point, signal.SIGKILL, killed)
    with pytest.raises(StreamingQueryException):
        query.run(spark)
    assert trap.caught(point)
    rewind(query, {1: 140})
    query.run(spark)
    query.check_batches("out")
    assert query.planned(killed) == {str(number).encode(): 1 for number in range(200, ROWS, 2)}
    again = {*range(200, ROWS, 2), *range(281, ROWS, 2)}
    assert copies(query) == {number: 2 if number in again else 1 for number in range(ROWS)}
