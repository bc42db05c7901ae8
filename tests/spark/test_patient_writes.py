"""Every in-sync node is away for some seconds while Spark writes: the batch waits, and each row is there once."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.direct import read
from tests.support.spark.lost_nodes import ThreeDisks, wait_for
from tests.support.spark.spark_log import FORMAT, SparkLog

AWAY_S = 3
ROWS = 3_000

pytestmark = pytest.mark.timeout(400)


def take_away(disks: list[str]) -> None:
    for disk in disks:
        Path(disk).rename(f"{disk}.away")


def bring_back(disks: list[str]) -> None:
    for disk in disks:
        Path(f"{disk}.away").rename(disk)


@pytest.fixture
def target(tmp_path: Path) -> ThreeDisks:
    made = ThreeDisks(tmp_path)
    made.create("out", 2)
    return made


def written(target: ThreeDisks) -> list[int]:
    return sorted(int(row["value"]) for row in read(target.address, subscribe="out"))


def folders(target: ThreeDisks) -> list[str]:
    return [str(each) for each in target.folders.values()]


def test_a_query_goes_on_when_all_nodes_were_away(spark: SparkSession, tmp_path: Path, target: ThreeDisks) -> None:
    source, disks = SparkLog(spark, tmp_path), folders(target)
    source.create("in")
    source.append("in", {0: [b"%d" % number for number in range(ROWS)]})
    rows = source.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=100)
    writer = rows.select("value").writeStream.format(FORMAT).option("topic", "out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(target.address)
    try:
        wait_for(lambda: target.rows("out") >= ROWS // 10 or not query.isActive, "the first batches")
        before = target.rows("out")
        take_away(disks)
        time.sleep(AWAY_S)
        bring_back(disks)
        wait_for(lambda: target.rows("out") >= ROWS or not query.isActive, "all rows")
        assert query.exception() is None
    finally:
        query.stop()
    assert before < ROWS, "the nodes went away when all was written"
    assert written(target) == list(range(ROWS))
