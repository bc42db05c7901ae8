"""Compacted topics on the command line: settings, the newest rows, and what refuses to be combined."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.pyspark_log.cli_rows import produced


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def produce(cli, *rows):
    produced(cli, *({"key": key, "value": value} for key, value in rows))


def consumed(cli, *options):
    return [(row["key"], row["value"]) for row in cli.documents("consume", "t", *options)]


def test_consume_prints_the_newest_row_of_each_key(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produce(cli, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"))
    assert sorted(consumed(cli, "--latest")) == [("a", "2"), ("b", "1"), ("c", "1")]
    cli.run("maintain", "t")
    produce(cli, ("b", None), ("d", "1"))
    assert consumed(cli, "--latest") == [("a", "2"), ("c", "1"), ("d", "1")]
    assert consumed(cli) == [("b", "1"), ("a", "2"), ("c", "1"), ("b", None), ("d", "1")]
    assert [row["offset"] for row in cli.documents("consume", "t")] == [1, 2, 3, 4, 5]
    assert consumed(cli, "--max-messages", "2") == [("b", "1"), ("a", "2")]


def test_a_row_without_a_key_from_before_is_never_a_newest_row(cli):
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="1\n2\n")
    cli.run("topics", "alter", "t", "--config", "cleanup.policy=compact")
    assert consumed(cli, "--latest") == []
    cli.run("maintain", "t")
    assert consumed(cli) == [(None, "2")], "a segment has rows, so the last one was kept"
    assert consumed(cli, "--latest") == []


def test_maintain_now_compacts_what_could_wait_for_more(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produce(cli, *[(str(number), "0") for number in range(100)])
    cli.run("maintain", "t")
    produce(cli, ("0", "1"), ("0", "2"))
    cli.run("maintain", "t")
    assert [value for key, value in consumed(cli) if key == "0"] == ["0", "1", "2"]
    (planned,) = cli.documents("maintain", "t", "--now", "--dry-run")
    cli.run("maintain", "t", "--now")
    assert planned["segments"] == 1
    assert [value for key, value in consumed(cli) if key == "0"] == ["0", "2"], "the second segment has one row of it"


def test_rows_are_counted_where_a_topic_is_described_and_deleted(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produce(cli, *[("a", str(number)) for number in range(10)], ("b", "1"))
    cli.run("maintain", "t")
    (described,) = cli.documents("topics", "describe", "t")
    assert [each["rows"] for each in described["partitions"]] == [2]
    (offsets,) = cli.documents("offsets", "t")
    assert (offsets["earliest"], offsets["latest"], offsets["rows"]) == (0, 11, 2)
    assert "2 rows in 1 partition" in cli.run("topics", "delete", "t", "--yes").output


def test_how_far_the_table_is_the_newest_state_is_described(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produce(cli, ("a", "1"), ("a", "2"), ("b", "1"))
    assert "\ntable " not in cli.run("topics", "describe", "t").output
    cli.run("maintain", "t")
    assert "\ntable          the newest row of each key\n" in cli.run("topics", "describe", "t").output
    produce(cli, ("a", "3"), ("c", "1"))
    told = cli.run("topics", "describe", "t").output
    assert "\ntable          the newest row of each key, as of the last compaction: 2 rows came later\n" in told


def test_only_a_compacted_topic_has_newest_rows(cli):
    cli.run("topics", "create", "t")
    assert "only a compacted topic has a newest row of each key" in cli.error("consume", "t", "--latest")


def test_latest_is_of_now(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    for option in (["--from", "latest"], ["--to", "latest"], ["--group", "g"], ["--follow"]):
        assert "cannot be combined with --latest" in cli.misuse("consume", "t", "--latest", *option)


def test_a_compacted_topic_with_columns_names_the_one_with_the_keys(cli):
    columns = ("topics", "create", "u", "--schema", "id BIGINT, gone BOOLEAN, name STRING")
    compact = ("--config", "cleanup.policy=compact")
    assert "say which column has the keys with key.column" in cli.error(*columns, *compact)
    keyed = (*columns, *compact, "--config", "key.column=ID")
    assert "'name' has type string; choose a column of type BOOLEAN" in cli.error(
        *keyed, "--config", "delete.when=name"
    )
    assert "the columns are" in cli.error(*keyed, "--config", "delete.when=other")
    cli.run(*keyed, "--config", "delete.when=GONE")
    (described,) = cli.documents("topics", "describe", "u")
    assert (described["config"]["key.column"], described["config"]["delete.when"]) == ("id", "gone")
    assert cli.out("topics", "alter", "u", "--delete-config", "delete.when") == "topic u: delete.when= (was gone)\n"
    changed = cli.out("topics", "alter", "u", "--config", "delete.when=gone")
    assert changed == "topic u: delete.when=gone (was not set)\n"
    cli.run("topics", "create", "t")
    assert "delete.when=gone is for typed topics" in cli.error("topics", "alter", "t", "--config", "delete.when=gone")


def test_versions_are_whole_numbers_dates_or_timestamps(cli):
    columns = "id BIGINT, seq INT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, x DOUBLE, name STRING"
    create = ("topics", "create", "u", "--schema", columns, "--config", "cleanup.policy=compact")
    create = (*create, "--config", "key.column=id", "--config")
    for wrong, kind in (("x", "double"), ("name", "string")):
        said = cli.error(*create, f"compaction.version.column={wrong}")
        assert f"'{wrong}' has type {kind}; choose a column of whole numbers, DATE or TIMESTAMP" in said
    assert "the columns are" in cli.error(*create, "compaction.version.column=other")
    cli.run(*create, "compaction.version.column=SEQ")
    (described,) = cli.documents("topics", "describe", "u")
    assert described["config"]["compaction.version.column"] == "seq"
    for column in ("day", "at", "local", ""):
        cli.run("topics", "alter", "u", "--config", f"compaction.version.column={column}")
    cli.run("topics", "create", "t")
    said = cli.error("topics", "alter", "t", "--config", "compaction.version.column=seq")
    assert "compaction.version.column=seq is for typed topics" in said


def test_a_row_without_a_key_is_refused(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    assert "a row has no key" in cli.error("produce", "t", stdin="1\n")


def test_lag_counts_rows_and_not_offsets(cli):
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produce(cli, *[("a", str(number)) for number in range(10)], ("b", "1"))
    cli.run("groups", "reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute")
    cli.run("maintain", "t")
    (described,) = cli.documents("groups", "describe", "g")
    assert [each["lag"] for each in described["partitions"]] == [2]
