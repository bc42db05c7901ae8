"""What all commands promise: with --json stdout has JSON alone, an error is on stderr, and everything has help."""

import configparser
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import pyspark_log
from pyspark_log.build import build
from pyspark_log.cli.main import app
from tests.support.command_line import CommandLine, on_three_nodes
from tests.support.lost_folders import lose_folder

NODE = "2"
COMMANDS = {
    # In an order in which each can be done once. Those without --json print JSON in any case.
    "topics create": ["t", "--partitions", "2", "--config", "flush.messages=1"],
    "topics list": [],
    "produce": ["t", "--format", "json"],
    "consume": ["t", "--rack", "a"],
    "offsets": ["t"],
    "groups reset-offsets": ["g", "--topic", "t", "--to-earliest", "--execute"],
    "groups list": [],
    "groups describe": ["g"],
    "groups alter": ["g", "--config", "group.initial.rebalance.delay.ms=0"],
    "groups export": ["g"],
    "groups import": ["{folder}/offsets.csv"],
    "groups delete-offsets": ["g", "--topic", "t"],
    "groups delete": ["g", "--yes"],
    "metrics": [],
    "topics describe": ["t"],
    "topics alter": ["t", "--config", "retention.ms=-1"],
    "topics add-partitions": ["t", "--partitions", "3"],
    "topics reassign": ["t", "--replication-factor", "2"],
    "topics elect-leaders": [],
    "cluster check-store": ["{folder}"],
    "cluster describe": [],
    "cluster adopt": ["--moved", "--yes"],
    "backup": ["{folder}/backups"],
    "restore": ["{folder}/backups", "--as-new", "--yes", "--path", "{folder}/restored"],
    "nodes add": ["{folder}/disk3"],
    "nodes list": [],
    "nodes describe": [NODE],
    "nodes alter": [NODE, "--rack", "a"],
    "node run": [NODE, "--once"],
    "maintain": [],
    "verify": [],
    "recover": ["--node", NODE],
    "dump": ["{folder}/disk1/node"],
    "delete-records": ["t", "--partition", "0", "--before", "-1", "--yes"],
    "nodes drain": [NODE],
    "nodes unfence": [NODE],
    "nodes fence": [NODE],
    "nodes renew": [NODE],
    "nodes remove": [NODE, "--yes"],
    "topics delete": ["t", "--yes"],
    "cluster create": ["--journal-nodes", "{folder}/a,{folder}/b,{folder}/c"],
    "cluster migrate-journals": ["--to", "0,1,2", "--path", "{folder}/a,{folder}/b,{folder}/c"],
    "cluster rebuild": ["--nodes", "{folder}/a,{folder}/b,{folder}/c"],
}
SERVING: dict[str, list[str]] = {"ui": []}
"""Commands that serve until they are interrupted: tests/browser has what they do."""


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of three nodes, and a file of offsets."""
    (tmp_path / "offsets.csv").write_text("g,t,0,0\n")
    return on_three_nodes(tmp_path)


def all_commands(group: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its words."""
    group = group or typer.main.get_command(app)
    for word in group.commands:
        command, words = group.get_command(None, word), f"{name} {word}".strip()
        if hasattr(command, "commands"):
            yield from all_commands(command, words)
        else:
            yield words, command


def words_of(name: str, folder: Path) -> list[str]:
    words = [*name.split(), *(word.format(folder=folder) for word in (COMMANDS | SERVING)[name])]
    return words if name in {"dump", *SERVING} else [*words, "--json"]


def documents(printed: str) -> list[Any]:
    """Return the documents that were printed, each on a line of its own and whole."""
    assert printed == "" or printed.endswith("\n")
    return [json.loads(line) for line in printed.split("\n")[:-1]]


