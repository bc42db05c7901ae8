"""`pyspark-log delete-records`."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.compacted_log import CompactedLog


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topic t with ten rows in each of two partitions."""
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t", 2)
    log.append("t", {p: [b"%d-%d" % (p, row) for row in range(10)] for p in (0, 1)})
    return cli


def values(cli: CommandLine) -> list[str]:
    return [each["value"] for each in cli.documents("consume", "t")]


def begins(cli: CommandLine) -> list[int]:
    return [each["earliest"] for each in cli.documents("offsets", "t")]


def delete(*more: object) -> tuple[object, ...]:
    return ("delete-records", "t", "--partition", 0, *more)


def test_rows_before_an_offset_go(cli):
    told = cli.out(*delete("--before", 7, "--yes"))
    assert told == "deleted 7 rows; topic t, partition 0 now starts at offset 7\n"
    assert values(cli) == [f"0-{row}" for row in (7, 8, 9)] + [f"1-{row}" for row in range(10)]
    assert begins(cli) == [7, 0]


def test_minus_one_means_all_rows(cli):
    cli.run(*delete("--before", -1, "--yes"))
    assert values(cli) == [f"1-{row}" for row in range(10)]
    assert begins(cli) == [10, 0]


def test_for_machines_it_is_one_document(cli):
    assert cli.documents(*delete("--before", 4, "--yes")) == [{"topic": "t", "partition": 0, "log_start": 4, "rows": 4}]


def test_what_is_gone_already_is_no_error(cli):
    cli.run(*delete("--before", 4, "--yes"))
    assert cli.documents(*delete("--before", 2, "--yes"))[0] == {
        "topic": "t",
        "partition": 0,
        "log_start": 4,
        "rows": 0,
    }


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_it_asks_first_on_stderr(cli, answer):
    result = cli.run(*delete("--before", 4, "--json"), stdin=answer)
    assert "delete the rows before offset 4 of topic t, partition 0" in result.stderr
    assert result.stdout == '{"topic":"t","partition":0,"log_start":4,"rows":4}\n'


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "maybe\n"])
def test_without_a_yes_nothing_is_deleted(cli, answer):
    result = cli.run(*delete("--before", -1), stdin=answer, code=1)
    assert "delete all rows of topic t" in result.stderr
    assert "nothing was deleted" in result.stderr
    assert result.stdout == ""
    assert begins(cli) == [0, 0]


def test_an_offset_above_the_end_is_an_error(cli):
    assert "from 0 to 10, the end of the log" in cli.error(*delete("--before", 11, "--yes"))
    assert begins(cli) == [0, 0]


def test_an_unknown_partition_is_an_error(cli):
    message = cli.error("delete-records", "t", "--partition", 2, "--before", 1)
    assert message == "topic 't' has no partition 2: it has 2, numbered from 0; choose one of these"


def test_an_unknown_topic_is_an_error(cli):
    assert "'u'" in cli.error("delete-records", "u", "--partition", 0, "--before", 1, "--yes")


@pytest.mark.parametrize("missing", ["--partition", "--before"])
def test_partition_and_offset_must_be_named(cli, missing):
    words = {"--partition": 0, "--before": 1}
    del words[missing]
    assert missing in cli.misuse("delete-records", "t", *[each for pair in words.items() for each in pair])


def test_rows_that_were_compacted_are_not_counted(tmp_path):
    log = CompactedLog(tmp_path / "log")
    log.add([b"a"] * 10)
    log.fold()
    log.add([b"b"])
    told = CommandLine(tmp_path / "log").out(*delete("--before", -1, "--yes"))
    assert told == "deleted 2 rows; topic t, partition 0 now starts at offset 11\n"
