"""The options of the Python clients."""

import warnings

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.options.consumer import ConsumerOptions, WorkerOptions, parse_consumer, parse_worker
from pyspark_log.options.foreign import CLIENTS_IGNORED, CLIENTS_REFUSED
from pyspark_log.options.given import IgnoredOptionWarning
from pyspark_log.options.option import Kind, table
from pyspark_log.options.producer import ProducerOptions, parse_producer
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NoCluster

EACH = [*table(ProducerOptions), *table(ConsumerOptions), *table(WorkerOptions)]


def producer(config=None, **keywords):
    return parse_producer(config, keywords)


def consumer(config=None, **keywords):
    return parse_consumer(config, keywords)


@pytest.mark.parametrize("option", EACH, ids=lambda option: option.name)
def test_a_default_is_a_value_that_the_option_takes(option):
    if option.default is not None:
        option.value.read(option.default)


def test_the_defaults_of_a_producer():
    found = producer()
    assert (found.acks, found.linger, found.batch_size, found.buffer_memory) == ("all", 0.005, 2**22, 2**25)
    assert (found.idempotent, found.max_block, found.compression) == (True, 60, None)
    assert found.retry == RetryPolicy()


def test_the_defaults_of_a_consumer():
    found = consumer()
    assert (found.reset, found.max_poll_records, found.rack) == ("latest", 500, "")


def test_options_are_given_in_a_dict_or_as_keywords():
    for found in (producer({"linger.ms": "20", "ACKS": "1"}), producer(linger_ms=20, acks=1)):
        assert (found.linger, found.acks) == (0.02, "1")
    assert producer({"linger.ms": 20}, enable_idempotence=False).idempotent is False


@pytest.mark.parametrize("client", [Producer, Consumer])
def test_the_arguments_of_a_kafka_client_are_refused_with_those_that_are_wanted(client):
    with pytest.raises(InvalidInput, match="the first argument is dict instead of the address of a log"):
        client({"bootstrap.servers": "broker:9092"})
    with pytest.raises(InvalidInput, match="the second argument is 'orders' instead of a dict of options"):
        client("/data/log", "orders")


def test_a_topic_in_place_of_the_address_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Consumer("orders", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(NoCluster, match=r"orders.*A Consumer takes the log's address; topics are for subscribe"):
            consumer.poll()


@pytest.mark.parametrize(
    ("name", "value", "field", "found"),
    [
        ("max.request.size", 5, "max_message_bytes", 5),
        ("message.max.bytes", 5, "max_message_bytes", 5),
        ("queue.buffering.max.ms", 7, "linger", 0.007),
        ("message.timeout.ms", 9, "delivery_timeout_ms", 9),
        ("message.send.max.retries", 2, "retries", 2),
        ("request.required.acks", 1, "acks", "1"),
        ("compression.codec", "lz4", "compression", "lz4"),
        ("allow.auto.create.topics", False, "auto_create_topics", False),
        ("acks", "-1", "acks", "all"),
        ("compression.type", "zstd", "compression", "zstd"),
    ],
)
def test_names_of_other_clients_mean_the_same(name, value, field, found):
    assert getattr(producer({name: value}), field) == found


@pytest.mark.parametrize(("word", "reset"), [("smallest", "earliest"), ("end", "latest"), ("error", "none")])
def test_words_of_librdkafka_mean_the_same(word, reset):
    assert consumer({"auto.offset.reset": word}).reset == reset


@pytest.mark.parametrize(
    ("parse", "name", "message"),
    [
        (producer, "linger_mss", r"unknown option linger.mss for a Producer. Did you mean linger.ms\?"),
        (producer, "auto_offset_reset", "unknown option auto.offset.reset for a Producer. Available options: acks"),
        (consumer, "fetch_max_byte", r"unknown option fetch.max.byte for a Consumer. Did you mean fetch.max.bytes\?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(parse, name, message):
    with pytest.raises(InvalidOption, match=message):
        parse(**{name: 1})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("linger.ms", -1, "it is less than 0"),
        ("acks", "most", "expected all, -1, 1 or 0"),
        ("compression.type", "gzip", "Arrow does not support this codec"),
        ("enable.idempotence", "maybe", "expected true or false"),
        ("batch.size", "", "it is not a whole number"),
    ],
)
def test_a_wrong_value_is_refused(name, value, message):
    with pytest.raises(InvalidOption, match=message):
        producer({name: value})


def test_a_consumer_commits_by_itself_only_if_it_is_asked_to_and_has_a_group():
    assert consumer(group_id="g", auto_commit_interval_ms=100).group.auto_commit_interval is None
    group = consumer(group_id="g", enable_auto_commit=True, auto_commit_interval_ms=100).group
    assert group.auto_commit_interval == 0.1
    with pytest.raises(InvalidOption, match=r"enable\.auto\.commit needs a group; give group\.id too"):
        consumer(enable_auto_commit=True)
    with pytest.raises(InvalidOption, match=r"group\.instance\.id needs a group"):
        consumer(group_instance_id="i")


@pytest.mark.parametrize("parse", [parse_consumer, parse_worker])
def test_a_member_sends_a_heartbeat_before_its_group_removes_it(parse):
    given = {"group.id": "g"} if parse is parse_consumer else {}
    parse({**given, "session.timeout.ms": 1000, "heartbeat.interval.ms": 999}, {})
    for more in ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 1000}, {"session.timeout.ms": 3000}):
        with pytest.raises(InvalidOption, match=r"must be less than session\.timeout\.ms"):
            parse({**given, **more}, {})


