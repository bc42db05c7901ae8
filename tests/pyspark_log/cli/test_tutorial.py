"""The tutorial: its commands print what it shows."""

import logging
import re
import shlex
from pathlib import Path

from tests.support.command_line import CommandLine

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"


def steps():
    """Return each command of the tutorial, and the lines that it shows below."""
    blocks = "".join(re.findall(r"```console\n(.*?)```", TUTORIAL.read_text(), flags=re.DOTALL))
    commands = [step.splitlines() for step in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]]
    return [(command, [line for line in lines if line]) for command, *lines in commands]


def comparable(command, lines):
    """Return lines without what differs each time: ids, times, and which replicas lead."""
    if "--under-replicated-partitions" in command:
        lines = [line if index < 2 else line[:12] for index, line in enumerate(lines)]
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", "TIME", "\n".join(lines))
    return re.sub(r"\b[0-9a-f]{32}\b", "ID", text).splitlines()


def test_each_command_of_the_tutorial_prints_what_the_tutorial_shows(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "pyspark_log")
    cli = CommandLine(tmp_path)
    for command, shown in steps():
        if command == "pyspark-log consume flights --group audit --key-separator :":
            cli.run("groups", "alter", "audit", "--config", "group.initial.rebalance.delay.ms=0")
        caplog.clear()
        printed = run(cli, command.replace("/tmp/tutorial", str(tmp_path)))
        found = [line.replace(str(tmp_path), "/tmp/tutorial") for line in [*caplog.messages, *printed] if line]
        assert comparable(command, found) == comparable(command, shown), command


def run(cli, command):
    """Carry out a command as a shell does, and return what it prints."""
    *first, last = command.split(" | ")
    stdin = shlex.split(first[0])[1].replace(r"\n", "\n") if first else ""
    program, *words = shlex.split(last)
    match program:
        case "export":
            cli.path = words[0].removeprefix("PYSPARK_LOG_PATH=")
        case "mv":
            Path(words[0]).rename(words[1])
        case "pyspark-log":
            return cli.out(*words, stdin=stdin).splitlines()
        case _:
            raise AssertionError(command)
    return []
