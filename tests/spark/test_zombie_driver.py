"""A driver that was stopped between staging and commit, and goes on after another one has taken its place."""

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.log_reader import entries
from tests.support.spark.faulty_source import COMMITTING, Trap
from tests.support.spark.kills import Query, driver, wait_for

ROWS = 300
PARTITIONS = 4
STOPPED_BATCH = 1


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    """A query from topic `in`, which has rows, to topic `out`."""
    path = str(tmp_path / "log")
    rows = spark.range(0, ROWS, numPartitions=1).selectExpr("cast(id % 17 as string) key", "cast(id as string) value")
    writer = rows.write.format("pyspark_log").mode("append").option("num.partitions", PARTITIONS)
    writer.option("topic", "in").save(path)
    return Query(
        path,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "trap"),
        {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"},
        {"topic": "out", "num.partitions": str(PARTITIONS)},
    )


@pytest.mark.default
@pytest.mark.timeout(300)
def test_what_a_zombie_driver_had_staged_is_refused_after_another_took_over(
    spark: SparkSession, query: Query, tmp_path: Path
) -> None:
    trap = Trap(query.trap)
    trap.set(COMMITTING, signal.SIGSTOP, STOPPED_BATCH)
    with driver([query], tmp_path / "zombie.txt") as zombie:
        zombie.wait_for(lambda: trap.caught(COMMITTING), "the commit")
        zombie.signal(signal.SIGSTOP)
        assert query.sequenced_batch("out") == STOPPED_BATCH - 1
        query.run(spark)
        before = entries(query.path, "out")
        assert query.sequenced_batch("out") > STOPPED_BATCH
        zombie.signal(signal.SIGCONT)
        wait_for(zombie.ended, "the zombie's end")
        assert trap.resumed(COMMITTING)
        assert "was replaced by a newer run" in zombie.output
    assert entries(query.path, "out") == before
    query.check_copied("in", "out")
