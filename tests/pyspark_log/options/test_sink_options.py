"""The options of a sink, and its transactions."""

from typing import get_args

import pytest

from pyspark_log.options import Acks, IgnoredOptionWarning
from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from pyspark_log_coordinator.model.batch import Acks as BatchAcks
from pyspark_log_coordinator.retry import RetryPolicy
from tests.support.pyspark_log.parsed_options import refusal, stream, write


@pytest.mark.parametrize("streaming", [True, False])
def test_the_defaults_of_a_write_are_kafkas(streaming):
    found = write(streaming=streaming)
    assert (found.topic, found.acks, found.compression, found.max_message_bytes) == (None, "all", None, 1_048_588)
    assert (found.auto_create_topics, found.num_partitions, found.replication_factor) == (True, 1, None)
    assert (found.txn_app_id, found.dead_letter_topic, found.merge_schema) == (None, None, False)
    expected = RetryPolicy(
        retries=2**31 - 1, retry_backoff_ms=100, delivery_timeout_ms=120_000, session_timeout_ms=9_000
    )
    assert found.retry == expected
    assert get_args(Acks) == get_args(BatchAcks)


def test_values_are_read():
    given = {"topic": " t ", "compression.type": "NONE", "auto.create.topics.enable": "false", "num.partitions": "8"}
    parsed = write(given | {"txnappid": "etl", "txntakeover": "true", "includeheaders": "true"})
    assert (parsed.topic, parsed.compression, parsed.auto_create_topics, parsed.num_partitions) == (
        "t",
        "none",
        False,
        8,
    )
    assert (parsed.txn_app_id, parsed.txn_version, parsed.txn_take_over) == ("etl", None, True)
    acks = {text: write({"acks": text}).acks for text in ("all", "-1", "1", "0")}
    assert acks == {"all": "all", "-1": "all", "1": "1", "0": "0"}
    with pytest.warns(IgnoredOptionWarning, match=r"kafka\.compression\.type \(only Kafka clients support snappy\)"):
        assert write({"kafka.compression.type": "snappy"}).compression is None


def test_progress_is_never_asynchronous_as_that_breaks_exactly_once():
    for error in (
        refusal(write, {"asyncprogresstrackingenabled": "true"}),
        refusal(stream, asyncprogresstrackingenabled="true"),
    ):
        assert "which breaks exactly-once" in str(error)
    write({"asyncprogresstrackingenabled": "false", "asyncprogresstrackingcheckpointintervalms": "5"})


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("topic", "", "a topic name cannot be empty"),
        ("topic", "a/b", "only ASCII letters"),
        ("acks", "2", "it is not a known value; expected all, -1, 1 or 0"),
        ("compression.type", "gzip", "Arrow does not support this codec; expected none, lz4 or zstd"),
        ("compression.type", "lzo", "it is not a known value; expected none, lz4 or zstd"),
        ("retries", "-1", "it is less than 0"),
        ("retry.backoff.ms", "soon", "it is not a whole number"),
        ("delivery.timeout.ms", "0", "it is less than 1"),
        ("max.message.bytes", "2147483648", "it is more than 2147483647"),
        ("num.partitions", str(PARTITIONS_MAX + 1), "it is more than 100000"),
        ("auto.create.topics.enable", "1", "it is not a known value; expected true or false"),
        ("txnAppId", "", "it is empty"),
        ("txnAppId", "x" * 256, "it has 256 characters"),
    ],
)
def test_values_out_of_range_are_refused(option, text, reason):
    error = refusal(write, {option.lower(): text})
    assert (error.option, reason in str(error)) == (option, True)


def test_a_transaction_of_a_batch_write_has_both_parts_and_that_of_a_stream_is_numbered_by_its_batches():
    parsed = write({"txnappid": "etl", "txnversion": "7"}, streaming=False)
    assert (parsed.txn_app_id, parsed.txn_version) == ("etl", 7)
    assert refusal(write, {"txnappid": "etl"}, streaming=False).option == "txnVersion"
    assert refusal(write, {"txnversion": "7"}, streaming=False).option == "txnAppId"
    said = str(refusal(write, {"txnappid": "etl", "txnversion": "7"}))
    assert said.startswith("option txnVersion cannot be used in a streaming write: the number of the micro-batch is")
    assert "set txnAppId, or remove txnTakeOver" in str(refusal(write, {"txntakeover": "true"}))


def test_the_topic_of_dead_letters_is_another_one():
    for streaming in (True, False):
        assert write({"dead.letter.topic": "dead"}, streaming=streaming).dead_letter_topic == "dead"
    assert refusal(write, {"topic": "t", "dead.letter.topic": "t"}).option == "dead.letter.topic"


@pytest.mark.parametrize(("option", "text"), [("schema", "columns"), ("mergeSchema", "true"), ("key.column", "k")])
def test_columns_are_those_of_one_topic(option, text):
    write({"topic": "t", option: text})
    error = refusal(write, {option: text})
    assert str(error) == f"option {option} is about one typed topic; set the option topic, or remove {option}"
