"""`pyspark-log consume`: where it begins and ends."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_log.cli.rows import consume
from pyspark_log.cli.rows.consume import PARQUET
from pyspark_log.reading.fetch import BATCH_ROWS
from tests.support.command_line import CommandLine, files_of_t
from tests.support.pyspark_log.cli_rows import consumed, produced


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def test_consume_begins_where_it_is_told(cli):
    for number, ms in enumerate((1000, 2000, 3000)):
        produced(cli, {"value": str(number), "timestamp": ms})
    starts = {"earliest": "012", "latest": "", "0": "012", "1": "12", "3": "", "@0": "012", "@2000": "12", "@3001": ""}
    for start, expected in starts.items():
        assert cli.out("consume", "t", "--from", start).replace("\n", "") == expected


def test_consume_ends_before_the_row_where_it_is_told_to_end(cli):
    for number, ms in enumerate((1000, 2000, 3000)):
        produced(cli, {"value": str(number), "timestamp": ms})
    ends = {"latest": "012", "0": "", "2": "01", "3": "012", "@2000": "0", "@2001": "01", "@9999": "012"}
    for end, expected in ends.items():
        assert cli.out("consume", "t", "--to", end).replace("\n", "") == expected
    assert cli.out("consume", "t", "--from", "@1500", "--to", "@2500") == "1\n"
    assert cli.out("consume", "t", "--to", 2, "--max-messages", 1) == "0\n"


def test_a_time_may_be_a_date(cli):
    produced(cli, {"value": "a", "timestamp": 1769860799999}, {"value": "b", "timestamp": 1769860800000})
    for time in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T13:00:00+01:00"):
        assert cli.out("consume", "t", "--from", f"@{time}") == "b\n"
        assert cli.out("consume", "t", "--to", f"@{time}") == "a\n"


@pytest.mark.parametrize("where", ["newest", "-1", "@", "@noon", "@1969-12-31T23:00:00Z", "1.5"])
def test_a_position_that_is_none_is_refused(cli, where):
    for option, words in (("--from", "earliest, latest"), ("--to", "latest")):
        said = cli.misuse("consume", "t", f"{option}={where}")
        assert f"'{where}' is not {words}, an offset, or a time: @MS (milliseconds since 1970) or" in said


def test_an_end_before_the_start_is_an_error(cli):
    produced(cli, {"value": "a"}, {"value": "b"})
    assert cli.error("consume", "t", "--from", 2, "--to", 1) == (
        "topic 't', partition 0: --to is at offset 1, which is before --from, at offset 2; choose a later end"
    )


def test_an_end_that_the_partition_does_not_have_is_an_error(cli):
    assert cli.error("consume", "t", "--to", 1).startswith("topic 't', partition 0 has no offset 1;")


def test_to_follow_has_no_end(cli, tmp_path):
    for more in (("--to", "latest"), ("--output", tmp_path / "rows.jsonl")):
        said = cli.misuse("consume", "t", "--follow", *more)
        assert "--follow waits for rows without end; omit one of the two" in said


ROWS = [
    {
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": "w"}, {"key": "h"}],
        "timestamp": 1000,
        "partition": 1,
    },
    {"key": None, "value": None, "timestamp": 2000, "partition": 0},
    {"key": "", "value": {"base64": "/w=="}, "timestamp": 3000, "partition": 1},
]


@pytest.fixture
def rows(cli):
    """Three rows in two partitions, as they are printed."""
    cli.run("topics", "add-partitions", "t", "--partitions", 2)
    produced(cli, *ROWS)
    return consumed(cli)


def test_rows_can_be_written_to_a_file_of_json_lines(cli, tmp_path, rows):
    file = tmp_path / "rows.jsonl"
    assert cli.out("consume", "t", "--from", "@2000", "--output", file) == f"wrote 2 rows to {file}\n"
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written == [row for row in rows if row["timestamp"] >= 2000]


def test_rows_can_be_written_to_a_parquet_file(cli, tmp_path, rows):
    file = tmp_path / "rows.parquet"
    assert cli.out("consume", "t", "--output", file) == f"wrote 3 rows to {file}\n"
    table = pq.read_table(file)
    assert table.schema.equals(PARQUET)
    places = [(row["partition"], row["offset"], row["timestamp"].timestamp() * 1000) for row in table.to_pylist()]
    assert places == [(row["partition"], row["offset"], row["timestamp"]) for row in rows]
    assert table.column("key").to_pylist() == [None, b"k", b""]
    assert table.column("value").to_pylist() == [None, b"v", b"\xff"]
    assert table.column("topic").to_pylist() == ["t"] * 3
    headers = [{"key": "h", "value": b"w"}, {"key": "h", "value": None}]
    assert [each or None for each in table.column("headers").to_pylist()] == [None, headers, None]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_file_that_could_not_be_written_whole_does_not_stay(cli, tmp_path, name):
    first, *_ = files_of_t(tmp_path / "log")
    (tmp_path / "log" / first).unlink()
    cli.error("consume", "t", "--output", tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_a_file_that_exists_is_not_overwritten(cli, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("mine")
    assert f"{str(file)!r} exists; choose another name, or delete it" in cli.misuse("consume", "t", "--output", file)
    assert file.read_text() == "mine"


def test_the_ending_of_the_file_says_the_format(cli, tmp_path):
    assert "does not end in .jsonl or .parquet" in cli.misuse("consume", "t", "--output", tmp_path / "rows.csv")
    said = cli.misuse("consume", "t", "--json", "--output", tmp_path / "rows.parquet")
    assert "the ending of the file says the format; omit --json, --format and --key-separator" in said


def test_an_offset_that_the_partition_does_not_have_is_an_error(cli):
    message = cli.error("consume", "t", "--from", 1)
    assert message == (
        "topic 't', partition 0 has no offset 1; expected an offset from 0 to 0, the offset of the next row"
    )


def test_an_offset_is_of_one_partition(cli):
    cli.run("topics", "create", "p", "--partitions", 2)
    cli.run(
        "produce", "p", "--format", "json", stdin='{"value": "a", "partition": 1}\n{"value": "b", "partition": 1}\n'
    )
    assert cli.error("consume", "p", "--from", 1).endswith("select one with --partition")
    assert cli.out("consume", "p", "--from", 1, "--partition", 1) == "b\n"


def test_a_partition_to_consume_must_be_there(cli):
    message = cli.error("consume", "t", "--partition", 1)
    assert message == "topic 't' has no partition 1: it has 1, numbered from 0; choose one of these"


@pytest.mark.parametrize("most", [0, 1, 3, 99])
def test_max_messages_ends_consume(cli, most):
    cli.run("topics", "create", "p", "--partitions", 3)
    for partition in range(3):
        cli.run("produce", "p", "--format", "json", stdin=f'{{"value": "v", "partition": {partition}}}\n' * 2)
    assert len(cli.documents("consume", "p", "--max-messages", most)) == min(most, 6)


def test_many_rows_come_out_in_order(cli):
    rows = BATCH_ROWS * 2 + 5
    text = "".join(f"{i}\n" for i in range(rows))
    cli.run("produce", "t", "--batch-rows", BATCH_ROWS + 1, stdin=text)
    assert cli.out("consume", "t") == text
    assert [row["offset"] for row in consumed(cli, "--from", BATCH_ROWS - 1)] == list(range(BATCH_ROWS - 1, rows))


def test_a_damaged_file_is_told_by_topic_partition_and_offsets(cli):
    cli.run("produce", "t", stdin="one\ntwo\n")
    (file,) = cli.path.glob("topics/t/*/append/*")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    message = cli.error("consume", "t")
    assert message.startswith("topic 't', partition 0, offsets 0 to 1 (")
    assert "is damaged" in message


@pytest.mark.parametrize(("chosen", "seen"), [((), "ab"), (("--partition", "0"), "a")])
def test_to_follow_reads_partitions_that_the_topic_gets_meanwhile(cli, monkeypatch, chosen, seen):
    def one_more():
        cli.run("topics", "add-partitions", "t", "--partitions", "2")
        produced(cli, {"value": "b", "partition": 1})

    def interrupt():
        raise KeyboardInterrupt

    produced(cli, {"value": "a"})
    calls = iter([one_more, interrupt])
    monkeypatch.setattr(consume, "_wait", lambda _: next(calls)())
    assert cli.out("consume", "t", "--follow", *chosen).replace("\n", "") == seen
