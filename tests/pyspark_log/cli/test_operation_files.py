"""The systemd units in examples/operations start commands and options that exist."""

import configparser
import shlex
from pathlib import Path

import pytest
from typer import main as typer_main

from pyspark_log.cli.main import app

UNITS = sorted((Path(__file__).parents[3] / "examples" / "operations").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str
    parsed.read_string(unit.read_text())
    assert {"Unit", "Service", "Install"} == set(parsed.sections())
    program, *words = shlex.split(parsed["Service"]["ExecStart"])
    assert program.endswith("/pyspark-log")
    command = typer_main.get_command(app)
    while getattr(command, "commands", None):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)  # raises for an option or a value that it does not take


def test_there_are_units_for_what_runs_all_the_time():
    assert [unit.name for unit in UNITS] == [
        "pyspark-log-maintain.service",
        "pyspark-log-metrics.service",
        "pyspark-log-node@.service",
    ]
