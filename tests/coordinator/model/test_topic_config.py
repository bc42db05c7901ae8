"""A topic's configuration, under Kafka's names."""

import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig, parse, with_columns
from pyspark_log_storage.columns import column_ddl, schema
from pyspark_log_storage.errors import InvalidOption


def test_settings_are_taken_by_kafkas_names_and_what_is_shown_can_be_set():
    assert parse({}) == TopicConfig()
    settings = {"compression.type": "zstd", "min.insync.replicas": "2", "max.message.bytes": "1000"}
    assert parse(settings) == TopicConfig("zstd", 2, 1000)
    assert parse({"min.cleanable.dirty.ratio": "0.25"}).min_cleanable_dirty_ratio == 0.25
    config = TopicConfig("none", 3, 77, unclean_leader_election_enable=True, replication_mode="quorum")
    assert parse(config.words()) == config


def test_the_two_words_of_a_cleanup_policy_have_no_order():
    assert parse({"cleanup.policy": "delete, compact"}).cleanup_policy == "compact,delete"
    assert parse({"cleanup.policy": "compact,delete"}).cleanup_policy == "compact,delete"
    assert parse({"cleanup.policy": "compact"}).cleanup_policy == "compact"
    assert parse({"cleanup.policy": "delete"}) == TopicConfig()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "replica.lag.max.messages",
            r"removed it in 0\.9 \(KIP-16\), .* the topic's replica\.lag\.time\.max\.ms",
        ),
        ("request.required.acks", r"use acks, which a write takes"),
        ("log.retention.hours", r"use the topic's retention\.ms, in milliseconds"),
        ("log.segment.bytes", r"use the topic's segment\.bytes$"),
        ("log.flush.interval.messages", r"use the topic's flush\.messages$"),
        ("log.dirs", r"use path, and pyspark-log nodes add"),
        ("log.cleaner.threads", r"it is a setting of Kafka's brokers, and there are none; leave it out"),
        ("replica.lag.min.bytes.sent", r"it is a setting of Kafka's brokers, and there are none; leave it out"),
        ("replica.lag.time.ms", r"did you mean 'replica\.lag\.time\.max\.ms'\?"),
    ],
)
def test_a_setting_of_kafkas_brokers_is_refused_with_what_takes_its_place(name, advice):
    with pytest.raises(InvalidOption, match=advice):
        parse({name: "1"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *[("min.insync.replicas", each, "whole number") for each in ("0", "-1", "two", "", "1.5")],
        *[("min.cleanable.dirty.ratio", each, "a number from 0 to 1") for each in ("1.01", "-0.1", "nan", "half")],
        ("compression.type", "snappy", "snappy"),
        ("cleanup.policy", "compact,compact", "'compact,compact' is unknown; choose delete, compact or compact,delete"),
        ("min.insync.replica", "1", r"did you mean 'min\.insync\.replicas'"),
    ],
)
def test_a_wrong_value_or_name_is_refused(name, value, said):
    with pytest.raises(InvalidOption, match=said):
        parse({name: value})


def of_columns(**settings):
    columns = column_ddl.parse("Id BIGINT, name STRING, gone BOOLEAN, price DOUBLE")
    return with_columns("t", TopicConfig(**settings), [schema.encode(schema.typed(columns))])


def test_settings_name_columns_as_the_topic_spells_them():
    config = of_columns(key_column="NAME,id", delete_when="Gone")
    assert (config.key_column, config.delete_when) == ("name,Id", "gone")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_column": "id,ID"}, "key.column names 'Id' twice; name it once"),
        ({"key_column": "price"}, "key.column 'price' has type double; choose a column of text"),
        ({"key_column": "other"}, "key.column is 'other', and the columns are Id BIGINT"),
        ({"key_column": "id", "delete_when": "name"}, "delete.when 'name' has type string; choose a column of type"),
        ({"cleanup_policy": "compact"}, "say which column has the keys with key.column"),
    ],
)
def test_a_column_that_cannot_do_what_a_setting_says_is_refused(settings, message):
    with pytest.raises(InvalidOption, match=message):
        of_columns(**settings)
