"""Compacted topics on the command line: settings, the newest rows, and what refuses to be combined."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.pyspark_log.cli_rows import produced

COMPACT = ("--config", "cleanup.policy=compact")


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topic t is compacted."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", *COMPACT)
    return cli


def produce(cli, *rows):
    produced(cli, *({"key": key, "value": value} for row in rows for key, value in row.items()))


def consumed(cli, *options):
    return [(row["key"], row["value"]) for row in cli.documents("consume", "t", *options)]


def test_consume_prints_the_newest_row_of_each_key_and_offsets_stay(cli):
    produce(cli, {"a": "1"}, {"b": "1"}, {"a": "2"}, {"c": "1"})
    assert sorted(consumed(cli, "--latest")) == [("a", "2"), ("b", "1"), ("c", "1")]
    assert "\ntable " not in cli.out("topics", "describe", "t")
    cli.run("maintain", "t")
    assert "\ntable          the newest row of each key\n" in cli.out("topics", "describe", "t")
    produce(cli, {"b": None}, {"d": "1"})
    assert "as of the last compaction: 2 rows came later\n" in cli.out("topics", "describe", "t")
    assert consumed(cli, "--latest") == [("a", "2"), ("c", "1"), ("d", "1")]
    assert consumed(cli) == [("b", "1"), ("a", "2"), ("c", "1"), ("b", None), ("d", "1")]
    assert [row["offset"] for row in cli.documents("consume", "t")] == [1, 2, 3, 4, 5]
    assert consumed(cli, "--max-messages", "2") == [("b", "1"), ("a", "2")]


def test_a_row_without_a_key_is_never_a_newest_row_and_is_refused_later(cli):
    cli.run("topics", "alter", "t", "--config", "cleanup.policy=delete")
    cli.run("produce", "t", stdin="1\n2\n")
    assert "only a compacted topic has a newest row of each key" in cli.error("consume", "t", "--latest")
    cli.run("topics", "alter", "t", *COMPACT)
    assert consumed(cli, "--latest") == []
    cli.run("maintain", "t")
    assert consumed(cli) == [(None, "2")], "a segment has rows, so the last one was kept"
    assert consumed(cli, "--latest") == []
    assert "a row has no key" in cli.error("produce", "t", stdin="1\n")


def test_counts_and_lags_are_of_rows_and_not_of_offsets(cli):
    produce(cli, *[{"a": str(number)} for number in range(10)], {"b": "1"})
    cli.run("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute")
    cli.run("maintain", "t")
    assert [each["rows"] for each in cli.documents("topics", "describe", "t")[0]["partitions"]] == [2]
    assert [each["lag"] for each in cli.documents("groups", "describe", "g")[0]["partitions"]] == [2]
    [offsets] = cli.documents("offsets", "t")
    assert (offsets["earliest"], offsets["latest"], offsets["rows"]) == (0, 11, 2)
    [deleted] = cli.documents("delete-records", "t", "--partition", 0, "--before", -1, "--yes")
    assert (deleted["log_start"], deleted["rows"]) == (11, 2)


def test_latest_is_of_now(cli):
    for option in (["--from", "latest"], ["--to", "latest"], ["--group", "g"], ["--follow"]):
        assert "cannot be combined with --latest" in cli.misuse("consume", "t", "--latest", *option)


def test_a_compacted_topic_with_columns_names_those_of_keys_and_deletions(cli):
    ddl = "id BIGINT, gone BOOLEAN, name STRING"
    create = ("topics", "create", "u", "--schema", ddl, *COMPACT)
    assert "say which column has the keys with key.column" in cli.error(*create)
    create = (*create, "--config", "key.column=ID")
    for setting, said in (
        ("delete.when=name", "'name' has type string; choose a column of type BOOLEAN"),
        ("delete.when=other", "the columns are"),
    ):
        assert said in cli.error(*create, "--config", setting)
    cli.run(*create, "--config", "delete.when=GONE")
    [described] = cli.documents("topics", "describe", "u")
    expected = {"key.column": "id", "delete.when": "gone"}
    assert described["config"].items() >= expected.items()
    assert "delete.when=gone is for typed topics" in cli.error("topics", "alter", "t", "--config", "delete.when=gone")
