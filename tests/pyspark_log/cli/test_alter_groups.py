"""`pyspark-log groups alter`."""

import pytest

from tests.support.command_line import CommandLine

DELAY = "group.initial.rebalance.delay.ms"


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def config(cli):
    [document] = cli.documents("groups", "describe", "g", "--state")
    return document["config"]


def test_settings_change_before_the_first_member_joins_and_get_their_defaults_back(cli):
    words = ("groups", "alter", "g", "--config", f"{DELAY}=5", "--config", "offset.metadata.max.bytes=10")
    changed = {DELAY: 5, "offset.metadata.max.bytes": 10}
    assert cli.documents(*words) == [{"group": "g", "changed": changed}]
    assert cli.documents(*words) == [{"group": "g", "changed": {}}]
    assert config(cli).items() >= {**changed, "group.min.session.timeout.ms": 6000}.items()
    cli.run("groups", "alter", "g", "--delete-config", DELAY)
    assert config(cli).items() >= {DELAY: 3000, "offset.metadata.max.bytes": 10}.items()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--config", "group.initial.rebalance.delay=5"), f"did you mean '{DELAY}'?"),
        (("--delete-config", "retention.ms"), f"choose one of {DELAY}"),
        (("--config", f"{DELAY}=soon"), "whole number"),
        (("--config", "group.min.session.timeout.ms=1800001"), "exceeds group.max.session.timeout.ms=1800000"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_no_group_is_created(cli, words, said):
    assert said in cli.error("groups", "alter", "g", *words)
    assert cli.documents("groups", "list") == []
