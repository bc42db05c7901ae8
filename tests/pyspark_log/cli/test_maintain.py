"""`pyspark-log maintain`: topics that exist, and what those that were deleted and killed writers left."""

import json
import os
import time
from pathlib import Path

import pytest

from pyspark_log import opening
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic
from pyspark_log_storage import layout
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, flip_bit

NOTHING = {"topic": None, "deleted_topics": [], "temporary_files": [], "trimmed": 0, "failures": []}
"""What is said of a cluster in which nothing was due."""
NOTHING_OF_T = {"topic": "t", "segments": 0, "bytes": 0, "deleted": 0, "orphans": 0, "expired": [], "scheduled": 0}
NOTHING_OF_T |= {"future": []}


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def filled(cli: CommandLine, *topics: str, batches: int = 10, **settings: str) -> PlainLog:
    """Topics of so many batches, which are due for rolling."""
    log = PlainLog(cli.path)
    for topic in topics:
        log.create(topic, file_delete_delay_ms=0)
        for batch in range(batches):
            log.append(topic, {0: [b"%d" % batch]})
        log.log.topic(topic).submit(AlterConfig({"flush.messages": "1", **settings}))
    return log


def files(cli: CommandLine) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in cli.path.rglob("*") if path.is_file()}


def logs(cli: CommandLine, *topics: str) -> list[int]:
    """Return the number of segments of each topic."""
    return [len(list(cli.path.glob(f"topics/{topic}/*/*/*.log"))) for topic in topics]


def parquet(cli: CommandLine) -> list[Path]:
    return sorted(cli.path.glob("topics/*/*/*/*.parquet"))


def values(cli: CommandLine, topic: str = "t") -> list[str]:
    return cli.out("consume", topic).split()


def test_what_is_due_is_rolled_in_the_topics_that_are_named_and_then_nothing_is_left_to_do(cli):
    filled(cli, "t", "b", "a")
    assert "'u'" in cli.error("maintain", "t", "u")
    assert logs(cli, *"abt") == [0, 0, 0]
    assert [each["topic"] for each in cli.documents("maintain", "t", "a")] == ["t", "a"]
    assert logs(cli, *"abt") == [1, 0, 1]
    *documents, cluster = cli.documents("maintain")
    assert [(each["topic"], each["segments"], each["deleted"]) for each in documents] == [
        ("a", 0, 0),
        ("b", 1, 10),
        ("t", 0, 0),
    ]
    assert documents[1]["bytes"] > 0
    assert documents[2] == NOTHING_OF_T | {"failures": []}
    assert cluster == NOTHING
    columns = ["topic", "segments", "bytes", "deleted", "orphans", "scheduled"]
    assert [line.split() for line in cli.out("maintain", "t").splitlines()][::2] == [columns, ["t", *"00000"]]
    assert values(cli) == [str(batch) for batch in range(10)]


def test_a_dry_run_shows_what_is_due_and_changes_nothing(cli):
    filled(cli, "t")
    before = files(cli)
    document, cluster = cli.documents("maintain", "--dry-run")
    assert (document["segments"], document["deleted"], cluster) == (1, 0, NOTHING)
    assert files(cli) == before


# What goes wrong


