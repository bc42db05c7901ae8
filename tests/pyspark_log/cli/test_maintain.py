"""`pyspark-log maintain`: topics."""

import json
import signal
import threading
import time
from pathlib import Path

import pytest

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.topic.machine import AlterConfig, RaiseOrphanFloor
from tests.support.command_line import CommandLine
from tests.support.coordinator.spares import spare_file
from tests.support.plain_log import MESSAGE_BYTES_MAX, PlainLog, flip_bit, record
from tests.support.pyspark_log.cli_maintain import NOTHING, files, filled, rows

PATIENCE_SECONDS = 60


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def logs(cli: CommandLine, topic: str) -> list[Path]:
    return sorted(cli.path.glob(f"topics/{topic}/*/*/*.log"))


def orphan(log: PlainLog, topic: str) -> None:
    """Leave a file behind as a task does that dies before its batch is sequenced."""
    handle = log.log.topic(topic)
    destination = destination_of(handle, None, MESSAGE_BYTES_MAX)
    environment = log.log.environment
    staging = Staging(log.log.store_at, lambda _: destination, topic, environment=environment, durable=False, sticky=0)
    staging.add(Rows(record([b"lost"]), None, None))
    staging.finish()


def test_what_is_due_is_rolled_and_told(cli):
    log = filled(cli, "t")
    lines = cli.out("maintain").splitlines()
    assert lines[0].split() == ["topic", "segments", "bytes", "deleted", "orphans"]
    assert lines[2].split()[:2] == ["t", "1"]
    assert len(logs(cli, "t")) == 1
    assert rows(log, "t") == [b"%d" % batch for batch in range(10)]


def test_for_machines_it_is_a_document_for_each_topic(cli):
    filled(cli, "b", "a")
    *documents, cluster = cli.documents("maintain")
    assert [(each["topic"], each["segments"], each["orphans"]) for each in documents] == [("a", 1, 0), ("b", 1, 0)]
    assert all(each["deleted"] == 10 and each["bytes"] > 0 and each["failures"] == [] for each in documents)
    assert cluster == NOTHING


def test_the_second_time_nothing_is_left_to_do(cli):
    filled(cli, "t")
    cli.run("maintain")
    document, cluster = cli.documents("maintain")
    nothing = {"segments": 0, "bytes": 0, "deleted": 0, "orphans": 0, "expired": [], "scheduled": 0, "failures": []}
    assert document == {"topic": "t"} | nothing
    assert cluster == NOTHING
    assert len(cli.out("maintain").splitlines()) == 3


def test_only_the_topics_that_are_named_are_maintained(cli):
    filled(cli, "a", "b", "c")
    assert [each["topic"] for each in cli.documents("maintain", "c", "a")] == ["c", "a"]
    assert [len(logs(cli, topic)) for topic in "abc"] == [1, 0, 1]


def test_a_dry_run_shows_what_is_due_and_changes_nothing(cli):
    log = filled(cli, "t", **{"orphan.retention.ms": "0"})
    cli.run("maintain")
    log.append("t", {0: [b"more"]})
    orphan(log, "t")
    log.append("t", {0: [b"more"]})
    for _ in range(2):
        handle = log.log.topic("t")
        handle.submit(RaiseOrphanFloor(handle.journal.number))
    before = files(cli)
    document, cluster = cli.documents("maintain", "--dry-run")
    assert cluster == NOTHING
    assert (document["segments"], document["deleted"], document["orphans"]) == (1, 0, 1)
    assert files(cli) == before


def test_orphans_are_removed_once_the_floor_has_passed_them(cli):
    log = filled(cli, "t", **{"orphan.retention.ms": "0"})
    orphan(log, "t")
    log.append("t", {0: [b"more"]})
    for _ in range(4):
        cli.run("maintain")
    assert list(cli.path.glob("topics/t/*/append/*")) == []
    assert cli.documents("maintain", "--dry-run")[0]["orphans"] == 0


def test_it_writes_the_checkpoints(cli):
    filled(cli, "t")
    cli.run("maintain")
    [found] = cli.path.glob("topics/t/*/recovery-point-offset-checkpoint")
    assert found.read_text() == "0\n1\nt 0 10\n"


def test_an_unknown_topic_is_an_error(cli):
    filled(cli, "t")
    assert "'u'" in cli.error("maintain", "u")


def test_an_address_without_a_cluster_is_an_error(cli):
    assert "there is no log" in cli.error("maintain")


def test_an_unknown_topic_is_told_before_anything_is_done(cli):
    filled(cli, "t")
    before = files(cli)
    assert "'u'" in cli.error("maintain", "t", "u")
    assert files(cli) == before


