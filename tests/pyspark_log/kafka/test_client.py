"""The connection to Kafka, where there is none."""

import sys

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
