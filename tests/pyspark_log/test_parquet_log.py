"""A whole log whose old rows are Parquet segments: written, rolled, read in every way without Spark, and repaired."""

import pytest

from pyspark_log.clients.consumer import Consumer
from pyspark_log.reading import native_files
from pyspark_log.reading.planning import Range
from pyspark_log.reading.positions import Subscribed
from pyspark_log_coordinator.audit.verify import verify
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, flip_bit

VALUES = [b"value %d" % number for number in range(600)]
NEWER = [b"newer %d" % number for number in range(5)]


@pytest.fixture
def cli(tmp_path):
    """Topic t: all rows but the newest were rolled to Parquet by `maintain`."""
    cli = CommandLine(tmp_path / "log")
    settings = ["segment.format=parquet", "retention.ms=-1", "segment.bytes=1000"]
    cli.run("topics", "create", "t", *(word for each in settings for word in ("--config", each)))
    log = PlainLog(cli.path)
    for start in range(0, len(VALUES), 200):
        log.append("t", {0: VALUES[start : start + 200]}, times_ms=list(range(start, start + 200)))
    cli.run("maintain", "t")
    log.append("t", {0: NEWER}, times_ms=[1000] * len(NEWER))
    return cli


def files(cli):
    return sorted(cli.path.glob("topics/t/*/0/*.parquet"))


def test_every_reader_finds_every_row(cli):
    assert len(files(cli)) == 3
    assert not list(cli.path.glob("topics/t/*/0/*.log"))
    with Consumer(cli.path) as consumer:
        consumer.assign(consumer.partitions("t"), "earliest")
        found = []
        while batches := consumer.poll_batches():
            found += [value for batch in batches for value in batch.rows.column("value").to_pylist()]
    assert found == VALUES + NEWER
    assert cli.out("consume", "t").encode().split() == b" ".join(VALUES + NEWER).split()
    assert cli.out("consume", "t", "--from", "@250", "--to", "252").encode() == b"value 250\nvalue 251\n"


def test_a_topic_that_is_told_later_to_write_parquet_is_converted(tmp_path):
    cli = CommandLine(tmp_path / "log")
    settings = ["retention.ms=-1", "segment.bytes=1000", "file.delete.delay.ms=0"]
    cli.run("topics", "create", "t", *(word for each in settings for word in ("--config", each)))
    log = PlainLog(cli.path)
    log.append("t", {0: VALUES[:200]})
    cli.run("maintain", "t")
    cli.run("topics", "alter", "t", "--config", "segment.format=parquet")
    log.append("t", {0: VALUES[200:]})
    cli.run("maintain", "t")
    folder = next(cli.path.glob("topics/t/*/0"))
    assert sorted(each.suffix for each in folder.iterdir() if each.suffix in {".log", ".parquet"}) == [".parquet"] * 2
    all_rows = Range("t", 0, 0, len(VALUES))
    subscribed = Subscribed({"t": PlainLog(cli.path).log.topic("t")}, {})
    native, rest = native_files.divide(subscribed, [all_rows], in_s3=False)
    assert ([(each.rows, len(each.files)) for each in native], rest) == ([(all_rows, 2)], [])
    assert cli.out("consume", "t").encode().split() == b" ".join(VALUES).split()


def test_damage_is_found_and_an_index_is_made_again(cli):
    handle = PlainLog(cli.path).log.topic("t")
    assert verify(handle).findings == []
    first, second, _ = files(cli)
    index = first.with_name(f"{first.name}.index")
    whole = index.read_bytes()
    index.write_bytes(b"?")
    assert cli.out("consume", "t", "--max-messages", 1) == "value 0\n"
    cli.run("recover", "t", code=None)
    cli.run("verify", "t", "--repair", code=None)
    assert index.read_bytes() == whole
    flip_bit(second, 8 * 100)
    [finding] = verify(handle).findings
    assert second.name in finding.what + finding.detail