# What goes wrong


def damaged(cli: CommandLine) -> tuple[PlainLog, Path]:
    """Topics a, b and c, all due, and the first file of b cut."""
    log = filled(cli, "a", "b", "c")
    [first, *_] = log.files("b")
    first.write_bytes(first.read_bytes()[:-1])
    return log, first


def test_a_damaged_file_is_told_at_the_end_and_all_else_is_done(cli):
    _, first = damaged(cli)
    result = cli.run("maintain", code=1)
    assert [line.split()[:2] for line in result.stdout.splitlines()[2:]] == [["a", "1"], ["b", "0"], ["c", "1"]]
    [line] = result.stderr.splitlines()
    assert line.startswith("pyspark-log: topic 'b', partition 0: rows 0 to 9 were not rolled: ")
    assert first.name in line
    assert [len(logs(cli, topic)) for topic in "abc"] == [1, 0, 1]


def test_a_damaged_file_is_told_to_machines(cli):
    _, first = damaged(cli)
    result = cli.run("maintain", "--json", code=1)
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [len(each["failures"]) for each in documents] == [0, 1, 0, 0]
    assert first.name in documents[1]["failures"][0]


def test_the_other_partitions_of_a_topic_with_a_damaged_file_are_rolled_and_what_has_expired_goes(cli):
    log = PlainLog(cli.path)
    log.create("t", partitions=3, file_delete_delay_ms=0)
    for partition in (1, 0, 2, 1, 0, 2):
        log.append("t", {partition: [b"row"]})
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    list(log.files("t"))[1].unlink()
    [document] = [json.loads(line) for line in cli.run("maintain", "t", "--json", code=1).stdout.splitlines()]
    assert (document["segments"], document["deleted"]) == (2, 1)
    assert "partition 0" in document["failures"][0]


def test_a_topic_that_cannot_be_opened_is_told_and_the_others_are_maintained(cli):
    log = filled(cli, "a", "b", "c")
    newest = log.newest_entry("b")
    for each in (newest, spare_file(newest)):
        flip_bit(each, 8 * 20)
    result = cli.run("maintain", code=1)
    [line] = result.stderr.splitlines()
    assert "topic 'b': " in line
    assert newest.name in line
    assert [len(logs(cli, topic)) for topic in "abc"] == [1, 0, 1]


def test_a_topic_whose_housekeeping_fails_is_told_and_the_others_go_on(cli):
    filled(cli, "a", "b", "c")
    [folder] = cli.path.glob("topics/b/*")
    (folder / "recovery-point-offset-checkpoint").mkdir()
    result = cli.run("maintain", code=1)
    [line] = result.stderr.splitlines()
    assert "topic 'b': " in line
    assert [len(logs(cli, topic)) for topic in "abc"] == [1, 1, 1]


def test_watching_tells_what_is_damaged_once_and_goes_on(cli):
    log, first = damaged(cli)
    with cli.start("maintain", "--watch", "--interval", "0.1", "--json") as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            for round_ in range(2):
                log.append("c", {0: [b"later"]})
                while log.log.topic("c").journal.state.partitions[0].rolled_end != 11 + round_:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.decode().count(first.name) == 1


def test_while_another_writes_no_row_is_lost(cli):
    log = filled(cli, "t", batches=1)
    stop = threading.Event()
    written = [b"0"]

    def write():
        mine = PlainLog(cli.path)
        while not stop.is_set():
            mine.append("t", {0: [b"%d" % len(written)]})
            written.append(b"%d" % len(written))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = sum(cli.documents("maintain")[0]["segments"] for _ in range(15))
    finally:
        stop.set()
        writer.join()
    assert made > 0
    assert rows(log, "t") == written


