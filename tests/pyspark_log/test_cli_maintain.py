"""`pyspark-log maintain`."""

import signal
import threading
import time
from pathlib import Path

import pytest

from pyspark_log.sink.rows import Rows
from pyspark_log.sink.staging import Staging, destination_of
from pyspark_log.source.fetch import fetch
from pyspark_log.source.planning import Range, split_of
from pyspark_log_coordinator.topic import AlterConfig, RaiseOrphanFloor
from tests.command_line import CommandLine
from tests.plain_log import MESSAGE_BYTES_MAX, PlainLog, record

PATIENCE_SECONDS = 60


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


def rows(log: PlainLog, topic: str) -> list[bytes]:
    handle = log.log.topic(topic)
    end = handle.journal.state.partitions[0].high_watermark
    found = fetch(log.log.store, split_of(handle, Range(topic, 0, 0, end)))
    return [value for _, batch in found for value in batch.column("value").to_pylist()]


def files(cli: CommandLine) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in cli.path.rglob("*") if path.is_file()}


def logs(cli: CommandLine, topic: str) -> list[Path]:
    return sorted(cli.path.glob(f"topics/{topic}/*/*/*.log"))


def orphan(log: PlainLog, topic: str) -> None:
    """Leave a file behind as a task does that dies before its batch is sequenced."""
    handle = log.log.topic(topic)
    destination = destination_of(handle, None, MESSAGE_BYTES_MAX)
    environment = log.log.environment
    staging = Staging(log.log.store, lambda _: destination, topic, nonce=environment.nonce, durable=False, sticky=0)
    staging.add(Rows(record([b"lost"]), None, None))
    staging.finish()


def test_what_is_due_is_rolled_and_told(cli):
    log = filled(cli, "t")
    lines = cli.out("maintain").splitlines()
    assert lines[0].split() == ["topic", "segments", "bytes", "removed", "orphans"]
    assert lines[2].split()[:2] == ["t", "1"]
    assert len(logs(cli, "t")) == 1
    assert rows(log, "t") == [b"%d" % batch for batch in range(10)]


def test_for_machines_it_is_a_document_for_each_topic(cli):
    filled(cli, "b", "a")
    documents = cli.documents("maintain")
    assert [(each["topic"], each["segments"], each["orphans"]) for each in documents] == [("a", 1, 0), ("b", 1, 0)]
    assert all(each["removed"] == 10 and each["bytes"] > 0 for each in documents)


def test_the_second_time_nothing_is_left_to_do(cli):
    filled(cli, "t")
    cli.run("maintain")
    [document] = cli.documents("maintain")
    assert document == {"topic": "t", "segments": 0, "bytes": 0, "removed": 0, "orphans": 0}


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
    [document] = cli.documents("maintain", "--dry-run")
    assert (document["segments"], document["removed"], document["orphans"]) == (1, 0, 1)
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


def test_a_damaged_file_is_an_error_that_names_it(cli):
    log = filled(cli, "t")
    [first, *_] = log.files("t")
    first.write_bytes(first.read_bytes()[:-1])
    assert first.name in cli.error("maintain")


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
