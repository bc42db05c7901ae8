"""`pyspark-log dump`: every kind of stored file, in words."""

import json
from pathlib import Path

import msgspec
import pytest

from pyspark_log import opening
from pyspark_log_coordinator.backup import backup
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import journal
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.stores.local import LocalStore
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, flip_bit
from tests.support.pyspark_log.cli_rows import produced


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Topic t with a segment, unrolled chunks, and a snapshot."""
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 4)
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t")
    for batch in range(5):
        log.append("t", {0: [b"value %d" % batch, None]}, [1_700_000_000_000, 1_700_000_000_001])
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    cli.run("maintain")
    log.append("t", {0: [b"\xff\x00 binary"]})
    return cli


def dumped(cli, pattern, *options):
    """Return the documents of the one file, or the last of those, that the pattern names."""
    file = max(cli.path.glob(pattern))
    head, *rest = [json.loads(line) for line in cli.out("dump", file, *options).splitlines()]
    assert head["file"] == str(file)
    return head, rest


def test_journals_are_dumped_with_the_names_of_events_and_their_fields(cli):
    first, _ = dumped(cli, "topics/t/*/journal/entries/00000000000000000001")
    second, [event] = dumped(cli, "topics/t/*/journal/entries/00000000000000000002")
    assert (second["is"], first["previous"]) == ("journal entry", "0" * 32)
    assert second["previous"] == first["hash"]
    assert (event["event"], event["rows"], event["acks"]) == ("BatchSequenced", 2, "all")
    _, [event] = dumped(cli, "cluster/entries/00000000000000000002")
    assert (event["event"], event["topic"][0]) == ("TopicCreated", "t")
    head, [state] = dumped(cli, "topics/t/*/journal/snapshots/*")
    assert (head["is"], head["entry"], len(head["hash"])) == ("snapshot", 4, 32)
    assert (state["state"]["name"], len(state["state"]["partitions"])) == ("t", 1)


def test_rows_are_shown_on_request_below_their_chunks(cli):
    head, [chunk] = dumped(cli, "topics/t/*/append/*")
    assert (head["is"], chunk["position"], chunk["rows"], len(chunk["crc"])) == ("append file", 0, 1, 8)
    _, [again, row] = dumped(cli, "topics/t/*/append/*", "--rows")
    assert (again, row["key"], row["value"]) == (chunk, None, {"base64": "/wAgYmluYXJ5"})
    head, [chunk] = dumped(cli, "topics/t/*/0/*.log")
    assert (head["is"], chunk["base_offset"], chunk["leader_epoch"], chunk["rows"]) == ("segment", 0, 0, 10)
    _, [_, *rows] = dumped(cli, "topics/t/*/0/*.log", "--rows")
    assert [row["value"] for row in rows[:3]] == ["value 0", None, "value 1"]
    assert rows[0]["timestamp"] == 1_700_000_000_000


def test_what_lies_beside_the_rows_is_dumped(cli):
    head, [entry] = dumped(cli, "topics/t/*/0/*.index")
    assert (head["is"], head["base_offset"], head["end_offset"], head["entries"]) == ("index", 0, 10, 1)
    assert (entry["base_offset"], entry["rows"], entry["max_timestamp"]) == (0, 10, 1_700_000_000_001_000)
    head, [document] = dumped(cli, "topics/t/*/description")
    assert (head["is"], head["nodes"][0]["node_id"]) == ("topic description", "0")
    assert (document["state"]["name"], len(document["state"]["partitions"][0]["segments"])) == ("t", 1)
    head, rest = dumped(cli, "node")
    assert (head["is"], head["node"], rest) == ("node marker", "0", [])
    assert len(head["cluster"]) == len(head["incarnation"]) == 32


def test_a_segment_of_a_compacted_topic_is_dumped_with_the_offsets_of_its_rows(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0")
    for rows in ([("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")], [("b", "2"), ("d", None)]):
        produced(cli, *({"key": key, "value": value} for key, value in rows))
        cli.run("maintain", "t")
    head, [group] = dumped(cli, "topics/t/*/0/*.parquet")
    names = ("is", "base_offset", "end_offset", "rows", "tombstones", "placeholder")
    assert [head[name] for name in names] == ["keyed segment", 4, 6, 2, 1, None]
    assert (group["base_offset"], group["span"], group["rows"]) == (4, 2, 2)
    cli.run("topics", "alter", "t", "--config", "file.delete.delay.ms=0")
    cli.run("maintain", "t")
    _, [of_first, *rows] = dumped(cli, f"topics/t/*/0/{0:020d}-*.parquet", "--rows")
    assert (of_first["span"], of_first["rows"]) == (4, 2)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(2, "c", "1"), (3, "a", "2")]


def test_every_file_of_a_log_can_be_dumped_one_after_the_other(cli):
    files = sorted(path for path in cli.path.rglob("*") if path.is_file() and path.parent.name != ".tmp")
    heads = [each for each in map(json.loads, cli.out("dump", *files).splitlines()) if "file" in each]
    assert [each["file"] for each in heads] == [str(file) for file in files]
    assert len({each["is"] for each in heads}) == 7


def test_what_cannot_be_read_is_an_error_that_names_it_after_what_can(cli, tmp_path):
    for data in (b"", b"hello world"):
        (tmp_path / "other").write_bytes(data)
        assert "is not a file of a log, or its first bytes are damaged" in cli.error("dump", tmp_path / "other")
    for name in ("missing", "."):
        assert "FILE" in cli.misuse("dump", tmp_path / name)
    entry = max(cli.path.glob("topics/t/*/journal/entries/*"))
    flip_bit(entry, 8 * 30)
    assert entry.name in cli.error("dump", entry)
    segment = max(cli.path.glob("topics/t/*/0/*.log"))
    segment.write_bytes(segment.read_bytes() + b"PLCK" + bytes(60))
    result = cli.run("dump", segment, code=1)
    assert [json.loads(line).get("rows") for line in result.stdout.splitlines()] == [None, 10]
    assert segment.name in result.stderr


# A clock that runs thousands of years ahead: the years behind 9999 are none that Python knows

FAR_AHEAD_MS = 10**15
"""The year 33658."""


def test_what_a_clock_far_ahead_has_written_is_listed_read_dumped_maintained_and_restored(tmp_path):
    environment = msgspec.structs.replace(real_environment(), now_ms=lambda: FAR_AHEAD_MS, store_clock=None)
    log = Log(LocalStore(str(tmp_path / "log")), environment)
    log.open(create=True)
    log.create_topic("t", 1, TopicConfig(message_timestamp_after_max_ms=2 * FAR_AHEAD_MS))
    PlainLog(tmp_path / "log").append("t", {0: [b"a", b"b"]}, [FAR_AHEAD_MS] * 2)
    backup.back_up(log, LocalStore(str(tmp_path / "backups")))
    opening.forget_logs()
    cli = CommandLine(tmp_path / "log")
    assert f"{FAR_AHEAD_MS} ms" in cli.out("topics", "list")
    files = [each for each in cli.path.rglob("*") if each.is_file() and each.parent.name != ".tmp"]
    assert f'"timestamp":{FAR_AHEAD_MS},' in cli.out("dump", "--rows", *files)
    for command in ("verify", "maintain"):
        cli.run(command)
        assert cli.out("consume", "t").split() == ["a", "b"]
    assert f"{FAR_AHEAD_MS} ms" in cli.out("restore", tmp_path / "backups", "--list")
    asked = cli.run("restore", tmp_path / "backups", "--as-original", "--path", tmp_path / "again", code=None)
    assert f"since {FAR_AHEAD_MS} ms are lost" in asked.output