def test_watching_goes_on_until_it_is_interrupted(cli):
    log = filled(cli, "t")
    with cli.start("maintain", "--watch", "--interval", "0.1", "--json") as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not logs(cli, "t"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            log.append("t", {0: [b"later"]})
            while log.log.topic("t").journal.state.partitions[0].rolled_end != 11:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def with_expired_rows(cli: CommandLine) -> PlainLog:
    """Topic t with five rows that expire as soon as somebody keeps house; its files stay a minute longer."""
    log = PlainLog(cli.path)
    log.create("t", 1, flush_messages=5, file_delete_delay_ms=60_000)
    log.append("t", {0: [b"%d" % number for number in range(5)]})
    cli.run("maintain")
    log.log.topic("t").submit(AlterConfig({"retention.ms": "1"}))
    return log


def test_rows_that_expire_are_told_and_so_are_the_files_that_go_later(cli):
    with_expired_rows(cli)
    said = cli.out("maintain", "t", "--dry-run").splitlines()[3:]
    assert said == ["topic t, partition 0: 5 rows expired; log start would move from 0 to 5"]
    told = cli.out("maintain", "t").splitlines()
    assert told[2].split() == ["t", "0", "0", "0", "0"]
    assert told[3:] == [
        "topic t, partition 0: 5 rows expired; log start moved from 0 to 5",
        "topic t: 3 files to be deleted after file.delete.delay.ms",
    ]
    assert cli.out("maintain", "t").splitlines()[3:] == told[4:]


def test_for_machines_too_rows_that_expire_are_told(cli):
    with_expired_rows(cli)
    document = cli.documents("maintain", "t")[0]
    assert document["expired"] == [{"partition": 0, "from": 0, "log_start": 5, "rows": 5}]
    assert (document["deleted"], document["scheduled"]) == (0, 3)


def test_a_lost_entry_is_made_again(cli):
    newest = filled(cli, "t").newest_entry("t")
    whole = newest.read_bytes()
    newest.unlink()
    cli.run("maintain")
    assert newest.read_bytes() == whole


# Parquet by age


def parquet(cli: CommandLine) -> list[Path]:
    return sorted(cli.path.glob("topics/*/*/*/*.parquet"))


def young(cli: CommandLine, **settings: str) -> PlainLog:
    """A topic of Parquet of few, new rows, in two partitions."""
    log = PlainLog(cli.path)
    log.create("t", 2, segment_format="parquet", file_delete_delay_ms=0)
    log.append("t", {p: [b"%d" % row for row in range(5)] for p in range(2)})
    if settings:
        log.log.topic("t").submit(AlterConfig(settings))
    return log


def test_new_rows_become_parquet_at_once_if_they_are_to(cli):
    log = young(cli)
    assert cli.documents("maintain", "t")[0]["segments"] == 0
    assert not parquet(cli)
    assert cli.documents("maintain", "t", "--now", "--dry-run")[0]["segments"] == 2
    assert cli.documents("maintain", "t", "--now")[0]["segments"] == 2
    assert len(parquet(cli)) == 2
    assert rows(log, "t") == [b"%d" % row for row in range(5)]
    before = files(cli)
    assert cli.documents("maintain", "t", "--now")[0]["segments"] == 0
    assert {name for name in files(cli) if name.endswith(".parquet")} <= set(before)


def test_rows_that_are_old_enough_become_parquet(cli):
    young(cli, **{"parquet.max.lag.ms": "0"})
    assert cli.documents("maintain", "t")[0]["segments"] == 2
    assert len(parquet(cli)) == 2


def test_at_once_and_repeatedly_exclude_each_other(cli):
    young(cli)
    assert "give only one of these" in cli.misuse("maintain", "--now", "--watch")


def described(cli: CommandLine) -> list[str]:
    """What is said of the table, each line without what is before it."""
    lines = cli.out("topics", "describe", "t").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("table "))
    return [line[15:] for line in lines[first : lines.index("", first)]]


def test_it_is_said_how_many_rows_the_table_has_and_why_not_more(cli):
    log = young(cli)
    later = "pyspark-log maintain and pyspark-log node run add newer rows when they are 300 s old (parquet.max.lag.ms)"
    assert described(cli) == ["0 of 10 rows", f"{later}, pyspark-log maintain --now at once"]
    cli.out("maintain", "--now")
    assert described(cli) == ["10 of 10 rows"]
    assert [each["table_end"] for each in cli.documents("topics", "describe", "t")[0]["partitions"]] == [5, 5]
    log.append("t", {1: [b"x"]})
    handle = log.log.topic("t")
    handle.submit(AlterConfig({"parquet.max.lag.ms": "-1"}))
    waits = "parquet.max.lag.ms is -1: newer rows wait for more, or for pyspark-log maintain --now"
    assert described(cli) == ["10 of 11 rows", waits]
    handle.submit(AlterConfig({"segment.format": "log"}))
    assert described(cli)[1].startswith("segment.format is log;")


def test_a_row_that_cannot_be_parquet_is_said_to_end_the_table(cli, monkeypatch):
    log = young(cli)
    cli.out("maintain", "--now")
    monkeypatch.setattr("pyspark_log_storage.parquet.parquet_segment.ROW_GROUP_BYTES", 5_000)
    monkeypatch.setattr("pyspark_log_storage.parquet.parquet_segment.ROW_BYTES_MAX", 10_000)
    log.append("t", {1: [bytes(20_000)]})
    cli.out("maintain", "--now")
    assert described(cli)[:2] == ["10 of 11 rows", "partition 1 ends at offset 5: a later row is too large for Parquet"]