def test_what_is_damaged_is_told_at_the_end_and_all_else_is_done(cli):
    log = filled(cli, "a", "b", "c", "d")
    [first, *_] = log.files("b")
    first.write_bytes(first.read_bytes()[:-1])
    newest = log.newest_entry("c")
    flip_bit(newest, 8 * 20)
    [folder] = cli.path.glob("topics/d/*")
    (folder / "description").unlink()
    (folder / "description").mkdir()
    result = cli.run("maintain", "--json", code=1)
    documents = {each["topic"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert [len(documents[topic]["failures"]) for topic in ("a", "b", "d", None)] == [0, 1, 1, 0]
    assert first.name in documents["b"]["failures"][0]
    assert logs(cli, *"abcd") == [1, 0, 0, 1]
    said = {line.split("'")[1]: line for line in result.stderr.splitlines()}
    assert said["b"].startswith("pyspark-log: topic 'b', partition 0: rows 0 to 9 were not rolled: ")
    assert newest.name in said["c"]
    assert set(said) == {"b", "c", "d"}


def test_rows_that_expire_are_told_and_so_are_the_files_that_are_deleted_later(cli):
    log = PlainLog(cli.path)
    log.create("t", 1, flush_messages=5, file_delete_delay_ms=60_000)
    log.append("t", {0: [b"%d" % number for number in range(5)]})
    cli.run("maintain")
    log.log.topic("t").submit(AlterConfig({"retention.ms": "1"}))
    _, title, columns, _, row = cli.out("maintain", "t", "--dry-run").splitlines()[3:]
    assert (title, columns.split(), row.split()) == (
        "expired",
        ["topic", "partition", "from", "log", "start", "rows"],
        ["t", *"0055"],
    )
    [document] = cli.documents("maintain", "t")
    assert document["expired"] == [{"partition": 0, "from": 0, "log_start": 5, "rows": 5}]
    assert (document["deleted"], document["scheduled"]) == (0, 3)


def test_rows_of_the_future_are_told(cli):
    log = PlainLog(cli.path)
    log.create("t", 1, flush_messages=1, message_timestamp_after_max_ms=2**62)
    log.append("t", {0: [b"of the year 50,000", b"young"]}, [2**50, 1])
    cli.run("maintain")
    assert "from=0, to=1" in cli.out("topics", "describe", "t")
    assert cli.documents("maintain", "t")[0]["future"] == [{"partition": 0, "future": [{"from": 0, "to": 1}]}]


def test_a_machine_whose_clock_is_wrong_expires_nothing_and_says_so(cli, monkeypatch):
    log = PlainLog(cli.path)
    log.create("t", 1, flush_messages=1, retention_ms=7 * 86_400_000)
    log.append("t", {0: [b"young"]}, [time.time_ns() // 10**6])
    cli.run("maintain")
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + 8 * 86_400 * 10**9)
    opening.forget_logs()
    error = cli.run("maintain", "t", code=1).stderr
    assert "nothing expired or was deleted because of its age: the clock of this machine is 691,200 s ahead of" in error
    assert values(cli) == ["young"]


# Parquet by age


def young(cli: CommandLine) -> PlainLog:
    """A topic of Parquet of few, new rows, in two partitions."""
    log = PlainLog(cli.path)
    log.create("t", 2, segment_format="parquet", file_delete_delay_ms=0)
    log.append("t", {p: [b"%d" % row for row in range(5)] for p in range(2)})
    return log


def table_ends(cli: CommandLine) -> list[tuple[int, int]]:
    """How far the table has the rows of each partition, and how far readers have them."""
    partitions = cli.documents("topics", "describe", "t")[0]["partitions"]
    return [(each["table_end"], each["high_watermark"]) for each in partitions]


def test_new_rows_become_parquet_at_once_if_they_are_to(cli):
    young(cli)
    assert cli.documents("maintain", "t")[0]["segments"] == 0
    assert table_ends(cli) == [(0, 5), (0, 5)]
    assert cli.documents("maintain", "t", "--now", "--dry-run")[0]["segments"] == 2
    assert not parquet(cli)
    for segments in (2, 0):
        assert cli.documents("maintain", "t", "--now")[0]["segments"] == segments
        assert len(parquet(cli)) == 2
    assert table_ends(cli) == [(5, 5), (5, 5)]


# What no existing topic needs


def temporary(cli: CommandLine) -> Path:
    """Leave the temporary file of a writer that was killed long ago."""
    left = cli.path / ".tmp" / ("f" * 32)
    left.touch()
    os.utime(left, (0, 0))
    return left


def test_the_files_of_deleted_topics_and_killed_writers_are_shown_and_deleted_if_no_topic_is_named(cli):
    log = filled(cli, "t", "old")
    topic_id = log.log.topic("old").topic_id
    log.log.topic("old").alter_config({"orphan.retention.ms": "0"})
    log.delete("old")
    left, before = temporary(cli), files(cli)
    assert [each["topic"] for each in cli.documents("maintain", "t", "--dry-run")] == ["t"]
    *_, cluster = cli.documents("maintain", "--dry-run")
    [gone] = cluster["deleted_topics"]
    assert (gone["topic"], gone["topic_id"], cluster["temporary_files"]) == ("old", topic_id, [f".tmp/{left.name}"])
    assert gone["objects"] == sum(topic_id in path for path in before) - len(["the last entry"])
    assert gone["bytes"] > 1000
    *_, title, _, _, row = cli.out("maintain", "--dry-run").splitlines()
    assert (title, row.split()[:2]) == ("deleted topics", ["old", topic_id])
    assert files(cli) == before
    assert cli.documents("maintain")[-1] == cluster
    assert len(list((cli.path / "topics" / "old" / topic_id).rglob("*.*"))) <= gone["objects"]
    assert not left.exists()
    assert cli.documents("maintain")[-1] == NOTHING
    assert values(cli) == [str(batch) for batch in range(10)]
    late = cli.path / layout.append_file("old", topic_id, layout.born_name(1, "late"))
    late.parent.mkdir()
    late.touch()
    assert cli.documents("maintain")[-1] == NOTHING, "its deletion is finished"
    [gone] = cli.documents("maintain", "--now")[-1]["deleted_topics"]
    assert (gone["topic_id"], gone["objects"], late.exists()) == (topic_id, 1, False)


def test_a_deletion_that_was_interrupted_is_finished(cli):
    log = filled(cli, "old", "t")
    log.log.topic("old").submit(DeleteTopic())
    for more, left in ((["--dry-run"], ["old", "t"]), ([], ["t"])):
        assert [each["topic"] for each in cli.documents("maintain", *more)] == ["t", None]
        assert sorted(log.log.topics()) == left
