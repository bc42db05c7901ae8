"""Options of Kafka and its connector: taken over, ignored, or refused with the reason."""

import pytest

from pyspark_log.options import IgnoredOptionWarning, parse_sink, parse_source
from tests.support.pyspark_log.parsed_options import READ, WRITE, batch, refusal, stream, write


class TestKafkaClientOptions:
    def test_that_are_known_here_mean_ours(self):
        parsed = write(
            {
                "kafka.acks": "1",
                "kafka.compression.type": "zstd",
                "kafka.retries": "3",
                "kafka.retry.backoff.ms": "7",
                "kafka.delivery.timeout.ms": "8",
                "kafka.max.request.size": "9",
            }
        )
        assert (parsed.acks, parsed.compression, parsed.retry.retries) == ("1", "zstd", 3)
        assert (parsed.retry.retry_backoff_ms, parsed.retry.delivery_timeout_ms, parsed.max_message_bytes) == (7, 8, 9)

    def test_that_name_the_readers_rack_mean_ours(self):
        for name in ("client.rack", "kafka.client.rack", "Client.Rack"):
            assert stream(**{name: "east"}).client_rack == batch(**{name: "east"}).client_rack == "east"
        with pytest.warns(IgnoredOptionWarning, match=r"kafka\.client\.rack \(it has no effect in a batch write\)"):
            parse_sink(WRITE | {"kafka.client.rack": "east"}, streaming=False)

    def test_beside_ours_with_the_same_value_are_welcome(self):
        assert write({"acks": "1", "kafka.acks": "1 "}).acks == "1"

    def test_beside_ours_with_another_value_are_refused(self):
        error = refusal(write, {"acks": "all", "kafka.acks": "1"})
        assert error.option == "acks"
        assert str(error) == (
            "options acks and kafka.acks mean the same but have different values ('all' and '1'); remove one of them"
        )

    def test_of_another_name_are_named_when_they_differ(self):
        error = refusal(write, {"max.message.bytes": "5", "kafka.max.request.size": "6"})
        assert str(error).startswith("options max.message.bytes and kafka.max.request.size mean the same but have")

    def test_with_credentials_are_refused_without_showing_them(self):
        given = {"storage_options": '{"secret": "geheim"}', "Storage_Options": '{"secret": "anders"}'}
        error = refusal(write, given)
        assert str(error) == (
            "options storage_options and storage_options mean the same but have different values; remove one of them"
        )

    def test_that_have_no_sense_here_are_named_in_one_warning_without_their_values(self):
        with pytest.warns(IgnoredOptionWarning) as caught:
            stream(
                **{
                    "kafka.bootstrap.servers": "host:9092",
                    "kafka.sasl.jaas.config": "secret",
                    "kafka.client.id": "c",
                    "kafkaconsumer.polltimeoutms": "5",
                    "kafka.group.id": "g",
                    "groupidprefix": "p",
                    "kafka.acks": "1",
                }
            )
        assert [str(one.message) for one in caught] == [
            (
                "ignored options of a streaming read: kafka.bootstrap.servers, kafka.client.id (there is"
                " no broker to"
                " connect to); kafka.sasl.jaas.config (the store's own credentials decide who may read"
                " and write);"
                " kafkaConsumer.pollTimeoutMs (they configure the consumer pool of Spark's Kafka connector);"
                " kafka.group.id, groupIdPrefix (a query's progress is in its checkpoint, not in a"
                " consumer group);"
                " kafka.acks (it has no effect in a streaming read)"
            )
        ]

    @pytest.mark.parametrize(
        "key",
        [
            "kafka.linger.ms",
            "kafka.batch.size",
            "kafka.fetch.min.bytes",
            "kafka.security.protocol",
            "kafka.ssl.x",
        ],
    )
    @pytest.mark.parametrize("parse", [parse_source, parse_sink])
    @pytest.mark.parametrize("streaming", [True, False])
    def test_are_ignored_on_both_sides(self, key, parse, streaming):
        with pytest.warns(IgnoredOptionWarning, match=key):
            parse((READ if parse is parse_source else WRITE) | {key: "x"}, streaming=streaming)

    @pytest.mark.parametrize("prefix", ["", "kafka."])
    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("request.required.acks", "it was an option of Kafka's producer before 0.9; use acks"),
            ("replica.lag.max.messages", "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy"),
            (
                "log.retention.hours",
                "it is a setting of Kafka's brokers; use the topic's retention.ms, in",
            ),
            ("log.cleaner.threads", "it is a setting of Kafka's brokers, and there are none; leave it out"),
            ("replica.lag.min.bytes.sent", "it is a setting of Kafka's brokers, and there are none; leave it out"),
        ],
    )
    def test_of_its_brokers_are_refused_with_what_takes_their_place(self, prefix, name, advice):
        for error in (refusal(write, {prefix + name: "1"}), refusal(stream, **{prefix + name: "1"})):
            assert str(error).startswith(f"option {prefix}{name} cannot be used: {advice}")

    def test_that_kafka_does_not_have_are_refused_with_the_nearest_one(self):
        error = refusal(stream, **{"kafka.bootstrap.server": "host:9092"})
        assert "unknown option kafka.bootstrap.server for" in str(error)
        assert "Did you mean kafka.bootstrap.servers?" in str(error)
        assert "Did you mean subscribe?" in str(refusal(stream, **{"kafka.subscribe": "t"}))
        assert "Did you mean kafka.compression.type?" in str(refusal(write, {"kafka.compresion.type": "lz4"}))
        assert "Did you mean topic?" in str(refusal(write, {"kafka.topic": "t"}))
        assert "Did you mean max.message.bytes?" in str(refusal(write, {"kafka.max.message.bytes": "1"}))

    @pytest.mark.parametrize("key", ["retention.ms", "min.insync.replicas", "kafka.retention.ms"])
    def test_of_topics_are_refused_with_where_to_set_them(self, key):
        assert str(refusal(write, {key: "1"})) == (
            f"option {key} cannot be used in a streaming write: it is a setting of the topic; remove it, and set it"
            f" with: pyspark-log topics alter TOPIC --config {key.removeprefix('kafka.')}=VALUE"
        )

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("kafka.auto.offset.reset", "use startingOffsets"),
            ("kafka.enable.auto.commit", "Spark's checkpoint stores the query's offsets"),
            ("kafka.key.deserializer", "decode them with DataFrame operations"),
            ("kafka.interceptor.classes", "Java classes are not supported"),
        ],
    )
    def test_that_would_change_a_read_are_refused(self, key, advice):
        error = refusal(stream, **{key: "x"})
        assert str(error).startswith(f"option {key} cannot be used: ")
        assert advice in str(error)

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("kafka.value.serializer", "encode them with DataFrame operations"),
            ("kafka.partitioner.class", "add a column `partition`"),
            ("kafka.interceptor.classes", "Java classes are not supported"),
        ],
    )
    def test_that_would_change_a_write_are_refused(self, key, advice):
        assert advice in str(refusal(write, {key: "x"}))

    def test_that_are_refused_on_the_other_side_are_ignored(self):
        with pytest.warns(IgnoredOptionWarning, match=r"kafka\.key\.serializer \(it has no effect in a batch read\)"):
            batch(**{"kafka.key.serializer": "x"})
