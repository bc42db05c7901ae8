"""The version, and the help of each command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_log
from pyspark_log.cli.commands import COMMANDS, Group, LazyCommands
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def test_version(cli):
    assert cli.out("--version") == f"pyspark-log {pyspark_log.__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["topics", "create"],
        ["topics", "list"],
        ["topics", "describe"],
        ["topics", "delete"],
        ["produce"],
        ["consume"],
        ["offsets"],
    ],
)
def test_every_command_has_help_with_an_example(cli, command):
    shown = cli.out(*command, "--help")
    assert shown.startswith("Usage: ")
    assert f"  pyspark-log {' '.join(command)}" in shown


@pytest.mark.parametrize("group", [[], ["cluster"], ["nodes"], ["topics"], ["groups"]])
def test_no_summary_is_cut_on_a_narrow_terminal(cli, group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = cli.out(*group, "--help").partition("Commands:")[2]
    assert listed
    assert [line for line in listed.splitlines() if line.endswith(("...", "…"))] == []


def commands(among: LazyCommands = COMMANDS) -> Iterator[tuple[LazyCommands, str]]:
    """Each command, also those of groups: the table where it is, and its name."""
    for name in among:
        yield among, name
        if isinstance(among[name], Group):
            yield from commands(among[name].commands)


@pytest.mark.parametrize(("table", "name"), [pytest.param(*each, id=each[1]) for each in commands()])
def test_a_list_shows_the_first_sentence_of_a_commands_own_help(table, name):
    # It is read from the source, so that the list imports no command.
    assert table.summary(name) == table[name].get_short_help_str(limit=200)


def test_a_command_that_is_not_there_suggests_one(cli):
    assert cli.misuse("topics", "creat") == "Error: No such command 'creat'. Did you mean 'create'?"


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        (
            [],
            (
                "cluster nodes topics produce consume offsets groups delete-records ui metrics maintain node verify "
                "recover backup restore dump export import"
            ),
        ),
        (["cluster"], "create describe adopt migrate-journals rebuild check-store"),
        (["nodes"], "add list describe alter fence unfence drain renew remove"),
        (["topics"], "create list describe alter add-partitions reassign elect-leaders delete"),
        (["node"], "run"),
        (["groups"], "list describe alter reset-offsets export import delete-offsets delete"),
    ],
)
def test_commands_are_listed_in_the_order_in_which_one_meets_them(cli, group, commands):
    _, listed = cli.out(*group, "--help").split("Commands:\n")
    assert [line.split()[0] for line in listed.split("\n\n")[0].splitlines()] == commands.split()
