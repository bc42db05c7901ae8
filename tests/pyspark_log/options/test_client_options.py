"""The options of the Python clients."""

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.options import IgnoredOptionWarning
from pyspark_log.options.clients import ConsumerOptions, ProducerOptions, WorkerOptions
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NoCluster


def producer(config=None, **keywords):
    return ProducerOptions.parse(config, keywords)


def consumer(config=None, **keywords):
    return ConsumerOptions.parse(config, keywords)


def test_options_are_given_in_a_dict_or_as_keywords_and_one_that_is_none_is_not_set():
    for found in (producer({"linger.ms": "20", "ACKS": "1"}), producer(linger_ms=20, acks=1)):
        assert (found.linger, found.acks) == (0.02, "1")
    assert producer({"linger.ms": 5}, linger_ms="5", enable_idempotence=False).idempotent is False
    with pytest.raises(InvalidOption, match=r"max\.request\.size is given twice, also as message\.max\.bytes"):
        producer({"max.request.size": 1, "message.max.bytes": 2})
    assert consumer(group_id=None).group is None
    assert producer({"compression.type": None, "batch.size": None}) == producer()
    with pytest.raises(InvalidOption, match=r"unknown option grup_id for a Consumer\. Did you mean group.id"):
        consumer(grup_id=None)


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


def test_names_and_words_of_other_clients_mean_the_same():
    for name, value, field, found in (
        ("message.max.bytes", 5, "max_message_bytes", 5),
        ("queue.buffering.max.ms", 7, "linger", 0.007),
        ("message.timeout.ms", 9, "delivery_timeout_ms", 9),
        ("message.send.max.retries", 2, "retries", 2),
        ("request.required.acks", 1, "acks", "1"),
        ("compression.codec", "lz4", "compression", "lz4"),
        ("allow.auto.create.topics", False, "auto_create_topics", False),
        ("acks", "-1", "acks", "all"),
    ):
        assert getattr(producer({name: value}), field) == found, name
    for reset, words in (("earliest", "smallest beginning"), ("latest", "largest end"), ("none", "error")):
        for word in (reset, *words.split()):
            assert consumer({"auto.offset.reset": word}).reset == reset


@pytest.mark.parametrize(
    ("parse", "name", "value", "message"),
    [
        (producer, "linger_mss", 1, r"unknown option linger_mss for a Producer. Did you mean linger.ms\?"),
        (producer, "auto_offset_reset", 1, "auto_offset_reset for a Producer.\n  Available options: acks"),
        (producer, "linger.ms", -1, "it is less than 0"),
    ],
)
def test_an_unknown_name_and_a_wrong_value_are_refused(parse, name, value, message):
    with pytest.raises(InvalidOption, match=message):
        parse(**{name: value})


def test_a_consumer_commits_by_itself_only_if_it_is_asked_to():
    assert consumer(group_id="g", auto_commit_interval_ms=100).group.auto_commit_interval is None
    group = consumer(group_id="g", enable_auto_commit=True, auto_commit_interval_ms=100).group
    assert group.auto_commit_interval == 0.1


@pytest.mark.parametrize("options", [ConsumerOptions, WorkerOptions])
def test_a_member_sends_a_heartbeat_before_its_group_removes_it(options):
    given = {"group.id": "g"} if options is ConsumerOptions else {}
    options.parse({**given, "session.timeout.ms": 1000, "heartbeat.interval.ms": 999}, {})
    for more in ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 1000}, {"session.timeout.ms": 3000}):
        with pytest.raises(InvalidOption, match=r"must be less than session\.timeout\.ms"):
            options.parse({**given, **more}, {})


@pytest.mark.parametrize(("parse", "refused"), [(producer, "on_delivery"), (consumer, "on_commit")])
def test_callbacks_of_librdkafka_are_ignored_with_a_warning_but_not_those_of_rows(parse, refused):
    given = dict.fromkeys(["error_cb", "logger", "stats_cb", "oauth_cb", "throttle_cb"], print)
    for config, keywords in ((given, {}), ({}, given)):
        with pytest.warns(IgnoredOptionWarning, match=f"which have no effect: {', '.join(given)}$"):
            parse(config, **keywords)
    for config, keywords in (({refused: print}, {}), ({}, {refused: print})):
        with pytest.raises(InvalidOption, match=f"option {refused} cannot be used in a .*; remove it, and "):
            parse(config, **keywords)
