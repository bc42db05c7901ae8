"""What a streaming write does: every mode that it has, in order, and with a Kafka job's own options."""

import itertools
import os
import shutil
import stat
from pathlib import Path

import pytest
from pyspark.sql import functions as f

from tests.support.spark.spark_log import SparkLog, refused

KAFKA_JOB = {
    "kafka.bootstrap.servers": "broker-1:9092,broker-2:9092",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "PlainLoginModule required username='u' password='secret';",
    "kafka.ssl.truststore.location": "/etc/truststore.jks",
    "kafka.request.timeout.ms": "60000",
}


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 1)
    return made


def keyed(log, **options):
    """The stream of t: its values are `<key>:<number>`."""
    frame = log.stream(subscribe="t", startingOffsets="earliest", **options)
    return frame.selectExpr("split_part(cast(value as string), ':', 1) as key", "value")


@pytest.mark.default
def test_the_order_of_the_rows_of_a_key_is_kept_from_batch_to_batch(log):
    log.append("t", {0: [b"%d:%04d" % (i % 7, i) for i in range(200)]})
    query = log.drain(keyed(log, maxOffsetsPerTrigger=40), topic="out", **{"num.partitions": 3})
    assert len(query.recentProgress) == 5
    rows = log.read(subscribe="out").orderBy("partition", "offset").collect()
    numbers: dict[bytes, list[int]] = {}
    for row in rows:
        numbers.setdefault(row.key, []).append(int(row.value.split(b":")[1]))
    assert numbers == {b"%d" % key: list(range(key, 200, 7)) for key in range(7)}


@pytest.mark.default
def test_complete_mode_appends_every_result(log):
    counts = keyed(log).groupBy("key").agg(f.count("*").cast("string").alias("value"))
    log.append("t", {0: [b"a:1", b"b:2"]})
    log.drain(counts, topic="out", mode="complete")
    log.append("t", {0: [b"a:3"]})
    log.drain(counts, topic="out", mode="complete")
    found = [(row.key, row.value) for row in log.read(subscribe="out").orderBy("offset").collect()]
    assert sorted(found[:2]) == [(b"a", b"1"), (b"b", b"1")]
    assert sorted(found[2:]) == [(b"a", b"2"), (b"b", b"1")]


@pytest.fixture
def new_drivers(spark):
    """A function that begins with Spark's planners anew, as a restarted driver does: they know no log yet."""
    name = "spark.sql.planner.pythonExecution.memory"
    memory = itertools.count(2000)
    yield lambda: spark.conf.set(name, next(memory))  # Spark has a process for each set of settings
    spark.conf.unset(name)


def test_a_query_whose_disk_is_not_mounted_fails_and_continues_when_it_is(log, tmp_path, new_drivers):
    mount, away = tmp_path / "mount" / "log", tmp_path / "away"
    mount.mkdir(parents=True)

    def batch(value):
        new_drivers()
        log.append("t", {0: [value] * 50})
        writer = log.stream(subscribe="t", startingOffsets="earliest").select("value").writeStream
        writer = writer.format("pyspark_log").option("topic", "out").option("checkpointLocation", f"{tmp_path}/c")
        writer.trigger(availableNow=True).start(str(mount)).awaitTermination()

    batch(b"0")
    mount.rename(away)
    mount.mkdir()
    with refused() as shown:
        batch(b"1")
    assert f"NoCluster: there is no log at {mount}, and the query with the checkpoint {tmp_path}/c has" in shown.text
    # A query whose checkpoint cannot be read knows its batches by their numbers.
    shutil.rmtree(tmp_path / "c" / "sinks")
    new_drivers()
    with refused() as shown:
        batch(b"2")
    assert f"NoCluster: there is no log at {mount}: check the address, and whether its disk is mounted" in shown.text
    assert not list(mount.iterdir())
    mount.rmdir()
    away.rename(mount)
    batch(b"3")
    rows = log.spark.read.format("pyspark_log").option("subscribe", "out").load(str(mount)).collect()
    assert [row.value for row in rows] == [b"0"] * 50 + [b"1"] * 50 + [b"2"] * 50 + [b"3"] * 50


def spark_says(spark):
    """What Spark and its Python workers have said so far, where their standard error is a file."""
    pid = spark.sparkContext._gateway.proc.pid
    said = Path(f"/proc/{pid}/fd/2")
    if not said.exists() or not stat.S_ISREG(os.stat(said).st_mode):
        pytest.skip("what Spark says goes to a terminal or a pipe here: run with pytest's capture")
    return said.read_text(errors="replace")


def test_a_kafka_job_runs_with_its_own_options_and_one_warning_a_process(log):
    before = len(spark_says(log.spark))
    log.append("t", {0: [b"a:%d" % i for i in range(30)]})
    reading = {"kafka.group.id": "g", "kafka.max.poll.records": "500", "groupIdPrefix": "p"}
    writing = {"kafka.linger.ms": "20", "kafka.batch.size": "65536", "kafka.acks": "all"}
    frame = keyed(log, maxOffsetsPerTrigger=3, **KAFKA_JOB, **reading)
    query = log.drain(frame, topic="out", **KAFKA_JOB, **writing)
    batches = len(query.recentProgress)
    assert batches == 10
    assert log.rows("out") == 30
    said = spark_says(log.spark)[before:]
    warned = [line for line in said.splitlines() if "IgnoredOptionWarning: ignored options" in line]
    assert len([line for line in warned if "a streaming read" in line]) == 1, said
    # One of the process that plans and one of that which writes. Spark may replace them, but not with each batch.
    assert 1 <= len([line for line in warned if "a streaming write" in line]) < batches / 2, said
    assert "secret" not in said
