"""The command line, as tests use it: in this process, or as a program of its own."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer import main as typer_main
from typer import testing
from typer.testing import CliRunner, Result

from pyspark_log.cli.main import app

# Otherwise each run makes all commands again: 0.1 s of processor time, four fifths of what a small command takes.
testing._get_command = functools.cache(typer_main.get_command)


class CommandLine:
    """`pyspark-log` with the address of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: object, stdin: str | bytes = "", code: int | None = 0) -> Result:
        """Run a command in this process, and check its exit code, unless it may be any."""
        words = [str(argument) for argument in arguments]
        result = CliRunner().invoke(app, words, input=stdin, env={"PYSPARK_LOG_PATH": str(self.path)})
        assert code in {None, result.exit_code}, (result.stdout, result.stderr, result.exception)
        return result

    def out(self, *arguments: object, stdin: str | bytes = "") -> str:
        """Return what a command prints; nothing may be on stderr."""
        result = self.run(*arguments, stdin=stdin)
        assert result.stderr == ""
        return result.stdout

    def documents(self, *arguments: object, stdin: str | bytes = "") -> list[Any]:
        """Return what a command prints with --json."""
        printed = self.out(*arguments, "--json", stdin=stdin)
        assert printed == "" or printed.endswith("\n")
        return [json.loads(line) for line in printed.split("\n")[:-1]]

    def error(self, *arguments: object, stdin: str | bytes = "", code: int = 1) -> str:
        """Return the one line that a command says when it fails; nothing may be on stdout."""
        result = self.run(*arguments, stdin=stdin, code=code)
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("pyspark-log: ")
        return line.removeprefix("pyspark-log: ")

    def misuse(self, *arguments: object) -> str:
        """Return the last line that is said about a command that was typed wrong."""
        result = self.run(*arguments, code=2)
        assert result.stdout == ""
        return result.stderr.splitlines()[-1]

    def start(self, *arguments: object, **streams: Any) -> "subprocess.Popen[bytes]":
        """Start the program; every stream is a pipe unless `streams` says otherwise."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # Whatever the tests run with, stdout is buffered as it is for users.
        environment = os.environ | {"PYTHONUNBUFFERED": "", "TERM": "xterm"}
        words = [*PROGRAM, *map(str, arguments), "--path", str(self.path)]
        return subprocess.Popen(words, env=environment, **(pipes | streams))


def on_three_nodes(folder: Path) -> CommandLine:
    """Return the command line of a cluster of three nodes, which are in `folder`: log, disk1 and disk2."""
    cli = CommandLine(folder / "log")
    cli.run("topics", "create", "first")
    for number in (1, 2):
        cli.run("nodes", "add", folder / f"disk{number}")
    return cli


def files_of_t(folder: Path) -> dict[str, bytes]:
    """Return the append files and segments of topic t that a node has in its folder, by their paths in it."""
    found = [*folder.glob("topics/t/*/append/*"), *folder.glob("topics/t/*/[0-9]*/*")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if "checkpoint" not in path.name}


def files(folder: Path, *, without: str = "none") -> dict[Path, bytes]:
    """Return the files below a folder, but for those in one that is directly in it."""
    found = {each.relative_to(folder): each for each in folder.rglob("*") if each.is_file()}
    return {path: each.read_bytes() for path, each in found.items() if path.parts[0] != without}


PROGRAM = [sys.executable, "-m", "pyspark_log.cli"]
