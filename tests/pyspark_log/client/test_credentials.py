"""Credentials are in nothing that the product stores, logs, says or shows: here without Spark, at the level DEBUG."""

import json
import logging
import uuid

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log import Consumer, LogError, Producer
from pyspark_log.client.opening import forget_logs, open_log
from pyspark_log_storage.addresses import open_store
from pyspark_log_storage.storage_options import StorageOptions
from tests.direct import Stream, read, source
from tests.evidence import Evidence, encodings

SCHEMA = StructType([StructField("value", BinaryType())])
LEVELS = {"": logging.INFO, "pyspark_log": logging.DEBUG}
"""Below INFO client libraries log requests with their headers, and fsspec the arguments with which it makes clients."""


@pytest.fixture
def evidence(caplog):
    """What is found; and what the log has, from DEBUG on."""
    for logger, level in LEVELS.items():
        caplog.set_level(level, logger)
    return Evidence()


@pytest.fixture(params=["storage_options", "a profile"])
def options(request, ceph, monkeypatch, tmp_path):
    """The credentials, as options or in a profile."""
    forget_logs()
    if request.param == "storage_options":
        return ceph.options
    lines = f"[writer]\naws_access_key_id = {ceph.key}\naws_secret_access_key = {ceph.secret}\n"
    (tmp_path / "credentials").write_text(lines)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return {"profile": "writer", "endpoint_url": ceph.endpoint}


def write(url, options, evidence, topic="t"):
    """Write a micro-batch as Spark does it."""
    context = TaskContext._getOrCreate()
    context._localProperties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r", "streaming.sql.batchId": "0"}
    context._partitionId = 0
    sink = source(url, topic=topic, storage_options=json.dumps(options))
    writer = sink.streamWriter(SCHEMA, overwrite=False)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})]))
    writer.commit([message], 0)
    for each in (sink, writer, message):
        evidence.add_repr(each)


def test_nothing_stored_logged_or_shown_has_the_credentials(ceph, options, evidence, caplog):
    bucket = ceph.new_bucket()
    url, text = f"s3://{bucket}/{uuid.uuid4().hex}", json.dumps(options)
    write(url, options, evidence)
    stream = Stream(url, subscribe="t", startingOffsets="earliest", storage_options=text)
    assert len(stream.batch()) == 2
    assert len(read(url, subscribe="t", storage_options=text)) == 2
    with Producer(url, storage_options=options) as producer:
        producer.send("t", b"three").result()
        evidence.add_repr(producer)
    with Consumer(url, group_id="g", auto_offset_reset="earliest", storage_options=options) as consumer:
        consumer.subscribe(["t"])
        while not (records := consumer.poll(timeout_ms=1000)):
            pass
        consumer.commit()
        for each in (consumer, records):
            evidence.add_repr(each)

    given = StorageOptions.given(options)
    log, store = open_log(url, given), open_store(url, given)
    topic = log.topic("t")
    partitions = stream.reader.partitions(stream.reader.initialOffset(), stream.ends[0])
    planner = stream.reader._planner
    for each in (given, log, log.environment, store, topic, topic.journal, *partitions, planner, planner.options):
        evidence.add_repr(each)
    evidence.add_repr(stream.reader)
    evidence.add("offsets of the source", json.dumps(stream.ends))
    evidence.add("progress of the source", stream.reader.reportLatestOffset())
    client = ceph.client()
    for each in client.list_objects_v2(Bucket=bucket)["Contents"]:
        evidence.add(f"object {each['Key']}", client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
    assert len(evidence.places) > 20
    assert any(each.levelno == logging.DEBUG and each.name == "pyspark_log" for each in caplog.records)
    evidence.add("records of the log", "\n".join(f"{each.getMessage()} {vars(each)}" for each in caplog.records))
    evidence.check(ceph.secret)


def send(url, options, evidence):
    with Producer(url, storage_options=options) as producer:
        producer.send("t", b"x").result()


def assign(url, options, evidence):
    with Consumer(url, storage_options=options) as consumer:
        consumer.assign(consumer.partitions("t"))


def read_batch(url, options, evidence):
    read(url, subscribe="t", storage_options=json.dumps(options))


def read_stream(url, options, evidence):
    Stream(url, subscribe="t", storage_options=json.dumps(options)).batch()


@pytest.mark.parametrize("operation", [write, read_batch, read_stream, send, assign])
def test_no_error_has_the_credentials(ceph, ceph_bucket, evidence, caplog, operation):
    url, other = f"s3://{ceph_bucket}/{uuid.uuid4().hex}", f"{ceph.secret}-other"
    for wrong, says in [
        ({"key": "unknown"}, "InvalidAccessKeyId"),
        ({"secret": other}, "SignatureDoesNotMatch"),
        ({"no_such_option": other}, "no_such_option"),
    ]:
        with pytest.raises(LogError, match=says) as caught:
            operation(url, ceph.options | wrong, evidence)
        evidence.add_error(f"{operation.__name__} with another {next(iter(wrong))}", caught.value)
    with pytest.raises(LogError, match="bucket does not exist") as caught:
        operation("s3://no-such-bucket/log", ceph.options, evidence)
    evidence.add_error(f"{operation.__name__} in a missing bucket", caught.value)
    evidence.add("records of the log", "\n".join(f"{each.getMessage()} {vars(each)}" for each in caplog.records))
    evidence.check(ceph.secret)


def test_options_that_are_no_json_are_not_repeated(ceph, evidence):
    with pytest.raises(LogError, match="not a JSON object") as caught:
        read("s3://bucket/log", subscribe="t", storage_options=ceph.secret)
    evidence.add_error("read", caught.value)
    evidence.check(ceph.secret)


@pytest.mark.parametrize("form", encodings("a+secret/b41d7c52"))
def test_a_secret_is_found_in_every_form(form):
    evidence = Evidence()
    evidence.add("a file", b"before " + encodings("a+secret/b41d7c52")[form] + b" after")
    assert f"a file: {form}" in evidence.places_with("a+secret/b41d7c52")
    assert evidence.places_with("another secret") == []
