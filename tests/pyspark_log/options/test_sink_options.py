"""The options of a sink, and its transactions."""

import pytest

from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from tests.support.pyspark_log.parsed_options import refusal, stream, write


def test_values_are_read():
    given = {"topic": " t ", "compression.type": "NONE", "auto.create.topics.enable": "false", "num.partitions": "8"}
    found = write(given | {"txnappid": "etl", "txntakeover": "true", "includeheaders": "true"})
    assert (found.topic, found.compression, found.auto_create_topics, found.num_partitions) == ("t", "none", False, 8)
    assert (found.txn_app_id, found.txn_version, found.txn_take_over) == ("etl", None, True)
    acks = {text: write({"acks": text}).acks for text in ("all", "-1", "1", "0")}
    assert acks == {"all": "all", "-1": "all", "1": "1", "0": "0"}


def test_progress_is_never_asynchronous_as_that_breaks_exactly_once():
    said = "option asyncProgressTrackingEnabled is 'true': it is not a known value; expected false"
    assert str(refusal(write, {"asyncprogresstrackingenabled": "true"})) == said
    assert str(refusal(stream, asyncprogresstrackingenabled="true")) == said
    write({"asyncprogresstrackingenabled": "false", "asyncprogresstrackingcheckpointintervalms": "5"})


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("topic", "", "a topic name cannot be empty"),
        ("acks", "2", "it is not a known value; expected all, -1, 1 or 0"),
        ("compression.type", "gzip", "it is not a known value; expected none, lz4 or zstd"),
        ("retries", "-1", "it is less than 0"),
        ("num.partitions", str(PARTITIONS_MAX + 1), "it is more than 100000"),
        ("txnAppId", "", "it is empty"),
        ("txnAppId", "x" * 256, "it has 256 characters"),
    ],
)
def test_values_out_of_range_are_refused(option, text, reason):
    error = refusal(write, {option.lower(): text})
    assert (error.option, reason in str(error)) == (option, True)


def test_a_batch_write_is_idempotent_by_a_name_and_a_number():
    parsed = write({"txnappid": "etl", "txnversion": "0"}, streaming=False)
    assert (parsed.txn_app_id, parsed.txn_version) == ("etl", 0)
    said = "option txnVersion=0 needs the option txnAppId; set it too, or remove txnVersion"
    assert str(refusal(write, {"txnversion": "0"}, streaming=False)) == said
    said = "option txnAppId=etl needs the option txnVersion; set it too, or remove txnAppId"
    assert str(refusal(write, {"txnappid": "etl"}, streaming=False)) == said
    said = "option txnVersion is for a batch write, not for a streaming write; remove it"
    assert str(refusal(write, {"txnappid": "etl", "txnversion": "7"})) == said
    assert "txnTakeOver=true needs the option txnAppId" in str(refusal(write, {"txntakeover": "true"}))
    write({"txntakeover": "false"})


def test_the_topic_of_dead_letters_is_another_one():
    assert write({"dead.letter.topic": "dead"}).dead_letter_topic == "dead"
    assert refusal(write, {"topic": "t", "dead.letter.topic": "t"}).option == "dead.letter.topic"


@pytest.mark.parametrize(("option", "text"), [("schema", "columns"), ("mergeSchema", "true"), ("key.column", "k")])
def test_columns_are_those_of_one_topic(option, text):
    write({"topic": "t", option: text})
    said = f"option {option}={text} needs the option topic; set it too, or remove {option}"
    assert str(refusal(write, {option: text})) == said
