"""Spark on a log in S3: topics on two disks and a bucket, and credentials that nobody finds afterwards."""

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_log import Consumer, Producer
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE
from tests.servers.running import Server
from tests.support.command_line import CommandLine
from tests.support.evidence import Evidence
from tests.support.rings import default

FORMAT = "pyspark_log"
SPARKS = "org.apache.spark"
PRINTED = "the JVM prints here"
TOKEN = "canary-token+3f/5a=="
"""A session token. Ceph's server does not look at it."""


class Cloud:
    """A cluster whose root is in a bucket, with its storage options."""

    def __init__(self, server: Server, bucket: str) -> None:
        self.server = server
        self.bucket = bucket
        self.path = f"s3a://{bucket}/{uuid.uuid4().hex}/log"
        self.login = {**server.options, "token": TOKEN}
        self.options = {"storage_options": json.dumps(self.login)}

    def stored(self) -> dict[str, bytes]:
        """Return all objects in the bucket."""
        client = self.server.client()
        found = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [each["Key"] for page in found for each in page.get("Contents", ())]
        return {key: client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}


@pytest.fixture
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A bucket of Ceph's, or of the server that a test names."""
    server: Server = request.getfixturevalue(getattr(request, "param", "ceph"))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    return Cloud(server, server.new_bucket())


@pytest.mark.parametrize("cloud", [default("moto"), "ceph"], indirect=True)
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

    with Producer(cloud.path, storage_options=cloud.login) as producer:
        producer.send("out", b"5000").result()
    read = spark.read.format(FORMAT).options(subscribe="out", **cloud.options).load(cloud.path)
    assert sorted(int(row.value) for row in read.collect()) == list(range(5001))
    with Consumer(cloud.path, {"storage_options": cloud.options["storage_options"]}) as consumer:
        consumer.assign(consumer.partitions("out"), "earliest")
        assert len(consumer.poll(timeout_ms=10_000)) == 500

    monkeypatch.setenv(ENVIRONMENT_VARIABLE, cloud.options["storage_options"])
    (described,) = command.documents("topics", "describe", "out")
    assert all(sorted(each["isr"]) == ["0", "1", "2"] for each in described["partitions"])


class JvmLog:
    """What Spark's JVM and its Python workers print, and what Spark logs, from DEBUG on."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._jvm, self._file = spark._jvm, folder / "jvm.log"
        core = self._jvm.org.apache.logging.log4j.core
        layout = core.layout.PatternLayout.newBuilder().withPattern("%p %c %m%n%ex").build()
        builder = core.appender.FileAppender.newBuilder().withFileName(str(self._file)).setName("canary")
        self._appender = builder.setLayout(layout).build()
        self._appender.start()
        self._logger = self._jvm.org.apache.logging.log4j.LogManager.getContext(False).getLogger(SPARKS)
        self._before = self._logger.getLevel()
        self._logger.addAppender(self._appender)
        core.config.Configurator.setLevel(SPARKS, self._jvm.org.apache.logging.log4j.Level.DEBUG)
        self._stderr = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/fd/2")

    def close(self) -> None:
        core = self._jvm.org.apache.logging.log4j.core
        core.config.Configurator.setLevel(SPARKS, self._before)
        self._logger.removeAppender(self._appender)
        self._appender.stop()

    def add_to(self, evidence: Evidence) -> None:
        """Raise `AssertionError` if there is nothing: it would be looked for in the wrong place."""
        logged = self._file.read_bytes()
        assert b"DEBUG org.apache.spark" in logged
        evidence.add("log of the JVM", logged)
        if self._stderr.is_file():  # otherwise pytest captures nothing (-s)
            self._jvm.System.err.println(PRINTED)
            printed = self._stderr.read_bytes()
            assert PRINTED.encode() in printed
            evidence.add("stderr of the JVM and of Python workers", printed)


@pytest.fixture
def jvm_log(spark: SparkSession, tmp_path: Path) -> Iterator[JvmLog]:
    log = JvmLog(spark, tmp_path)
    yield log
    log.close()


def test_nobody_finds_the_credentials_afterwards(
    spark: SparkSession,
    cloud: Cloud,
    jvm_log: JvmLog,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    evidence = Evidence()

    def read(topic: str, **options: Any) -> DataFrame:
        given = {"subscribe": topic, **cloud.options, **options}
        return spark.read.format(FORMAT).options(**given).load(cloud.path)

    def copied(name: str, **options: Any) -> StreamingQuery:
        writer = (
            loaded.select("value").writeStream.format(FORMAT).options(**{"topic": "out", **cloud.options, **options})
        )
        return writer.trigger(availableNow=True).start(cloud.path, checkpointLocation=str(tmp_path / name))

    rows = spark.range(10).selectExpr("CAST(id AS STRING) value")
    with caplog.at_level(logging.DEBUG, FORMAT):
        rows.write.format(FORMAT).mode("append").options(topic="in", **cloud.options).save(cloud.path)
        batch = read("in")
        assert batch.count() == 10
        stream = spark.readStream.format(FORMAT).options(subscribe="in", startingOffsets="earliest", **cloud.options)
        loaded = stream.load(cloud.path)
        query = copied("checkpoint")
        query.awaitTermination()

        wrong_key = json.dumps({**cloud.login, "key": "unknown"})
        wrong_secret = json.dumps({**cloud.login, "secret": f"{cloud.server.secret}-wrong"})
        failing: dict[str, tuple[str, Callable[[], object]]] = {
            "a read with a wrong key": ("InvalidAccessKeyId", lambda: read("in", storage_options=wrong_key)),
            "a stream with a wrong secret": (
                "SignatureDoesNotMatch",
                lambda: copied("refused", storage_options=wrong_secret).awaitTermination(),
            ),
        }
        for operation, (said, fail) in failing.items():
            with pytest.raises(PySparkException, match=said) as caught:
                fail()
            evidence.add_error(operation, caught.value)

    for name, frame in {"batch read": batch, "stream read": loaded}.items():
        frame.explain("extended")
        evidence.add(f"plan of the {name}", frame._jdf.queryExecution().toString())
        evidence.add(f"logical plan of the {name}", frame._jdf.queryExecution().logical().toString())
    query.explain(extended=True)
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    assert executions.size() >= 3
    for each in (executions.apply(index) for index in range(executions.size())):
        evidence.add(f"plan of execution {each.executionId()}", each.physicalPlanDescription() + each.details())
    assert query.lastProgress is not None
    evidence.add("progress of the query", [*query.recentProgress, query.lastProgress, query.status])
    evidence.add("progress of the query as JSON", [each.json for each in query.recentProgress])
    for key, stored in cloud.stored().items():
        evidence.add(f"object {key}", stored)
    evidence.add_folder("checkpoint", tmp_path / "checkpoint")
    evidence.add_folder("checkpoint", tmp_path / "refused")
    evidence.add("records of Python's log", caplog.text)
    evidence.add("printed plans", capfd.readouterr())
    jvm_log.add_to(evidence)
    evidence.check(cloud.server.secret, TOKEN)


def test_py4j_logs_options_at_debug(spark: SparkSession, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    """As docs/guides/object-store-credentials.md says. If no longer, the page may say less."""
    with caplog.at_level(logging.DEBUG, "py4j"):
        spark.read.format(FORMAT).options(**cloud.options)
    assert TOKEN in caplog.text
    assert cloud.server.secret in caplog.text
