"""A typed topic with Parquet segments on three nodes evolves, while these are lost and rebuilt; no row is missing."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_log
from pyspark_log_coordinator.maintenance.topic_cleanup import clean_up_topic
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_storage.columns.column_ddl import parse
from tests.support.command_line import CommandLine
from tests.support.spark.lost_nodes import NODES, ThreeDisks
from tests.support.spark.rolled import roll

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.spark
ROWS = 20
"""Of a step; half of them in each partition."""


class Disks(ThreeDisks):
    """Topic t, of which a step writes rows, each with one column more or a wider one."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        super().__init__(folder)
        self.spark, self.folder = spark, folder
        config = TopicConfig(min_insync_replicas=2, retention_ms=UNLIMITED, segment_format="parquet")
        self.log.create_topic("t", 2, config, replication_factor=3, columns=parse("id SMALLINT"))

    def write(self, *columns: str, rolled: bool = True) -> None:
        """Append rows with acks=all; roll them, and publish the Delta tables of the nodes that are there."""
        frame = self.spark.range(ROWS).selectExpr("CAST(id % 2 AS INT) AS partition", *columns)
        frame.write.format("pyspark_log").mode("append").options(topic="t", mergeSchema="true").save(self.address)
        if rolled:
            for partition in (0, 1):
                roll(self, "t", partition, 99)
            self.publish()

    def publish(self) -> None:
        self.log.probe_nodes()
        clean_up_topic(self.handle("t"), failed=lambda *_: None)

    def table(self, node: str) -> deltalake.DeltaTable:
        [folder] = self.folders[node].glob("topics/t/*")
        return deltalake.DeltaTable(folder)

    def streamed(self, **options: str) -> list[tuple[int, int]]:
        """Return how many rows each batch has that a query is handed, and how many of their scans are Spark's own."""
        found: list[tuple[int, int]] = []

        def see(frame: DataFrame, _: int) -> None:
            found.append((len(places(frame)), native_scans(frame)))

        pyspark_log.foreach_batch(
            self.spark,
            self.address,
            "t",
            see,
            checkpoint=str(self.folder / "checkpoint"),
            options={"startingOffsets": "earliest", **options},
            trigger={"availableNow": True},
        ).awaitTermination()
        return found


def native_scans(frame: DataFrame) -> int:
    return frame._jdf.queryExecution().executedPlan().toString().count("FileScan parquet")


def places(frame: DataFrame) -> list[tuple[int, int, int]]:
    return sorted(frame.select("partition", "offset", "id").collect())


def expected(steps: int, first: int = 0) -> list[tuple[int, int, int]]:
    """Each step has the numbers from 0 on, in both partitions by turns."""
    half = ROWS // 2
    return [(p, offset, 2 * (offset % half) + p) for p in (0, 1) for offset in range(first, steps * half)]


@pytest.fixture
def disks(spark, tmp_path):
    return Disks(tmp_path, spark)


def test_a_topic_evolves_without_a_node_that_is_then_rebuilt_and_read_alone(spark, disks):
    disks.write("CAST(id AS SMALLINT) AS id")
    disks.write("CAST(id AS INT) AS id", "'b' AS name")
    lost = disks.handle("t").journal.state.partitions[0].leader
    left = [each for each in NODES if each != lost]
    assert disks.streamed() == [(2 * ROWS, 1)]
    disks.lose(lost)
    assert places(pyspark_log.read(spark, disks.address, "t")) == expected(2)
    disks.write("id", "'c' AS name", "named_struct('x', id) AS s")
    assert lost not in {each.leader for each in disks.handle("t").journal.state.partitions}
    disks.folders[lost].mkdir()
    cli = CommandLine(disks.address)
    cli.run("nodes", "renew", lost, "--yes")
    cli.run("node", "run", lost, "--once")
    cli.run("cluster", "migrate-journals", "--to", ",".join(NODES))
    disks.publish()
    for node in NODES:
        stored = disks.table(node).to_pyarrow_table()
        assert stored.num_rows == 3 * ROWS, f"node {node}"
        assert stored.schema.names[3:] == ["id", "name", "s"]
    disks.lose(left[0])
    disks.write("id", rolled=False)
    disks.lose(left[1])
    disks.folders[left[0]].with_suffix(".lost").rename(disks.folders[left[0]])  # for the journals' majority
    frame = pyspark_log.read(spark, disks.address, "t")
    assert native_scans(frame) == 1
    assert dict(frame.dtypes)["id"] == "bigint"
    assert places(frame) == expected(4)
    assert places(pyspark_log.replay(spark, disks.address, "t", {0: 7, 1: 7})) == expected(4, first=7)
    assert disks.streamed(maxOffsetsPerTrigger=str(ROWS)) == [(ROWS, 1), (ROWS, 0)]
