"""Records of the log: sentences for people, with what they are about as fields."""

import ast
import json
import logging
import re
from functools import cache
from pathlib import Path

import pytest

from pyspark_log_storage import logs
from pyspark_log_storage.logs import FIELDS, JsonFormatter

ROOT = Path(__file__).parent.parent.parent
LOGGER = "pyspark_log"


@pytest.fixture
def log(caplog):
    with caplog.at_level(logging.DEBUG, LOGGER):
        yield caplog


@pytest.mark.parametrize("name", ["debug", "info", "warning"])
def test_facts_are_in_the_message_and_those_that_are_fields_in_the_record(log, name):
    getattr(logs, name)("topic %(topic)r: %(error)s", topic="t", partition=3, epoch=None, error="100% too slow")
    (record,) = log.records
    assert record.getMessage() == "topic 't': 100% too slow"
    assert {name: getattr(record, name) for name in FIELDS if hasattr(record, name)} == {"topic": "t", "partition": 3}
    assert (record.name, record.levelname, Path(record.pathname).name) == (LOGGER, name.upper(), "test_logs.py")


def test_records_are_formatted_as_lines_of_json(log):
    logs.info("node %(node)r leads", node="1", topic="t\n", epoch=4)
    try:
        raise ValueError("y")
    except ValueError:
        logs.exception("it failed")
    lines = [JsonFormatter().format(each) for each in log.records]
    assert all("\n" not in line for line in lines)
    first, second = map(json.loads, lines)
    assert first.pop("time") == log.records[0].created
    assert first == {
        "level": "INFO",
        "logger": LOGGER,
        "message": "node '1' leads",
        "topic": "t\n",
        "epoch": 4,
        "node": "1",
    }
    assert second["error"].endswith("ValueError: y")


def test_what_fails_again_and_again_is_logged_when_it_begins_and_when_it_ends(log):
    failures = logs.Failures()

    def fail(what, error):
        failures.note(what, error, "%(node)r: %(error)s", node=what)

    for what in ("1", "2"):
        failures.end(what, "%(node)r is back", node=what)
    for _ in range(3):
        fail("1", OSError("no answer"))
        fail("1", ValueError("another disk"))
        fail("2", OSError("no answer"))
    assert log.messages == ["'1': no answer", "'1': another disk", "'2': no answer"]
    assert {each.levelname for each in log.records} == {"WARNING"}
    for _ in range(2):
        failures.end("1", "%(node)r is back", node="1")
    fail("1", OSError("no answer again"))
    assert log.messages[3:] == ["'1' is back", "'1': no answer again"]
    assert [each.node for each in log.records] == ["1", "1", "2", "1", "1"]


@cache
def messages():
    """Return every message in the product: where it is, and the names of the facts that are given for it."""
    found = []
    for package in ("pyspark_log", "coordinator", "storage"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                owner, method = ast.unparse(node.func.value), node.func.attr
                where, given = f"{file.relative_to(ROOT)}:{node.lineno}", {each.arg for each in node.keywords}
                if owner == "logs" and method in {"debug", "info", "warning", "exception"}:
                    found.append((where, node.args[0], given))
                elif owner.endswith("failures") and method in {"note", "end"}:
                    found.append((where, node.args[-1], given | ({"error"} if method == "note" else set())))
    return found


def test_each_fact_of_a_message_is_given():
    checked = 0
    for where, message, given in messages():
        texts = [each.value for each in ast.walk(message) if isinstance(each, ast.Constant)]
        for name in re.findall(r"%\((\w+)\)", " ".join(filter(lambda each: isinstance(each, str), texts))):
            checked += 1
            assert name in given, where
    assert checked > 20
