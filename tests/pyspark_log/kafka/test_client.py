"""The connection to Kafka, where there is none."""

import sys
from types import SimpleNamespace

import pytest

from pyspark_log.kafka import groups
from pyspark_log.kafka.client import Kafka, KafkaTopic
from pyspark_log_storage.errors import LogError
from tests.support.command_line import CommandLine

WORDS = ("import", "kafka", "--bootstrap-server", "127.0.0.1:1", "--topic", "t")


def test_without_the_client_library_the_command_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    said = CommandLine(tmp_path / "log").error(*WORDS)
    assert said == "this command needs the package confluent-kafka; install it with: pip install 'pyspark-log[kafka]'"


def test_a_file_of_settings_that_the_client_does_not_know_is_refused(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("no.such.setting=x\n")
    said = CommandLine(tmp_path / "log").error(*WORDS, "--command-config", file)
    assert said == '--command-config: No such configuration property: "no.such.setting"; correct the file'


def test_arguments_that_contradict_each_other_are_refused(tmp_path):
    cli = CommandLine(tmp_path / "log")
    assert "cannot be combined with --group" in cli.misuse(*WORDS, "--all-groups", "--group", "g")
    assert "'5' is not earliest, latest or @TIME" in cli.misuse(*WORDS, "--from", "5")
    assert "'mix' is not keep or map" in cli.misuse(*WORDS, "--offsets", "mix")


def test_a_typed_topic_is_not_exported_and_nothing_is_created_in_kafka_for_it(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--schema", "id BIGINT")
    for more in ([], ["--execute"]):
        said = cli.error("export", *WORDS[1:], "--timeout-ms", 1000, *more)
        assert said.startswith("topic 't' is typed, and Kafka has records of key and value; ")


def test_a_wait_that_kafkas_client_does_not_know_is_refused(tmp_path):
    pytest.importorskip("confluent_kafka")
    cli = CommandLine(tmp_path / "log")
    for command in ("import", "export"):
        said = cli.misuse(command, *WORDS[1:], "--timeout-ms", "900001")
        assert "900001 is greater than 900000" in said


def answer(number, offset, error=None):
    return SimpleNamespace(topic="t", partition=number, offset=offset, metadata=None, error=error)


def test_a_partition_without_an_answer_is_no_partition_without_rows():
    library = pytest.importorskip("confluent_kafka")
    kafka = Kafka("broker:9092", {}, 1)
    error = library.KafkaError(library.KafkaError.LEADER_NOT_AVAILABLE)
    consumer = SimpleNamespace(offsets_for_times=lambda *_, **__: [answer(0, -1), answer(1, -1001, error)])
    with pytest.raises(LogError, match="Kafka at broker:9092: Broker: Leader not available"):
        kafka.offsets_at(consumer, "t", 5, [10, 10])
    consumer.offsets_for_times = lambda *_, **__: [answer(0, -1), answer(1, 3)]
    assert kafka.offsets_at(consumer, "t", 5, [10, 10]) == [10, 3]


def test_a_new_topic_of_which_not_all_brokers_know_is_waited_for():
    library = pytest.importorskip("confluent_kafka")
    kafka = Kafka("broker:9092", {}, 1)
    asked = []

    def settings():
        asked.append("settings")
        if len(asked) == 1:
            raise library.KafkaException(library.KafkaError(library.KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {}

    def promise(result):
        return SimpleNamespace(result=lambda _: result())

    kafka._admin = SimpleNamespace(
        create_topics=lambda *_, **__: {"t": promise(lambda: None)},
        list_topics=lambda **_: SimpleNamespace(cluster_id="c"),
        describe_topics=lambda *_, **__: {"t": promise(lambda: SimpleNamespace(topic_id="i", partitions=[0]))},
        describe_configs=lambda resources, **_: {resources[0]: promise(settings)},
        poll=lambda _: 0,
    )
    assert kafka.create_topic("t", 1, {}) == KafkaTopic("t", "c", "i", 1, {})
    assert len(asked) == 2


def test_a_group_of_which_kafka_does_not_know_an_offset_now_has_not_committed_nothing():
    library = pytest.importorskip("confluent_kafka")
    kafka = Kafka("broker:9092", {}, 1)
    found = [answer(0, 7), answer(1, -1001, library.KafkaError(library.KafkaError.UNSTABLE_OFFSET_COMMIT))]
    future = SimpleNamespace(result=lambda _: SimpleNamespace(topic_partitions=found))
    kafka._admin = SimpleNamespace(list_consumer_group_offsets=lambda *_, **__: {"g": future}, poll=lambda _: 0)
    with pytest.raises(LogError, match="Kafka at broker:9092: "):
        groups.committed(kafka, KafkaTopic("t", "c", "i", 2, {}), ["g"])
    found[1] = answer(1, -1001)
    assert [each.offset for each in groups.committed(kafka, KafkaTopic("t", "c", "i", 2, {}), ["g"])] == [7]
