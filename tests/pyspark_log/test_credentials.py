"""Credentials are in nothing that the product stores, logs, says or shows: here without Spark, at the level DEBUG."""

import asyncio
import json
import logging
import uuid

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log import Consumer, LogError, Producer
from pyspark_log.opening import forget_logs, open_log
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.broken_link import BrokenLink
from tests.support.direct import Stream, read, source
from tests.support.evidence import Evidence, encodings

pytestmark = pytest.mark.deep
SCHEMA = StructType([StructField("value", BinaryType())])
LEVELS = {"botocore": logging.INFO, "": logging.DEBUG}
"""Below INFO botocore logs requests with their headers; no other has secrets (docs/guides/object-store-credentials.md).
The last level is that of pytest's handler, too."""
TOKEN = "canary-token+3f/5a=="
ROLE = "arn:aws:iam::123456789012:role/writer"
EXPIRED = f"<Error><Code>ExpiredToken</Code><Message>expired</Message><Token-0>{TOKEN}</Token-0></Error>"


@pytest.fixture
def evidence(caplog):
    """What is found; and what the log has, from DEBUG on."""
    for logger, level in LEVELS.items():
        caplog.set_level(level, logger)
    return Evidence()


class Login:
    """A server of S3, and how a program proves there who it is."""

    def __init__(self, server, **options):
        self.server = server
        # The process keeps connections by their options: this one is the test's own.
        own = {"user_agent_extra": uuid.uuid4().hex}
        self.options = {"endpoint_url": server.endpoint, "config_kwargs": own, **options}

    def signs_with(self, url):
        """Return the secret key and the token with which requests are signed: a role has its own."""
        signer = open_store(url, StorageOptions.given(self.options)).connection().fs._s3._request_signer
        credentials = asyncio.run(signer._credentials.get_frozen_credentials())
        return credentials.secret_key, credentials.token


@pytest.fixture(params=["storage_options", "a profile", "the environment", "a role"])
def login(request, monkeypatch, tmp_path):
    """The credentials, with a session token. Ceph accepts any token from its users, and moto any credentials."""
    forget_logs()
    server = request.getfixturevalue("moto" if request.param == "a role" else "ceph")
    server = server._replace(secret=server.secret if request.param != "a role" else "canary-of-the-source")
    if request.param == "storage_options":
        return Login(server, key=server.key, secret=server.secret, token=TOKEN)
    names = {"access_key_id": server.key, "secret_access_key": server.secret, "session_token": TOKEN}
    if request.param == "the environment":
        for name, value in names.items():
            monkeypatch.setenv(f"AWS_{name.upper()}", value)
        return Login(server)
    lines = "".join(f"aws_{name} = {value}\n" for name, value in names.items())
    (tmp_path / "credentials").write_text(f"[base]\n{lines}[writer]\nrole_arn = {ROLE}\nsource_profile = base\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return Login(server, profile="writer" if request.param == "a role" else "base")


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


def test_nothing_stored_logged_or_shown_has_the_credentials(login, evidence, caplog):
    bucket, options = login.server.new_bucket(), login.options
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
    client = login.server.client()
    for each in client.list_objects_v2(Bucket=bucket)["Contents"]:
        evidence.add(f"object {each['Key']}", client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
    assert len(evidence.places) > 20
    assert {"pyspark_log", "s3fs"} <= {each.name for each in caplog.records if each.levelno == logging.DEBUG}
    evidence.add_records(caplog.records)
    evidence.check(login.server.secret, TOKEN, *login.signs_with(url))


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
    options, link = {**ceph.options, "token": TOKEN}, BrokenLink(ceph.endpoint)
    link.always = b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%s" % (len(EXPIRED), EXPIRED.encode())
    for wrong, says in [
        ({"key": "unknown"}, "InvalidAccessKeyId"),
        ({"secret": other}, "SignatureDoesNotMatch"),
        ({"no_such_option": other}, "no_such_option"),
        ({"endpoint_url": link.endpoint}, "ExpiredToken"),
    ]:
        with pytest.raises(LogError, match=says) as caught:
            operation(url, options | wrong, evidence)
        evidence.add_error(f"{operation.__name__} with another {next(iter(wrong))}", caught.value)
    with pytest.raises(LogError, match="bucket does not exist") as caught:
        operation("s3://no-such-bucket/log", options, evidence)
    link.close()
    evidence.add_error(f"{operation.__name__} in a missing bucket", caught.value)
    evidence.add_records(caplog.records)
    evidence.check(ceph.secret, TOKEN)


@pytest.mark.parametrize("form", encodings("a+secret/b41d7c52"))
def test_a_secret_is_found_in_every_form(form):
    evidence = Evidence()
    evidence.add("a file", b"before " + encodings("a+secret/b41d7c52")[form] + b" after")
    assert f"a file: {form}" in evidence.places_with("a+secret/b41d7c52")
    assert evidence.places_with("another secret") == []
