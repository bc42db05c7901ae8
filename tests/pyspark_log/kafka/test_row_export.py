"""The calls that an export makes to Kafka's client. What Kafka does with them is in `test_with_kafka`."""

import contextlib
from types import SimpleNamespace

import pytest

from pyspark_log.kafka.client import KafkaTopic
from pyspark_log.kafka.export_plan import PartitionExport
from pyspark_log.kafka.row_export import RowExport
from pyspark_log_storage.errors import InvalidRecord
from tests.support.plain_log import PlainLog


class Producer:
    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda *_, **__: self.calls.append(name)


class Kafka:
    timeout_seconds = 1
    library = SimpleNamespace(KafkaException=KeyError)

    def __init__(self):
        self.calls = []

    def producer(self, **_):
        return Producer(self.calls)

    def errors(self):
        return contextlib.nullcontext()


def test_an_export_waits_until_its_last_transaction_has_its_markers(tmp_path):
    """Else a group would continue before rows that were exported with it: Kafka's commit only promises the markers."""
    log, kafka = PlainLog(tmp_path), Kafka()
    log.create("t")
    log.append("t", {0: [b"0", b"1"]})
    export = RowExport(log.log, log.log.topic("t"), kafka, KafkaTopic("t", "cluster", "id", 1, {}), "none")
    export.run([PartitionExport(0, 0, 2, 2, is_resumed=False)], lambda _: None)
    transaction = ["begin_transaction", "produce", "produce", "commit_transaction"]
    assert kafka.calls == ["init_transactions", *transaction, "init_transactions"]


def test_a_row_whose_time_kafkas_client_would_replace_is_not_exported(tmp_path):
    """librdkafka takes 0 for no time, and writes the present one. It keeps those before."""
    log, kafka = PlainLog(tmp_path), Kafka()
    log.create("t")
    log.append("t", {0: [b"0", b"1"]}, times_ms=[-1, 0])
    export = RowExport(log.log, log.log.topic("t"), kafka, KafkaTopic("t", "cluster", "id", 1, {}), "none")
    with pytest.raises(InvalidRecord, match="partition 0, offset 1: the row's time is the first millisecond of 1970"):
        export.run([PartitionExport(0, 0, 2, 2, is_resumed=False)], lambda _: None)
    assert kafka.calls == ["init_transactions", "begin_transaction", "produce", "abort_transaction"]


def test_a_topic_in_kafka_may_allow_larger_messages_than_kafkas_client(tmp_path):
    library = pytest.importorskip("confluent_kafka")
    log, made = PlainLog(tmp_path), []

    class Client(Kafka):
        def producer(self, **settings):
            library.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
            made.append(settings["message.max.bytes"])
            return Producer(self.calls)

    log.create("t")
    for size in (2**31 - 1, 5_000_000, 1000):
        config = {"max.message.bytes": str(size)}
        RowExport(log.log, log.log.topic("t"), Client(), KafkaTopic("t", "cluster", "id", 1, config), "none")
    assert made == [1_000_000_000, 5_000_000, 1_000_000]
