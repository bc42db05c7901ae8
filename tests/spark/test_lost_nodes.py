"""A node is lost for good in the middle of Spark's queries: they go on, and what was acknowledged is there, once."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark.lost_nodes import HANGS_S, NODES, ThreeDisks, TwoDisksAndABucket, Values, wait_for
from tests.support.spark.spark_log import FORMAT, SparkLog

ROWS = 6_000
BATCH_ROWS = 200
PARTITIONS = 3
"""One for each node: with three each leads one."""
BIG_ROWS, BIG_BYTES, BIG_FILES = 40_000, 1_000, 20
"""More than a reading task, and those that take its rows, hold in memory at once."""

pytestmark = pytest.mark.timeout(400)


def numbers(values: Values) -> list[int]:
    """The rows' values, in order."""
    return sorted(int(value) for each in values for value in each)


@pytest.fixture
def cluster(request, tmp_path) -> ThreeDisks:
    if request.param == "disks":
        return ThreeDisks(tmp_path)
    return TwoDisksAndABucket(tmp_path, request.getfixturevalue("ceph"))


@pytest.mark.parametrize(
    ("cluster", "node", "is_replaced"),
    [
        ("disks", "0", False),
        ("disks", "1", True),
        ("disks", "2", False),
        ("two disks and a bucket", "0", False),
        ("two disks and a bucket", "2", False),
    ],
    indirect=["cluster"],
)
def test_a_stream_goes_on_without_any_one_node_and_what_it_wrote_is_there_once(
    spark: SparkSession, tmp_path, cluster, node, is_replaced
):
    source, target = SparkLog(spark, tmp_path), cluster
    source.create("in")
    source.append("in", {0: [b"%d" % number for number in range(ROWS)]})
    target.create("out", PARTITIONS)
    led = [each.leader for each in target.handle("out").journal.state.partitions]
    assert sorted(led) == list(NODES)
    assert node in {each.node for each in target.log.journals.nodes.nodes}
    rows = source.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_ROWS)
    writer = rows.selectExpr("value AS key", "value").writeStream.format(FORMAT).options(topic="out", **target.options)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(target.address)
    try:
        wait_for(lambda: target.rows("out") >= ROWS // 10 or not query.isActive, "the first batches")
        (target.empty if is_replaced else target.lose)(node)
        began = time.monotonic()
        before = target.rows("out")
        assert before < ROWS, "the node was lost when all was written"
        wait_for(lambda: goes_on_without(target, node) or not query.isActive, "a batch without the node")
        took = time.monotonic() - began
        print(f"\nnode {node} lost at {before} rows; the next batch was acknowledged {took:.2f} s later")
        wait_for(lambda: target.rows("out") >= ROWS or not query.isActive, "all rows")
        assert query.exception() is None
    finally:
        query.stop()
    state = target.handle("out").journal.state
    assert state.suspicions == 0, "somebody waited for a time-out: with acks=all the next batch goes on by itself"
    left = [each for each in NODES if each != node]
    for partition in state.partitions:
        assert sorted(partition.isr) == left
        assert partition.leader in left
    written = [target.values_on("out", each) for each in left]
    assert written[0] == written[1]
    assert numbers(written[0]) == list(range(ROWS))


def goes_on_without(target: ThreeDisks, node: str) -> bool:
    """Whether a batch has put a node out of the ISR."""
    return any(node not in each.isr for each in target.handle("out").journal.state.partitions)


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory) -> Iterator[tuple[ThreeDisks, SparkSession]]:
    """A topic with many large rows, each with its number in front, in one partition."""
    disks = ThreeDisks(tmp_path_factory.mktemp("filled"))
    disks.create("big", 1)
    value = f"concat(cast(id as string), '/', repeat(cast(rand(7) as string), {BIG_BYTES // 20}))"
    for number in range(BIG_FILES):
        some = spark.range(number * BIG_ROWS // BIG_FILES, (number + 1) * BIG_ROWS // BIG_FILES, numPartitions=1)
        frame = some.selectExpr(f"{value} value")
        frame.write.format(FORMAT).mode("append").option("topic", "big").save(disks.address)
    return disks, spark


@pytest.fixture
def disks(filled) -> Iterator[ThreeDisks]:
    """The nodes, which are whole again afterwards."""
    three, _ = filled
    yield three
    for folder in three.folders.values():
        lost = folder.with_suffix(".lost")
        if lost.exists():
            lost.rename(folder)


def lost_on_the_way(disks: ThreeDisks, frame: DataFrame) -> DataFrame:
    """The frame's numbers; the first rows that come take away the disk of the partition's leader."""
    leader = disks.handle("big").journal.state.partitions[0].leader
    assert leader is not None
    folder = disks.folders[leader]
    lost = folder.with_suffix(".lost")

    def lose(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not lost.exists():
                folder.rename(lost)
            yield batch

    head = "cast(split(cast(value as string), '/')[0] as long) number"
    return frame.select("value").mapInArrow(lose, "value binary").selectExpr(head)


def test_a_stream_reader_goes_on_when_the_node_that_it_reads_is_lost_in_the_middle(disks, spark, tmp_path):
    stream = spark.readStream.format(FORMAT).option("subscribe", "big").option("startingOffsets", "earliest")
    frame = lost_on_the_way(disks, stream.option("maxOffsetsPerTrigger", BIG_ROWS // 4).load(disks.address))
    found: list[list[int]] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.append([row.number for row in batch.collect()]))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert writer.start().awaitTermination(HANGS_S)
    assert [number for batch in found for number in batch] == list(range(BIG_ROWS))
    assert len(found) > 2
    assert sum(folder.exists() for folder in disks.folders.values()) == len(NODES) - 1