def test_an_option_that_is_none_is_not_set():
    assert consumer(group_id=None).group is None
    assert producer({"compression.type": None, "batch.size": None}) == producer()
    with pytest.raises(InvalidOption, match="unknown option grup"):
        consumer(grup_id=None)


def test_two_different_values_are_refused():
    with pytest.raises(InvalidOption, match=r"max\.request\.size is given twice"):
        producer({"max.request.size": 1, "message.max.bytes": 2})
    assert producer({"linger.ms": 5}, linger_ms="5").linger == 0.005


def test_options_about_brokers_are_ignored_with_a_warning():
    with pytest.warns(
        IgnoredOptionWarning, match=r"a Producer: bootstrap.servers, socket.timeout.ms \(there is no broker"
    ):
        producer({"bootstrap.servers": "kafka:9092", "socket.timeout.ms": 1})
    with pytest.warns(IgnoredOptionWarning, match="sasl.password"):
        consumer({"sasl.password": "secret"})
    connection = {
        "metadata_max_age_ms": 1,
        "reconnect_backoff_max_ms": 1,
        "connections_max_idle_ms": 1,
        "receive_buffer_bytes": 1,
        "api_version_auto_timeout_ms": 1,
        "max_in_flight_requests_per_connection": 1,
    }
    for parse in (producer, consumer):
        with pytest.warns(IgnoredOptionWarning, match="metadata.max.age.ms, reconnect.backoff.max.ms"):
            parse(**connection)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer({"linger.ms": 1})


@pytest.mark.parametrize(
    ("parse", "names"),
    [
        (producer, "broker.version.fallback queue.buffering.backpressure.threshold batch.num.messages client.rack"),
        (consumer, "fetch.error.backoff.ms fetch.queue.backoff.ms coordinator.query.interval.ms metric.group.prefix"),
        (consumer, "queued.min.messages queued.max.messages.kbytes message.max.bytes"),
    ],
)
def test_what_kafka_python_and_librdkafka_know_of_brokers_and_requests_is_ignored(parse, names):
    both = "receive.message.max.bytes message.copy.max.bytes log.connection.close https.ca.location sock.chunk.bytes"
    for name in (*names.split(), *both.split(), "debug"):
        with pytest.warns(IgnoredOptionWarning, match=name):
            parse({name: "1"})


def test_callbacks_of_librdkafka_are_ignored_with_a_warning_but_not_those_of_rows():
    for parse in (producer, consumer):
        for name, why in {
            "error_cb": "errors are raised",
            "logger": "errors are raised",
            "log_level": "errors are raised",
            "stats_cb": "a client has no metrics",
            "oauth_cb": "the store's own credentials",
            "throttle_cb": "there is no broker",
        }.items():
            for config, keywords in (({name: print}, {}), ({}, {name: print})):
                with pytest.warns(IgnoredOptionWarning, match=rf"{name} \({why}"):
                    parse(config, **keywords)
    for parse, name in ((producer, "on_delivery"), (consumer, "on_commit")):
        for config, keywords in (({name: print}, {}), ({}, {name: print})):
            with pytest.raises(InvalidOption, match=f"option {name} cannot be used.*; remove it, and give "):
                parse(config, **keywords)


def test_what_a_consumer_of_kafka_asks_of_brokers_is_ignored_with_a_warning():
    with pytest.warns(IgnoredOptionWarning, match=r"request.timeout.ms.*fetch.min.bytes.*group.protocol"):
        consumer(request_timeout_ms=1, fetch_min_bytes=1, group_protocol="consumer")
    assert producer(request_timeout_ms=1).request_timeout == 0.001


@pytest.mark.parametrize(
    ("parse", "name", "advice"),
    [
        (producer, "value_serializer", "encode them before send"),
        (producer, "partitioner", "give send a partition"),
        (producer, "transactional_id", r"producer\.batch\(\)"),
        (producer, "queue.buffering.max.messages", "set buffer.memory"),
        (consumer, "value_deserializer", "decode them in the program"),
        (consumer, "consumer_timeout_ms", "call poll with timeout_ms"),
        (consumer, "enable_partition_eof", "compare position with end_offsets"),
    ],
)
def test_an_option_of_kafka_that_a_program_cannot_do_without_is_refused_with_what_to_do(parse, name, advice):
    with pytest.raises(InvalidOption, match=f"cannot be used in a (Producer|Consumer): .*{advice}"):
        parse(**{name: "murmur2"})
    assert parse(**{name: None}) == parse()


def test_each_option_of_kafkas_clients_is_either_taken_ignored_or_refused():
    for foreign in (*CLIENTS_IGNORED, *CLIENTS_REFUSED):
        for kind, options in ((Kind.PRODUCER, ProducerOptions), (Kind.CONSUMER, ConsumerOptions)):
            taken = {name for option in table(options) for name in (option.name, *option.prefixed)}
            assert kind not in foreign.kinds or not taken.intersection(foreign.names)
    names = [name for foreign in (*CLIENTS_IGNORED, *CLIENTS_REFUSED) for name in foreign.names]
    assert len(set(names)) == len(names)
