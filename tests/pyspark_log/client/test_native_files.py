"""Which files are handed over to Spark: whole ones, of the nearest node that has them. The rest is for the source."""

from pathlib import Path

import pytest

from pyspark_log.client.read import native_files
from pyspark_log.client.read.planning import Range
from pyspark_log.client.read.positions import Subscribed
from tests.command_line import CommandLine
from tests.plain_log import PlainLog

pytestmark = pytest.mark.on_disk("only files on disks are handed over")
ROWS = Range("t", 0, 0, 400)


@pytest.fixture
def cli(tmp_path):
    """Topic t on two nodes, with two Parquet segments."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "first")
    cli.run("nodes", "add", tmp_path / "disk")
    config = ["segment.format=parquet", "retention.ms=-1", "segment.bytes=1000"]
    cli.run(
        *("topics", "create", "t", "--replica-assignment", "0:1"),
        *(word for each in config for word in ("--config", each)),
    )
    log = PlainLog(cli.path)
    for _ in range(2):
        log.append("t", {0: [b"a value"] * 200})
        cli.run("maintain", "t")
    return cli


def divided(cli):
    return native_files.divide(Subscribed({"t": PlainLog(cli.path).log.topic("t")}, {}), [ROWS], in_s3=False)


def paths(native):
    return [Path(url.removeprefix("file://")) for url in native.files]


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"PAR1")


def link(path):
    """Put the same bytes behind a link: what a link leads to is not a node's."""
    elsewhere = path.parents[5] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("break_", [Path.unlink, cut, lengthen, link])
def test_a_file_that_is_not_whole_is_taken_from_the_next_node_or_left_to_the_source(cli, break_):
    [found], rest = divided(cli)
    first, second = paths(found)
    assert rest == []
    break_(first)
    [found], rest = divided(cli)
    other, same = paths(found)
    assert (other.name, same, rest) == (first.name, second, [])
    assert other != first
    break_(other)
    [found], rest = divided(cli)
    assert (paths(found), rest) == ([second], [Range("t", 0, 0, 200)])
