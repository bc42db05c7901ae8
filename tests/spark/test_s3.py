"""Spark on a log in S3: topics on two disks and a bucket, and credentials that nobody finds afterwards."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_log import Consumer, Producer
from pyspark_log_storage.storage_options import ENVIRONMENT_VARIABLE
from tests.command_line import CommandLine
from tests.servers.running import Server

FORMAT = "pyspark_log"


class Cloud:
    """A cluster whose root is in a bucket, with its storage options."""

    def __init__(self, server: Server, bucket: str) -> None:
        self.server = server
        self.bucket = bucket
        self.path = f"s3a://{bucket}/{uuid.uuid4().hex}/log"
        self.options = {"storage_options": json.dumps(server.options)}

    def stored(self) -> dict[str, bytes]:
        """Return all objects in the bucket."""
        client = self.server.client()
        found = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [each["Key"] for page in found for each in page.get("Contents", ())]
        return {key: client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}


@pytest.fixture
def cloud(ceph: Server, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    return Cloud(ceph, ceph.new_bucket())


def test_a_log_on_two_disks_and_a_bucket_from_end_to_end(
    spark: SparkSession, cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = CommandLine(cloud.path)  # type: ignore[arg-type]
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, cloud.options["storage_options"])
    command.out("topics", "create", "begun")
    command.out("nodes", "add", tmp_path / "disk1")
    command.out("nodes", "add", tmp_path / "disk2")
    command.out("topics", "create", "in", "--partitions", "4", "--replication-factor", "3")
    command.out("topics", "create", "out", "--partitions", "2", "--replication-factor", "3")
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)

    rows = spark.range(0, 5000, numPartitions=3).selectExpr("CAST(id AS STRING) value", "CAST(id AS STRING) key")
    rows.write.format(FORMAT).mode("append").options(topic="in", **cloud.options).save(cloud.path)
    stream = spark.readStream.format(FORMAT).options(
        subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=2000, **cloud.options
    )
    writer = stream.load(cloud.path).select("key", "value").writeStream.format(FORMAT)
    writer = writer.options(topic="out", checkpointLocation=str(tmp_path / "checkpoint"), **cloud.options)
    query = writer.trigger(availableNow=True).start(cloud.path)
    query.awaitTermination()

    with Producer(cloud.path, storage_options=cloud.server.options) as producer:
        producer.send("out", b"5000").result()
    read = spark.read.format(FORMAT).options(subscribe="out", **cloud.options).load(cloud.path)
    assert sorted(int(row.value) for row in read.collect()) == list(range(5001))
    with Consumer(cloud.path, {"storage_options": cloud.options["storage_options"]}) as consumer:
        consumer.assign(consumer.partitions("out"), "earliest")
        assert len(consumer.poll(timeout_ms=10_000)) == 500

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, cloud.options["storage_options"])
    (described,) = command.documents("topics", "describe", "out")
    assert all(sorted(each["isr"]) == ["0", "1", "2"] for each in described["partitions"])


def test_nobody_finds_the_credentials_afterwards(
    spark: SparkSession,
    cloud: Cloud,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    seen: list[Any] = []
    rows = spark.range(10).selectExpr("CAST(id AS STRING) value")
    rows.write.format(FORMAT).mode("append").options(topic="in", **cloud.options).save(cloud.path)
    read = spark.read.format(FORMAT).options(subscribe="in", **cloud.options).load(cloud.path)
    assert read.count() == 10
    stream = spark.readStream.format(FORMAT).options(subscribe="in", startingOffsets="earliest", **cloud.options)
    loaded = stream.load(cloud.path)
    for frame in (read, loaded):
        frame.explain("extended")
        seen.append(frame._jdf.queryExecution().logical().toString())
    seen.append(read._jdf.queryExecution().toString())
    writer = loaded.select("value").writeStream.format(FORMAT).options(topic="out", **cloud.options)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(cloud.path)
    query.awaitTermination()
    query.explain(extended=True)
    seen += [query.recentProgress, query.status, [event.json for event in query.recentProgress]]
    wrong = {**cloud.server.options, "key": "unknown"}
    reader = spark.read.format(FORMAT).options(subscribe="in", storage_options=json.dumps(wrong))
    with pytest.raises(PySparkException) as caught:
        reader.load(cloud.path).count()
    assert "InvalidAccessKeyId" in str(caught.value)
    seen.append(str(caught.value))
    with pytest.raises(PySparkException) as caught:
        spark.read.format(FORMAT).options(subscribe="in", storage_options=cloud.server.secret).load(cloud.path)
    seen += [str(caught.value), caplog.text, *capfd.readouterr(), cloud.stored()]
    for folder, _, names in os.walk(tmp_path):
        seen += [(Path(folder) / name).read_bytes() for name in names]
    assert cloud.server.secret not in repr(seen)
