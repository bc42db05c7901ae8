"""`pyspark-log topics alter`."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def test_settings_are_altered_and_the_others_stay(cli):
    cli.run("topics", "create", "t", "--config", "compression.type=zstd")
    told = cli.out("topics", "alter", "t", "--config", "retention.ms=1000", "--config", "segment.bytes=5")
    assert told == ("topic t: segment.bytes=5 (was 1073741824)\ntopic t: retention.ms=1000 (was 604800000)\n")
    (described,) = cli.documents("topics", "describe", "t")
    config = described["config"]
    assert (config["retention.ms"], config["segment.bytes"], config["compression.type"]) == (1000, 5, "zstd")


def test_settings_get_their_defaults_back(cli):
    cli.run("topics", "create", "t", "--config", "retention.ms=5", "--config", "unclean.leader.election.enable=true")
    words = ("--delete-config", "unclean.leader.election.enable", "--delete-config", "retention.ms")
    assert cli.out("topics", "alter", "t", *words) == (
        "topic t: retention.ms=604800000 (was 5)\ntopic t: unclean.leader.election.enable=false (was true)\n"
    )
    assert "did you mean 'retention.ms'?" in cli.error("topics", "alter", "t", "--delete-config", "retention.m")


def test_for_machines_altering_tells_what_has_changed(cli):
    cli.run("topics", "create", "t")
    words = ["topics", "alter", "t", "--config", "retention.ms=1000", "--config", "segment.bytes=1073741824"]
    assert cli.documents(*words) == [{"topic": "t", "changed": {"retention.ms": 1000}}]
    assert cli.documents(*words) == [{"topic": "t", "changed": {}}]
    assert cli.out(*words) == "topic t already has these settings; nothing was changed\n"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("retention.msec=5", "did you mean 'retention.ms'?"),
        ("retention.ms=soon", "whole number"),
        ("segment.bytes=0", "whole number"),
        ("compression.type=gzip", "gzip"),
        ("cleanup.policy=compaction", "choose delete, compact or compact,delete"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_none_is_altered(cli, setting, said):
    cli.run("topics", "create", "t")
    (before,) = cli.documents("topics", "describe", "t")
    assert said in cli.error("topics", "alter", "t", "--config", "segment.ms=5", "--config", setting)
    assert cli.documents("topics", "describe", "t") == [before]


def test_altering_an_unknown_topic_is_an_error(cli):
    cli.run("topics", "create", "t")
    assert "'u'" in cli.error("topics", "alter", "u", "--config", "retention.ms=1")


def test_altering_nothing_is_a_mistake(cli):
    cli.run("topics", "create", "t")
    assert "--config, --delete-config" in cli.misuse("topics", "alter", "t")
    both = ("--config", "retention.ms=1", "--delete-config", "retention.ms")
    assert "retention.ms is also given with --config; remove one of them" in cli.misuse("topics", "alter", "t", *both)
    assert "KEY=VALUE" in cli.misuse("topics", "alter", "t", "--config", "retention.ms")
