"""`pyspark-log consume`: where it begins and ends."""

from pathlib import Path

import pytest

from pyspark_log.client.read.fetch import BATCH_ROWS
from tests.command_line import CommandLine
from tests.pyspark_log.cli_rows import consumed, produced


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
