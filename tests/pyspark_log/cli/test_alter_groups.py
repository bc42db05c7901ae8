"""`pyspark-log groups alter`."""

import pytest

from tests.support.command_line import CommandLine

DELAY = "group.initial.rebalance.delay.ms"


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def config(cli, group="g"):
    [document] = cli.documents("groups", "describe", group, "--state")
    return document["config"]


def test_settings_are_altered_before_the_first_member_joins_and_the_others_stay(cli):
    told = cli.out("groups", "alter", "g", "--config", f"{DELAY}=0", "--config", "offset.metadata.max.bytes=10")
    assert told == f"group g: {DELAY}=0 (was 3000)\ngroup g: offset.metadata.max.bytes=10 (was 4096)\n"
    assert (config(cli)[DELAY], config(cli)["group.min.session.timeout.ms"]) == (0, 6000)
    assert f"config {DELAY}=0\n" in cli.out("groups", "describe", "g", "--state")


def test_settings_get_their_defaults_back(cli):
    cli.run("groups", "alter", "g", "--config", f"{DELAY}=0")
    assert cli.out("groups", "alter", "g", "--delete-config", DELAY) == f"group g: {DELAY}=3000 (was 0)\n"


def test_for_machines_altering_tells_what_has_changed(cli):
    words = ["groups", "alter", "g", "--config", f"{DELAY}=5"]
    assert cli.documents(*words) == [{"group": "g", "changed": {DELAY: 5}}]
    assert cli.documents(*words) == [{"group": "g", "changed": {}}]
    assert cli.out(*words) == "group g already has these settings; nothing was changed\n"


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


def test_a_change_is_given(cli):
    assert "nothing to change" in cli.misuse("groups", "alter", "g")
    both = ("--config", f"{DELAY}=0", "--delete-config", DELAY)
    assert f"{DELAY} is also given with --config" in cli.misuse("groups", "alter", "g", *both)