def test_every_command_prints_json_and_nothing_else(cli, tmp_path):
    assert sorted(COMMANDS | SERVING) == sorted(name for name, _ in all_commands())
    for name in COMMANDS:
        if name == "cluster rebuild":
            for journal_node in "abc":
                lose_folder(tmp_path / journal_node / "cluster")
        stdin = '{"value": "v"}\n' if name == "produce" else ""
        result = cli.run(*words_of(name, tmp_path), stdin=stdin)
        assert result.stderr == "", name
        found = documents(result.stdout)
        assert all(isinstance(each, dict) for each in found), name
        assert found or name == "topics elect-leaders", name


def test_an_error_prints_nothing_but_a_sentence_on_stderr_and_creates_nothing(cli, tmp_path):
    for name, command in all_commands():
        if name == "restore":
            continue  # an address without a backup is a command that was typed wrong
        words = words_of(name, tmp_path)
        if name in {"topics create", "cluster create"}:
            shutil.copytree(tmp_path / "disk1", tmp_path / name)  # a node that is no root
            where = ["--journal-nodes", f"{tmp_path / name},{tmp_path}/y,{tmp_path}/z"]
            words = [*name.split(), "t", "--json"] if name == "topics create" else [*name.split(), *where, "--json"]
        if name == "cluster check-store":
            words = [*name.split(), str(tmp_path / "nowhere"), "--json"]
        if name == "dump":
            (tmp_path / "else").write_text("another file")
            words = ["dump", str(tmp_path / "else")]
        if any(each.name == "path" for each in command.params):
            words += ["--path", str(tmp_path / (name if name == "topics create" else "nowhere"))]
        result = cli.run(*words, code=1)
        assert result.stdout == "", name
        [line] = result.stderr.splitlines()
        assert line.startswith("pyspark-log: "), name
        assert not (tmp_path / "nowhere").exists()


# Help


def test_every_command_has_help_with_an_example_and_says_on_stderr_what_was_typed_wrong(tmp_path):
    cli = CommandLine(tmp_path / "log")
    assert cli.out("--version") == f"pyspark-log {pyspark_log.__version__} (build {build()})\n"
    for name, command in all_commands():
        shown = cli.out(*name.split(), "--help")
        assert shown.startswith("Usage: pyspark-log ")
        assert command.help, name
        assert f"  pyspark-log {name}" in shown, name
        assert "[[" not in shown, name
        assert max(map(len, shown.splitlines())) <= 90, name
        without = [each.name for each in command.params if not getattr(each, "help", None) and each.name != "help"]
        assert without == [], name
        result = cli.run(*name.split(), "--jsom", code=2)
        assert (result.stdout, result.stderr.splitlines()[0].split()[:2]) == ("", ["Usage:", "pyspark-log"]), name


def test_a_list_shows_the_first_sentence_of_a_commands_own_help_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], ["cluster"], ["nodes"], ["topics"], ["groups"], ["node"]):
        group = typer.main.get_command(app)
        for word in words:
            group = group.get_command(None, word)
        _, _, listed = CommandLine(tmp_path).out(*words, "--help").partition("Commands:")
        for name, lazy in group.commands.items():
            command = group.get_command(None, name)
            assert lazy.help == command.get_short_help_str(limit=200), name
            assert f"{name} {lazy.help}" in " ".join(listed.split()), name


# The systemd units in examples/operations start commands and options that exist

UNITS = Path(__file__).parents[3] / "examples" / "operations"


def test_there_is_a_unit_for_each_program_that_runs_all_the_time_with_options_that_it_has():
    for name in ("metrics", "node", "node@"):
        parsed = configparser.RawConfigParser(strict=True)
        parsed.optionxform = str
        parsed.read_string((UNITS / f"pyspark-log-{name}.service").read_text())
        assert {"Unit", "Service", "Install"} == set(parsed.sections())
        program, *words = shlex.split(parsed["Service"]["ExecStart"])
        assert program.endswith("/pyspark-log")
        command = typer.main.get_command(app)
        while getattr(command, "commands", None):
            command = command.get_command(None, words.pop(0))
        command.make_context(command.name, words)  # raises for an option or a value that it does not take
    assert len(list(UNITS.glob("*.service"))) == 3
