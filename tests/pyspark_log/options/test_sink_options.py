"""The options of a sink, and its transactions."""

from typing import get_args

import pytest

from pyspark_log.options import (
    Acks,
    IgnoredOptionWarning,
)
from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from pyspark_log_coordinator.model.batch import Acks as BatchAcks
from tests.support.pyspark_log.parsed_options import refusal, stream, write


class TestSink:
    def test_options_are_read(self):
        parsed = write(
            {
                "topic": " t ",
                "compression.type": "NONE",
                "auto.create.topics.enable": "false",
                "num.partitions": "8",
                "max.message.bytes": "1",
                "txnappid": "etl",
                "txntakeover": "true",
            }
        )
        assert (parsed.topic, parsed.compression, parsed.auto_create_topics) == ("t", "none", False)
        assert (parsed.num_partitions, parsed.max_message_bytes) == (8, 1)
        assert (parsed.txn_app_id, parsed.txn_version, parsed.txn_take_over) == ("etl", None, True)

    @pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("-1", "all"), ("1", "1"), ("0", "0")])
    def test_acks_are_kafkas(self, text, acks):
        assert write({"acks": text}).acks == acks

    @pytest.mark.parametrize("codec", ["snappy", "GZIP "])
    def test_moves_with_a_codec_of_kafkas_producer_and_says_that_it_has_no_effect(self, codec):
        match = rf"kafka\.compression\.type \(only Kafka clients support {codec.strip()}\)"
        with pytest.warns(IgnoredOptionWarning, match=match):
            assert write({"kafka.compression.type": codec}).compression is None

    @pytest.mark.parametrize("codec", ["snappy", "gzip"])
    def test_codecs_that_arrow_lacks_are_refused_with_those_that_there_are(self, codec):
        assert str(refusal(write, {"compression.type": codec})) == (
            f"option compression.type is {codec!r}: chunks are Arrow data, and Arrow does not support this codec;"
            " expected none, lz4 or zstd (default: the topic's compression.type, lz4 by default)"
        )

    def test_acks_are_those_of_the_layers_below(self):
        assert get_args(Acks) == get_args(BatchAcks)

    def test_headers_are_tolerated_as_by_kafkas_sink(self):
        write({"includeheaders": "true"})

    def test_async_progress_is_refused_with_the_reason(self):
        error = refusal(write, {"asyncprogresstrackingenabled": "true"})
        assert error.option == "asyncProgressTrackingEnabled"
        assert "Spark would store offsets only after the rows are written, which breaks exactly-once" in str(error)
        assert "which breaks exactly-once" in str(refusal(stream, asyncprogresstrackingenabled="true"))
        write({"asyncprogresstrackingenabled": "false", "asyncprogresstrackingcheckpointintervalms": "5"})

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("topic", "", "a topic name cannot be empty"),
            ("topic", "a/b", "only ASCII letters"),
            ("acks", "2", "it is not a known value; expected all, -1, 1 or 0"),
            ("compression.type", "lzo", "it is not a known value; expected none, lz4 or zstd"),
            ("retries", "-1", "it is less than 0"),
            ("retry.backoff.ms", "soon", "it is not a whole number"),
            ("delivery.timeout.ms", "0", "it is less than 1"),
            ("max.message.bytes", "2147483648", "it is more than 2147483647"),
            ("num.partitions", "0", "it is less than 1"),
            ("num.partitions", str(PARTITIONS_MAX + 1), "it is more than 100000"),
            ("auto.create.topics.enable", "1", "it is not a known value; expected true or false"),
            ("txnAppId", "", "it is empty"),
            ("txnAppId", "x" * 256, "it has 256 characters"),
        ],
    )
    def test_values_out_of_range_are_refused(self, option, text, reason):
        error = refusal(write, {option.lower(): text})
        assert error.option == option
        assert reason in str(error)


class TestTransaction:
    def test_of_a_batch_write_has_both_parts(self):
        parsed = write({"txnappid": "etl", "txnversion": "7"}, streaming=False)
        assert (parsed.txn_app_id, parsed.txn_version) == ("etl", 7)

    def test_of_a_batch_write_without_a_part_is_refused(self):
        error = refusal(write, {"txnappid": "etl"}, streaming=False)
        assert error.option == "txnVersion"
        assert str(error) == (
            "option txnAppId is given without txnVersion: an idempotent batch write needs both; set txnVersion, or"
            " remove txnAppId"
        )
        error = refusal(write, {"txnversion": "7"}, streaming=False)
        assert error.option == "txnAppId"
        assert "set txnAppId, or remove txnVersion" in str(error)

    def test_of_a_stream_is_numbered_by_its_batches(self):
        error = refusal(write, {"txnappid": "etl", "txnversion": "7"})
        assert str(error) == (
            "option txnVersion cannot be used in a streaming write: the number of the micro-batch is used; remove it"
        )

    def test_is_taken_over_by_name_only(self):
        error = refusal(write, {"txntakeover": "true"})
        assert str(error) == (
            "option txnTakeOver is true, but txnAppId is not set; set txnAppId, or remove txnTakeOver"
        )


class TestDeadLetterTopic:
    @pytest.mark.parametrize("streaming", [True, False])
    def test_is_a_topic(self, streaming):
        assert write({"dead.letter.topic": "dead"}, streaming=streaming).dead_letter_topic == "dead"

    def test_is_not_the_topic_of_all_rows(self):
        error = refusal(write, {"topic": "t", "dead.letter.topic": "t"})
        assert error.option == "dead.letter.topic"
        assert str(error) == (
            "options topic and dead.letter.topic are both 't'; set dead.letter.topic to another topic"
        )


class TestColumns:
    @pytest.mark.parametrize(("option", "text"), [("schema", "columns"), ("mergeSchema", "true"), ("key.column", "k")])
    def test_are_those_of_one_topic(self, option, text):
        write({"topic": "t", option: text})
        error = refusal(write, {option: text})
        assert error.option == option
        assert str(error) == (f"option {option} is about one typed topic; set the option topic, or remove {option}")
