"""`pyspark-log delete-records`."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topic t with ten rows in each of two partitions."""
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t", 2)
    log.append("t", {p: [b"%d-%d" % (p, row) for row in range(10)] for p in (0, 1)})
    return cli


def delete(*more: object) -> tuple[object, ...]:
    return ("delete-records", "t", "--partition", 0, *more)


def begins(cli: CommandLine) -> list[int]:
    return [each["earliest"] for each in cli.documents("offsets", "t")]


def test_rows_before_an_offset_are_deleted_once_and_minus_one_means_all(cli):
    for before, log_start, rows in ((7, 7, 7), (2, 7, 0), (-1, 10, 3)):
        [told] = cli.documents(*delete("--before", before, "--yes"))
        assert told == {"topic": "t", "partition": 0, "log_start": log_start, "rows": rows}
        left = [f"0-{row}" for row in range(log_start, 10)] + [f"1-{row}" for row in range(10)]
        assert [each["value"] for each in cli.documents("consume", "t")] == left
        assert begins(cli) == [log_start, 0]


def test_it_asks_on_stderr_and_deletes_nothing_without_a_yes(cli):
    for answer in ("n\n", "", "maybe\n"):
        refused = cli.run(*delete("--before", -1), stdin=answer, code=1)
        assert "delete all rows of topic t" in refused.stderr
        assert (refused.stdout, begins(cli)) == ("", [0, 0])
    asked = cli.run(*delete("--before", 4, "--json"), stdin="YES\n")
    assert "delete the rows before offset 4 of topic t, partition 0" in asked.stderr
    assert asked.stdout == '{"topic":"t","partition":0,"log_start":4,"rows":4}\n'


def test_a_place_that_does_not_exist_is_an_error(cli):
    assert "from 0 to 10, the end of the log" in cli.error(*delete("--before", 11, "--yes"))
    assert "topic 't' has no partition 2" in cli.error("delete-records", "t", "--partition", 2, "--before", 1)
    assert "--partition" in cli.misuse("delete-records", "t", "--before", 1)
    assert "--before" in cli.misuse(*delete())
    assert begins(cli) == [0, 0]
