"""A node's disk becomes read-only, is unmounted, or comes back as an old copy, under a running query.

The query goes on, the node is in sync only while it has every row, and at the end each row is on each node once.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.stores.addresses import open_store
from tests.support.direct import read
from tests.support.spark.lost_nodes import NODES, ThreeDisks, wait_for
from tests.support.spark.spark_log import FORMAT, SparkLog

PARTITIONS = 3
"""One for each node: with three each leads one."""
ROWS = 30_000
"""More than are written while anything happens here."""
BATCH_ROWS = 50
BATCH_SECONDS = 0.2
A_WHILE = 3
"""Batches."""

pytestmark = pytest.mark.timeout(400)


class Mounts(ThreeDisks):
    """Three nodes, each a mount; the journals are on the first, whose disk stays well."""

    def __init__(self, folder: Path) -> None:
        self.folders = {node: folder / f"disk-{node}" for node in NODES}
        self._disks = {node: folder / f"platter-{node}" for node in NODES}
        for node in NODES:
            self.folders[node].mkdir()
            self._disks[node].mkdir()
            self.mount(node)
        self.address = str(self.folders["0"])
        self.log = Log(open_store(self.address), real_environment())
        self.log.open(create=True)
        for node in NODES[1:]:
            node_admin.join(self.log, str(self.folders[node]))

    def mount(self, node: str) -> None:
        run("mount", "--bind", self._disks[node], self.folders[node])

    def unmount(self, node: str) -> None:
        run("umount", "--lazy", self.folders[node])

    def make(self, node: str, how: str) -> None:
        """Make a node's disk "ro" or "rw"."""
        run("mount", "-o", f"remount,bind,{how}", self.folders[node])

    def back_up(self, node: str) -> Path:
        """Return a copy of a node's disk as it is now."""
        backup = self._disks[node].with_suffix(".backup")
        shutil.copytree(self._disks[node], backup, ignore=shutil.ignore_patterns(".tmp"))
        return backup

    def restore(self, node: str, backup: Path) -> None:
        """Put a copy in the place of a node's disk."""
        self.unmount(node)
        self._disks[node] = backup
        self.mount(node)

    def state(self) -> Topic:
        return self.handle("out").journal.state

    def batches(self) -> int:
        """How many batches are in the log."""
        return max((each.batch_id + 1 for each in self.state().producers.values()), default=0)

    def in_sync(self, node: str) -> list[int]:
        """The partitions in whose ISR a node is."""
        return [number for number, each in enumerate(self.state().partitions) if node in each.isr]

    def fill_up(self, node: str) -> None:
        """Bring a node up to date, as `pyspark-log node run NODE` does, until it is in sync again."""

        def is_in_sync() -> bool:
            assert Follower(self.log, node).round().failures == ()
            return len(self.in_sync(node)) == PARTITIONS

        wait_for(is_in_sync, f"node {node} in sync")


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Mounts]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    tried = tmp_path / "tried"
    tried.mkdir()
    if subprocess.run(["mount", "--bind", tried, tried], check=False).returncode:
        pytest.skip("this place allows no mounts")
    run("umount", tried)
    mounts = Mounts(tmp_path)
    yield mounts
    for folder in mounts.folders.values():
        subprocess.run(["umount", "--lazy", folder], check=False)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path, target: Mounts) -> Iterator[StreamingQuery]:
    """A query that writes small batches all the time."""
    source = SparkLog(spark, tmp_path)
    source.create("in")
    source.append("in", {0: [b"%d" % number for number in range(ROWS)]})
    target.create("out", PARTITIONS)
    assert sorted(str(each.leader) for each in target.state().partitions) == list(NODES)
    rows = source.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_ROWS)
    writer = rows.selectExpr("value AS key", "value").writeStream.format(FORMAT).option("topic", "out")
    writer = writer.trigger(processingTime=f"{BATCH_SECONDS} seconds")
    started = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(target.address)
    yield started
    started.stop()


def test_a_disk_in_trouble_is_in_sync_only_with_every_row_and_costs_the_query_nothing(
    target: Mounts, query: StreamingQuery
) -> None:
    def wait_for_batches(count: int, without: str = "") -> None:
        """Wait for so many more batches; a node is out of all ISRs meanwhile."""
        until = target.batches() + count

        def is_time() -> bool:
            assert query.isActive, query.exception()
            assert not target.in_sync(without)
            return target.batches() >= until

        wait_for(is_time, f"{count} batches")

    def wait_until_out_of_sync(node: str) -> None:
        wait_for(lambda: not target.in_sync(node) or not query.isActive, f"node {node} out of sync")

    wait_for_batches(A_WHILE)
    handle = target.handle("out")
    (producer,) = handle.journal.state.producers.values()
    # One entry made the topic; since then each batch, of three partitions on three nodes, was one.
    assert handle.journal.number == 1 + producer.batch_id + 1

    target.make("2", "ro")
    wait_until_out_of_sync("2")
    wait_for_batches(A_WHILE, without="2")
    target.make("2", "rw")
    target.fill_up("2")

    target.unmount("1")
    wait_until_out_of_sync("1")
    wait_for_batches(A_WHILE, without="1")
    target.mount("1")
    target.fill_up("1")

    backup = target.back_up("2")
    wait_for_batches(A_WHILE)
    target.restore("2", backup)
    wait_until_out_of_sync("2")
    # Nobody follows for it here: the query itself copies what it lacks, in passing.
    wait_for(lambda: len(target.in_sync("2")) == PARTITIONS or not query.isActive, "node 2 in sync")
    assert replica_file.absent(target.handle("out"), "2") == []
    wait_for_batches(1)
    query.stop()

    check_each_row_is_on_each_node(target)


def check_each_row_is_on_each_node(target: Mounts) -> None:
    for node in NODES:
        target.fill_up(node)
        assert replica_file.absent(target.handle("out"), node) == []
    report = verify.verify(target.handle("out"))  # it reads every copy
    assert report.sound, report.findings
    assert len(report.findings) == 0
    written = sorted(int(row["value"]) for row in read(target.address, subscribe="out"))
    assert written == list(range(len(written)))
    assert len(written) >= BATCH_ROWS * A_WHILE * 4
