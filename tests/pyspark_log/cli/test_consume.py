"""`pyspark-log consume`: where it begins and ends, and what it writes."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_log.cli.rows import consume, follow
from pyspark_log.cli.rows.consume import PARQUET
from pyspark_log.reading.fetch import BATCH_ROWS
from tests.support.command_line import CommandLine, files_of_t
from tests.support.pyspark_log.cli_rows import consumed, produced


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def test_consume_begins_and_ends_where_it_is_told(cli):
    produced(cli, *({"value": str(number), "timestamp": 1000 * (number + 1)} for number in range(3)))
    starts = {"earliest": "012", "latest": "", "0": "012", "1": "12", "3": "", "@0": "012", "@2000": "12", "@3001": ""}
    ends = {"latest": "012", "0": "", "2": "01", "3": "012", "@2000": "0", "@2001": "01", "@9999": "012"}
    for option, places in (("--from", starts), ("--to", ends)):
        for place, expected in places.items():
            assert cli.out("consume", "t", option, place).replace("\n", "") == expected, (option, place)
    for time in ("1970-01-01T00:00:01.500Z", "1970-01-01T00:00:01.5", "1970-01-01T01:00:01.500+01:00"):
        assert cli.out("consume", "t", "--from", f"@{time}", "--to", "@2500") == "1\n"
    assert cli.out("consume", "t", "--to", 2, "--max-messages", 1) == "0\n"


def test_a_place_that_cannot_be_is_refused(cli):
    for where in ("newest", "-1", "@", "@noon", "@1969-12-31T23:00:00Z", "1.5"):
        for option in ("--from", "--to"):
            assert f"'{where}' is not " in cli.misuse("consume", "t", f"{option}={where}")
    produced(cli, {"value": "a"}, {"value": "b"})
    assert "--to is at offset 1, which is before --from, at offset 2" in cli.error("consume", "t", "--from=2", "--to=1")
    for option in ("--from", "--to"):
        assert "partition 0 has no offset 3; expected an offset from 0 to 2" in cli.error("consume", "t", option, 3)
    assert "topic 't' has no partition 1" in cli.error("consume", "t", "--partition", 1)
    cli.run("topics", "add-partitions", "t", "--partitions", 2)
    assert cli.error("consume", "t", "--from", 1).endswith("select one with --partition")
    assert cli.out("consume", "t", "--from", 1, "--partition", 0) == "b\n"


@pytest.fixture
def rows(cli):
    """Three rows in two partitions, as they are printed."""
    cli.run("topics", "add-partitions", "t", "--partitions", 2)
    headers = [{"key": "h", "value": "w"}, {"key": "h"}]
    produced(
        cli,
        {"key": "k", "value": "v", "headers": headers, "timestamp": 1000, "partition": 1},
        {"key": None, "value": None, "timestamp": 2000, "partition": 0},
        {"key": "", "value": {"base64": "/w=="}, "timestamp": 3000, "partition": 1},
    )
    return consumed(cli)


def test_rows_are_written_to_a_file_of_json_lines(cli, tmp_path, rows):
    file = tmp_path / "rows.jsonl"
    assert cli.out("consume", "t", "--from", "@2000", "--output", file) == f"wrote 2 rows to {file}\n"
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written == [row for row in rows if row["timestamp"] >= 2000]


def test_rows_are_written_to_a_parquet_file(cli, tmp_path, rows):
    cli.run("consume", "t", "--output", tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(PARQUET)
    places = [(row["partition"], row["offset"], row["timestamp"].timestamp() * 1000) for row in table.to_pylist()]
    assert places == [(row["partition"], row["offset"], row["timestamp"]) for row in rows]
    assert table.column("key").to_pylist() == [None, b"k", b""]
    assert table.column("value").to_pylist() == [None, b"v", b"\xff"]
    headers = [{"key": "h", "value": b"w"}, {"key": "h", "value": None}]
    assert [each or None for each in table.column("headers").to_pylist()] == [None, headers, None]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_file_that_could_not_be_written_whole_does_not_stay(cli, tmp_path, name):
    first, *_ = files_of_t(cli.path)
    (cli.path / first).unlink()
    cli.error("consume", "t", "--output", tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_a_file_is_new_and_says_its_format_and_has_an_end(cli, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("mine")
    for options, said in (
        (("--output", file), "exists; choose another name, or delete it"),
        (("--output", tmp_path / "none" / "rows.parquet"), f"the folder '{tmp_path / 'none'}' does not exist; make it"),
        (("--output", tmp_path / "rows.csv"), "does not end in .jsonl or .parquet"),
        (("--json", "--output", tmp_path / "rows.parquet"), "the ending of the file says the format"),
        (("--follow", "--output", tmp_path / "new.jsonl"), "--follow waits for rows without end"),
        (("--follow", "--to", "latest"), "--follow waits for rows without end"),
    ):
        assert said in cli.misuse("consume", "t", *options)
    assert file.read_text() == "mine"


def test_many_rows_come_out_in_order_up_to_the_number_that_is_wanted(cli):
    rows = BATCH_ROWS * 2 + 5
    text = "".join(f"{i}\n" for i in range(rows))
    cli.run("produce", "t", "--batch-rows", BATCH_ROWS + 1, stdin=text)
    assert cli.out("consume", "t") == text
    assert [row["offset"] for row in consumed(cli, "--from", BATCH_ROWS - 1)] == list(range(BATCH_ROWS - 1, rows))
    for most in (0, BATCH_ROWS + 1, rows + 1):
        assert cli.out("consume", "t", "--max-messages", most).count("\n") == min(most, rows)


@pytest.mark.parametrize(("chosen", "seen"), [((), "ab"), (("--partition", "0"), "a")])
def test_to_follow_reads_partitions_that_the_topic_gets_meanwhile(cli, monkeypatch, chosen, seen):
    def one_more():
        cli.run("topics", "add-partitions", "t", "--partitions", "2")
        produced(cli, {"value": "b", "partition": 1})

    def interrupt():
        raise KeyboardInterrupt

    def act():
        next(calls)()

    produced(cli, {"value": "a"})
    calls = iter([one_more, bool, interrupt])
    monkeypatch.setattr(follow, "_check_reader", act)
    assert cli.out("consume", "t", "--follow", *chosen).replace("\n", "") == seen


def test_it_reads_on_where_the_log_begins_if_rows_expire_while_it_reads(cli, monkeypatch):
    cli.run("topics", "add-partitions", "t", "--partitions", 2)
    produced(cli, *({"value": f"{partition}{row}", "partition": partition} for partition in (0, 1) for row in (0, 1)))
    printer = consume._printer

    def expiring(*arguments):
        """Print rows, then roll all and delete the first one of partition 1, and the file that had it."""
        write = printer(*arguments)

        def written(*rows):
            write(*rows)
            cli.run("topics", "alter", "t", "--config", "flush.messages=1")
            cli.run("maintain")
            cli.run("delete-records", "t", "--partition", 1, "--before", 1, "--yes")
            for file in cli.path.glob("topics/t/*/append/*"):
                file.unlink()

        return written

    monkeypatch.setattr(consume, "_printer", expiring)
    assert cli.out("consume", "t").split() == ["00", "01", "11"]
