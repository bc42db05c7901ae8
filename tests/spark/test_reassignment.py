"""A topic, and the journals, move to other nodes under running queries, and the old nodes go for good."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.log import node_admin
from tests.support.spark.lost_nodes import ThreeDisks, wait_for
from tests.support.spark.spark_log import FORMAT, SparkLog

ROWS = 12_000
BATCH_ROWS = 100
OLD, STAYS, NEW = ("0", "1"), "2", ("3", "4")

pytestmark = pytest.mark.timeout(400)


class FiveDisks(ThreeDisks):
    """Three nodes with the topic and the journals, and two that are empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for node in NEW:
            self.folders[node] = folder / f"disk-{node}"
            self.folders[node].mkdir()
            node_admin.join(self.log, str(self.folders[node]))


def command(address: str, *arguments: str) -> None:
    """Run a command of the command line."""
    program = [sys.executable, "-m", "pyspark_log.cli", *arguments, "--path", address]
    subprocess.run(program, check=True, timeout=200, stdin=subprocess.DEVNULL)


def test_queries_go_on_while_topic_and_journals_move_and_the_old_nodes_go(spark: SparkSession, tmp_path):
    source, disks = SparkLog(spark, tmp_path), FiveDisks(tmp_path)
    source.create("in")
    source.append("in", {0: [b"%d" % number for number in range(ROWS)]})
    disks.create("out", 3)
    first = disks.address
    found: list[int] = []

    rows = source.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_ROWS)
    writing = rows.selectExpr("value AS key", "value").writeStream.format(FORMAT).option("topic", "out")
    writing = writing.option("checkpointLocation", str(tmp_path / "writing"))
    read = spark.readStream.format(FORMAT).option("subscribe", "out").option("startingOffsets", "earliest").load(first)
    reading = read.select("value").writeStream.option("checkpointLocation", str(tmp_path / "reading"))
    reading = reading.foreachBatch(lambda batch, _: found.extend(int(row.value) for row in batch.collect()))

    queries = [writing.start(first), reading.start()]
    try:

        def go_on(what: str, more: int) -> None:
            """Wait until so many rows more were written and read."""
            written, seen = disks.rows("out"), len(found)
            assert written < ROWS - more, "all was written before everything had moved"
            ended = [query for query in queries if not query.isActive]
            wait_for(lambda: (disks.rows("out") >= written + more and len(found) >= seen + more) or bool(ended), what)
            assert [query.exception() for query in queries] == [None, None]

        go_on("the first batches", BATCH_ROWS)
        nodes = ",".join((STAYS, *NEW))
        command(first, "topics", "reassign", "out", "--to-nodes", nodes)
        go_on("batches on the new nodes", BATCH_ROWS)
        command(first, "cluster", "migrate-journals", "--to", nodes)
        go_on("batches with the journals on the new nodes", BATCH_ROWS)
        for node in OLD:
            command(first, "nodes", "fence", node)
            command(first, "nodes", "remove", node, "--yes")
            disks.lose(node)
        go_on("batches without the old nodes", 10 * BATCH_ROWS)
        wait_for(lambda: len(found) >= ROWS or not all(query.isActive for query in queries), "all rows")
        assert [query.exception() for query in queries] == [None, None]
    finally:
        for query in queries:
            query.stop()
    assert sorted(found) == list(range(ROWS))
    for partition in disks.handle("out").journal.state.partitions:
        assert sorted(partition.isr) == sorted(partition.replicas) == [STAYS, *NEW]
    assert {each.node for each in disks.log.journals.nodes.nodes} == {STAYS, *NEW}
    assert verify.verify(disks.handle("out")).sound
