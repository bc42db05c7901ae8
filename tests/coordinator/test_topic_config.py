"""A topic's configuration, under Kafka's names."""

import pytest

from pyspark_log_coordinator.topic_config import TopicConfig, defaults, parse, words
from pyspark_log_storage.errors import InvalidOption


def test_nothing_set_means_kafkas_defaults():
    assert parse({}) == TopicConfig()


def test_settings_are_taken_by_kafkas_names():
    settings = {"compression.type": "zstd", "min.insync.replicas": "2", "max.message.bytes": "1000"}
    assert parse(settings) == TopicConfig("zstd", 2, 1000)


def test_what_is_shown_can_be_set():
    config = TopicConfig("none", 3, 77, unclean_leader_election_enable=True, replication_mode="quorum")
    assert parse(words(config)) == config


def test_defaults_are_had_by_name():
    assert defaults(["retention.bytes", "unclean.leader.election.enable"]) == {
        "retention.bytes": "-1",
        "unclean.leader.election.enable": "false",
    }
    with pytest.raises(InvalidOption, match=r"did you mean 'retention\.ms'"):
        defaults(["retention.mss"])


def test_the_one_cleanup_policy_may_be_named():
    assert parse({"cleanup.policy": "delete"}) == TopicConfig()


def test_another_cleanup_policy_is_refused():
    with pytest.raises(InvalidOption, match="compact"):
        parse({"cleanup.policy": "compact"})


def test_a_misspelt_name_is_refused_with_the_right_one():
    with pytest.raises(InvalidOption, match=r"did you mean 'min\.insync\.replicas'"):
        parse({"min.insync.replica": "1"})


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "1.5"])
def test_a_number_that_is_none_is_refused(value):
    with pytest.raises(InvalidOption, match="whole number"):
        parse({"min.insync.replicas": value})


def test_an_unknown_compression_is_refused():
    with pytest.raises(InvalidOption, match="snappy"):
        parse({"compression.type": "snappy"})
