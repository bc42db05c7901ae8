"""`pyspark-log maintain`: deleted topics, and files that killed writers left."""

import os
from pathlib import Path

import pytest

from pyspark_log_coordinator.topic.machine import DeleteTopic
from tests.support.command_line import CommandLine
from tests.support.coordinator.spares import spare_file
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.cli_maintain import NOTHING, files, filled, rows

LEFT = "f" * 32
"""The name of a temporary file."""


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


# What no existing topic needs


def test_the_bytes_of_a_deleted_topic_are_shown_and_removed(cli):
    log = filled(cli, "t", "old")
    folder = cli.path / "topics" / "old" / log.log.topic("old").topic_id
    log.delete("old")
    before = files(cli)
    [line] = cli.out("maintain", "--dry-run").splitlines()[3:]
    assert line.startswith("would delete ")
    assert line.endswith(f" of the deleted topic old ({folder.name})")
    assert files(cli) == before
    assert cli.out("maintain").splitlines()[3:] == [line.replace("would delete", "deleted")]
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 4
    assert len(cli.out("maintain").splitlines()) == 3
    assert rows(log, "t") == [b"%d" % batch for batch in range(10)]


def test_the_bytes_of_a_deleted_topic_are_told_to_machines(cli):
    log = filled(cli, "old")
    topic_id = log.log.topic("old").topic_id
    log.delete("old")
    [cluster] = cli.documents("maintain", "--dry-run")
    [gone] = cluster["deleted_topics"]
    assert (gone["topic"], gone["topic_id"]) == ("old", topic_id)
    assert gone["objects"] == sum(1 for path in files(cli) if topic_id in path) - len(["the last entry", "its spare"])
    assert gone["bytes"] > 1000
    assert cli.documents("maintain")[0]["deleted_topics"] == [gone]


def test_the_bytes_of_a_topic_that_was_just_deleted_stay_for_its_delay(cli):
    log = PlainLog(cli.path)
    log.create("old")
    log.append("old", {0: [b"row"]})
    log.delete("old")
    before = files(cli)
    assert cli.documents("maintain") == [NOTHING]
    assert files(cli) == before


def test_a_topic_that_is_made_again_keeps_its_rows_when_its_former_life_goes(cli):
    log = filled(cli, "t")
    former = log.log.topic("t").topic_id
    log.delete("t")
    log.create("t")
    log.append("t", {0: [b"new"]})
    *_, cluster = cli.documents("maintain")
    assert [each["topic_id"] for each in cluster["deleted_topics"]] == [former]
    assert rows(log, "t") == [b"new"]
    cli.run("verify")


def test_where_topics_are_named_only_they_are_maintained(cli):
    log = filled(cli, "t", "old")
    log.delete("old")
    (cli.path / ".tmp" / LEFT).touch()
    os.utime(cli.path / ".tmp" / LEFT, (0, 0))
    assert [each["topic"] for each in cli.documents("maintain", "t")] == ["t"]
    cluster = cli.documents("maintain", "--dry-run")[-1]
    assert (len(cluster["deleted_topics"]), cluster["temporary_files"]) == (1, [f".tmp/{LEFT}"])


def test_what_killed_writers_left_is_shown_and_removed(cli):
    filled(cli, "t")
    left = cli.path / ".tmp" / LEFT
    left.touch()
    os.utime(left, (0, 0))
    assert cli.out("maintain", "--dry-run").splitlines()[3:] == ["would delete 1 file left by interrupted writes"]
    assert left.exists()
    assert cli.out("maintain").splitlines()[3:] == ["deleted 1 file left by interrupted writes"]
    assert not left.exists()


def test_a_deletion_that_was_cut_short_is_finished(cli):
    log = filled(cli, "old", "t")
    log.log.topic("old").submit(DeleteTopic())
    assert [each["topic"] for each in cli.documents("maintain", "--dry-run")] == ["t", None]
    assert sorted(log.log.topics()) == ["old", "t"]
    assert [each["topic"] for each in cli.documents("maintain")] == ["t", None]
    assert list(log.log.topics()) == ["t"]


def test_a_deleted_topic_that_cannot_be_read_is_told_and_the_others_go(cli):
    log = filled(cli, "a", "old", "z")
    for topic in ("old", "z"):
        log.delete(topic)
    newest = max(cli.path.glob("topics/old/*/journal/entries/*"))
    for each in (newest, spare_file(newest)):
        each.write_bytes(b"")
    result = cli.run("maintain", code=1)
    [line] = result.stderr.splitlines()
    assert "topics/old/" in line
    assert newest.name in line
    assert " of the deleted topic z " in result.stdout
