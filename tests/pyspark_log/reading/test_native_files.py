"""Which files are handed over to Spark: whole ones, of the nearest node that has them. The rest is for the source."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_log.reading import native_files
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import Subscribed
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog
from tests.support.spark.rolled import roll

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


def test_files_and_source_have_each_row_of_any_range_once(tmp_path):
    log, ends, rng = PlainLog(tmp_path / "log"), [0], random.Random(24)
    log.create("t", segment_format="parquet")
    for _ in range(8):
        size = rng.randint(1, 5)
        log.append("t", {0: [b"%d" % (ends[-1] + row) for row in range(size)]})
        ends.append(ends[-1] + size)
        roll(log, "t", 0, 1, parquet=rng.random() < 0.7)
    handle = log.log.topic("t")
    now = Subscribed({"t": handle}, {})
    bounds = [(start, end) for start in range(ends[-1]) for end in range(start + 1, ends[-1] + 1)]
    of_source = {
        offset: value
        for offsets, batch in fetch(log.log.store_at, split_of(handle, Range("t", 0, 0, ends[-1])))
        for offset, value in zip(offsets.tolist(), batch.column("value").to_pylist(), strict=True)
    }
    in_file = {}
    for start, end in bounds:
        native, rest = native_files.divide(now, [Range("t", 0, start, end)], in_s3=False)
        found = [(offset, of_source[offset]) for each in rest for offset in range(each.start, each.end)]
        for each in native:
            for path in paths(each):
                rows = in_file.setdefault(path, pq.read_table(path, columns=["offset", "value"]).to_pydict())
                found += [
                    (offset, value)
                    for offset, value in zip(rows["offset"], rows["value"], strict=True)
                    if not each.is_cut or start <= offset < end
                ]
        assert sorted(found) == [(offset, b"%d" % offset) for offset in range(start, end)]
