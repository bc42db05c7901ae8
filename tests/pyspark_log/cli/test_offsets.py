"""`pyspark-log offsets`."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def test_offsets_tells_where_partitions_begin_and_end(cli):
    cli.run("topics", "create", "t", "--partitions", 2)
    cli.run(
        "produce", "t", "--format", "json", stdin='{"value": "a", "partition": 1}\n{"value": "b", "partition": 1}\n'
    )
    assert cli.documents("offsets", "t") == [
        {"topic": "t", "partition": 0, "earliest": 0, "latest": 0, "rows": 0},
        {"topic": "t", "partition": 1, "earliest": 0, "latest": 2, "rows": 2},
    ]
    assert [line.split() for line in cli.out("offsets", "t").splitlines() if line.strip(" ─")] == [
        ["partition", "earliest", "latest", "rows"],
        ["0", "0", "0", "0"],
        ["1", "0", "2", "2"],
        ["total", "2"],
    ]


@pytest.mark.parametrize(
    ("time", "expected"),
    [(-2, [0, 0]), (-1, [0, 3]), (0, [None, 0]), (1500, [None, 1]), (3000, [None, 2]), (3001, [None, None])],
)
def test_offsets_finds_the_first_row_of_a_time(cli, time, expected):
    cli.run("topics", "create", "t", "--partitions", 2)
    lines = "".join(f'{{"value": "v", "partition": 1, "timestamp": {ms}}}\n' for ms in (1000, 2000, 3000))
    cli.run("produce", "t", "--format", "json", stdin=lines)
    assert [each["offset"] for each in cli.documents("offsets", "t", "--time", time)] == expected
    shown = [line.split()[1] for line in cli.out("offsets", "t", "--time", time).splitlines()[2:]]
    assert shown == ["none" if offset is None else str(offset) for offset in expected]


def test_offsets_takes_no_time_that_means_nothing(cli):
    for impossible in ("-3", "99999999999999999", "noon", "1.5"):
        assert f"'{impossible}' is not a valid time" in cli.misuse("offsets", "t", "--time", impossible)
