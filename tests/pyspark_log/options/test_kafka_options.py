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
    with pytest.warns(IgnoredOptionWarning, match=r"no effect: kafka\.compression\.type$"):
        assert write({"kafka.compression.type": "snappy"}).compression is None


def test_beside_ours_the_same_value_is_welcome_and_another_one_refused_without_showing_credentials():
    assert write({"acks": "1", "kafka.acks": "1 "}).acks == "1"
    assert str(refusal(write, {"acks": "all", "kafka.acks": "1"})) == (
        "option acks is given twice, also as kafka.acks, with different values; remove one of them"
    )
    given = {"storage_options": '{"secret": "geheim"}', "Storage_Options": '{"secret": "anders"}'}
    assert str(refusal(write, given)).startswith("option storage_options is given twice, also as Storage_Options")


def test_options_that_have_no_effect_here_are_named_in_one_warning_without_their_values():
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
    assert [str(one.message) for one in caught] == [
        f"ignored options of a streaming read, which have no effect: {', '.join(ignored)}"
    ]
    for key, parse in (("kafka.client.rack", parse_sink), ("kafka.key.serializer", parse_source)):
        with pytest.warns(IgnoredOptionWarning, match=key):
            parse((READ if parse is parse_source else WRITE) | {key: "x"}, streaming=False)


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("request.required.acks", "it was an option of Kafka's producer before 0.9; use acks"),
        ("log.retention.hours", "it is a setting of Kafka's brokers; use the topic's retention.ms, in"),
        ("log.cleaner.threads", "it is a setting of Kafka's brokers, and there are none; leave it out"),
        ("retention.ms", "set it with: pyspark-log topics alter TOPIC --config retention.ms=VALUE"),
    ],
)
def test_settings_of_topics_and_brokers_are_refused_with_what_takes_their_place(prefix, name, advice):
    for kind, error in (
        ("a streaming write", refusal(write, {prefix + name: "1"})),
        ("a streaming read", refusal(stream, **{prefix + name: "1"})),
    ):
        said = str(error)
        assert said.startswith(f"option {prefix}{name} cannot be used in {kind}: ")
        assert advice in said


@pytest.mark.parametrize(
    ("parse", "key", "said"),
    [
        (stream, "kafka.bootstrap.server", "Did you mean kafka.bootstrap.servers?"),
        (stream, "kafka.subscribe", "Did you mean subscribe?"),
        (stream, "kafka.auto.offset.reset", "cannot be used in a streaming read; remove it, and use startingOffsets"),
        (write, "kafka.compresion.type", "Did you mean kafka.compression.type?"),
        (write, "kafka.max.message.bytes", "Did you mean max.message.bytes?"),
        (write, "kafka.partitioner.class", "add a column `partition`"),
    ],
)
def test_a_misspelt_option_and_one_that_would_change_what_is_read_or_written_is_refused(parse, key, said):
    error = refusal(parse, {key: "x"}) if parse is write else refusal(parse, **{key: "x"})
    assert said in str(error)
