"""The S3 server is killed and started again while queries write to it: nothing is lost, and nothing is there twice."""

import itertools
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.gateway import Gateway
from tests.servers.running import Server
from tests.support.spark.lost_nodes import wait_for
from tests.support.spark.spark_log import FORMAT, SparkLog

ROWS = 1_500
BATCH_ROWS = 100
KILLS = 2


@pytest.fixture
def gateway(ceph: Server) -> Iterator[Gateway]:
    made = Gateway(ceph)
    made.start()
    yield made
    made.kill()


def test_a_query_goes_on_when_the_server_is_killed_in_the_middle_and_started_again(
    spark: SparkSession, ceph: Server, gateway: Gateway, tmp_path: Path
) -> None:
    source = SparkLog(spark, tmp_path)
    source.create("in")
    source.append("in", {0: [b"%d" % number for number in range(ROWS)]})
    path = f"s3://{ceph.new_bucket()}/{uuid.uuid4().hex}"
    options = StorageOptions.given(ceph.options)  # the test itself looks past the gateway that is killed
    log = Log(open_store(path, options), real_environment(), open_node=lambda url: open_store(url, options))
    log.open(create=True)
    log.create_topic("out", 2)

    def written() -> int:
        state = log.topic("out").journal.refresh()
        return sum(each.high_watermark for each in state.partitions)

    rows = source.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_ROWS)
    writer = rows.selectExpr("value AS key", "value").writeStream.format(FORMAT)
    writer = writer.options(topic="out", storage_options=json.dumps(gateway.server.options))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(path)
    try:
        for kill in range(KILLS):
            seen = written()
            wait_for(lambda seen=seen: written() > seen or not query.isActive, "another batch")  # type: ignore[misc]
            gateway.kill()
            assert written() < ROWS, f"all was written before kill {kill}"
            gateway.start()
        wait_for(lambda: written() >= ROWS or not query.isActive, "all rows")
        assert query.exception() is None
    finally:
        query.stop()
    read = spark.read.format(FORMAT).options(subscribe="out", storage_options=json.dumps(ceph.options)).load(path)
    found = [(row.partition, row.offset, int(row.value)) for row in read.collect()]
    assert sorted(value for *_, value in found) == list(range(ROWS))
    for _, group in itertools.groupby(sorted(found), lambda each: each[0]):
        values = [value for *_, value in group]
        assert values == sorted(values), "the order of a key was changed"
