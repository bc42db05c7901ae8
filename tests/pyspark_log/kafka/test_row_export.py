"""The calls that an export makes to Kafka's client. What Kafka does with them is in `test_with_kafka`."""

import contextlib

from pyspark_log.kafka.client import KafkaTopic
from pyspark_log.kafka.export_plan import PartitionExport
from pyspark_log.kafka.row_export import RowExport
from tests.support.plain_log import PlainLog


class Producer:
    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda *_, **__: self.calls.append(name)


class Kafka:
    timeout_seconds = 1

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
