"""Options of Kafka and its connector: taken over, ignored, or refused with the reason."""

import pytest

from pyspark_log.options import IgnoredOptionWarning, parse_sink, parse_source
from tests.support.pyspark_log.parsed_options import READ, WRITE, batch, refusal, stream, write


def test_options_of_clients_that_are_known_here_mean_ours():
    given = {"acks": "1", "compression.type": "zstd", "retries": "3", "retry.backoff.ms": "7"}
    given |= {"delivery.timeout.ms": "8", "max.request.size": "9"}
    parsed = write({f"kafka.{name}": text for name, text in given.items()})
    assert (parsed.acks, parsed.compression, parsed.retry.retries) == ("1", "zstd", 3)
    assert (parsed.retry.retry_backoff_ms, parsed.retry.delivery_timeout_ms, parsed.max_message_bytes) == (7, 8, 9)
    for name in ("client.rack", "kafka.client.rack", "Client.Rack"):
        assert stream(**{name: "east"}).client_rack == batch(**{name: "east"}).client_rack == "east"


def test_beside_ours_the_same_value_is_welcome_and_another_one_refused_without_showing_credentials():
    assert write({"acks": "1", "kafka.acks": "1 "}).acks == "1"
    assert str(refusal(write, {"acks": "all", "kafka.acks": "1"})) == (
        "options acks and kafka.acks mean the same but have different values ('all' and '1'); remove one of them"
    )
    error = refusal(write, {"max.message.bytes": "5", "kafka.max.request.size": "6"})
    assert "options max.message.bytes and kafka.max.request.size mean the same" in str(error)
    given = {"storage_options": '{"secret": "geheim"}', "Storage_Options": '{"secret": "anders"}'}
    said = str(refusal(write, given))
    assert said == (
        "options storage_options and storage_options mean the same but have different values; remove one of them"
    )


def test_options_that_have_no_sense_here_are_named_in_one_warning_without_their_values():
    ignored = {
        "kafka.bootstrap.servers": "host:9092",
        "kafka.sasl.jaas.config": "secret",
        "kafkaconsumer.polltimeoutms": "5",
        "kafka.group.id": "g",
        "groupidprefix": "p",
        "kafka.acks": "1",
    }
    with pytest.warns(IgnoredOptionWarning) as caught:
        stream(**ignored)
    [message] = [str(one.message) for one in caught]
    assert all(name.lower() in message.lower() for name in ignored)
    assert "secret" not in message
    for key, parse in (("kafka.client.rack", parse_sink), ("kafka.key.serializer", parse_source)):
        with pytest.warns(IgnoredOptionWarning, match=rf"{key} \(it has no effect in a batch"):
            parse((READ if parse is parse_source else WRITE) | {key: "x"}, streaming=False)


@pytest.mark.parametrize("key", ["kafka.linger.ms", "kafka.fetch.min.bytes", "kafka.security.protocol", "kafka.ssl.x"])
def test_options_of_the_connection_are_ignored_on_both_sides(key):
    for parse, given in ((parse_source, READ), (parse_sink, WRITE)):
        for streaming in (True, False):
            with pytest.warns(IgnoredOptionWarning, match=key):
                parse(given | {key: "x"}, streaming=streaming)


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("request.required.acks", "it was an option of Kafka's producer before 0.9; use acks"),
        ("replica.lag.max.messages", "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy"),
        ("log.retention.hours", "it is a setting of Kafka's brokers; use the topic's retention.ms, in"),
        ("log.cleaner.threads", "it is a setting of Kafka's brokers, and there are none; leave it out"),
    ],
)
def test_options_of_brokers_are_refused_with_what_takes_their_place(prefix, name, advice):
    for error in (refusal(write, {prefix + name: "1"}), refusal(stream, **{prefix + name: "1"})):
        assert str(error).startswith(f"option {prefix}{name} cannot be used: {advice}")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("kafka.bootstrap.server", "Did you mean kafka.bootstrap.servers?"),
        ("kafka.subscribe", "Did you mean subscribe?"),
        ("kafka.auto.offset.reset", "use startingOffsets"),
        ("kafka.enable.auto.commit", "Spark's checkpoint stores the query's offsets"),
        ("kafka.key.deserializer", "decode them with DataFrame operations"),
        ("kafka.interceptor.classes", "Java classes are not supported"),
    ],
)
def test_options_that_would_change_a_read_are_refused(key, said):
    assert said in str(refusal(stream, **{key: "x"}))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("kafka.compresion.type", "Did you mean kafka.compression.type?"),
        ("kafka.max.message.bytes", "Did you mean max.message.bytes?"),
        ("retention.ms", "set it with: pyspark-log topics alter TOPIC --config retention.ms=VALUE"),
        ("kafka.min.insync.replicas", "set it with: pyspark-log topics alter TOPIC --config min.insync.replicas=VALUE"),
        ("kafka.value.serializer", "encode them with DataFrame operations"),
        ("kafka.partitioner.class", "add a column `partition`"),
        ("kafka.interceptor.classes", "Java classes are not supported"),
    ],
)
def test_options_that_would_change_a_write_are_refused(key, said):
    assert said in str(refusal(write, {key: "x"}))
