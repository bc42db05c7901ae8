"""`pyspark-log node run`: three nodes on a disk, without Spark."""

import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_log.cli.nodes import node_run, watching
from pyspark_log.opening import open_log
from pyspark_log_coordinator.sync.controller import ControllerSettings
from tests.support.command_line import CommandLine, files_of_t, on_three_nodes
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import flip_bit

PATIENCE_SECONDS = 60


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of three nodes with topic t, which node 0 leads."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--replica-assignment", "0:1:2,0:2:1")
    return cli


def append(cli: CommandLine, batch: int, on: str = "0") -> None:
    """Append rows to both partitions of topic t, on some nodes."""
    log = open_log(str(cli.path))
    write(log, log.topic("t"), batch, {0: [b"a" * 100] * 3, 1: [b"b"]}, on=list(on))


def partitions(cli: CommandLine, topic: str = "t") -> list[dict[str, object]]:
    return cli.documents("topics", "describe", topic)[0]["partitions"]


def test_a_node_that_was_away_catches_up_and_has_its_checkpoints(cli, tmp_path):
    for batch in range(3):
        append(cli, batch)
    size = sum(map(len, files_of_t(cli.path).values()))
    for objects, copied in ((3, size), (0, 0)):
        [done] = cli.documents("node", "run", "1", "--once")
        assert done == {"node": "1", "objects": objects, "bytes": copied, "failures": []}
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)
    assert [each["log_end_offsets"] for each in partitions(cli)] == [{"0": 9, "1": 9, "2": 0}, {"0": 3, "2": 0, "1": 3}]
    assert cli.out("node", "run", "2", "--once") == f"node 2: copied 3 files, {size:,} bytes\n"
    assert [each["high_watermark"] for each in partitions(cli)] == [9, 3]
    for node in "01":
        cli.run("node", "run", node, "--once")
    [folder] = tmp_path.glob("disk1/topics/t/*")
    assert (folder / "replication-offset-checkpoint").read_text() == "0\n2\nt 0 9\nt 1 3\n"
    assert (folder / "0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert cli.error("node", "run", "9", "--once") == "node '9' does not exist (existing: 0, 1, 2)"


def test_a_wiped_node_is_filled_again_and_in_sync_again(cli, tmp_path):
    append(cli, 0, on="012")
    lose_folder(tmp_path / "disk1")
    assert "has no marker" in cli.error("node", "run", "1", "--once")
    cli.run("nodes", "renew", "1", "--yes")
    assert [each["isr"] for each in partitions(cli)] == [["0", "2"]] * 2
    cli.run("node", "run", "1", "--once")
    assert [each["isr"] for each in partitions(cli)] == [["0", "1", "2"], ["0", "2", "1"]]
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)


def test_a_node_whose_disk_was_set_back_begins_anew_with_what_is_left_on_it(cli, tmp_path):
    for batch in range(2):
        append(cli, batch, on="012")
    newest = max(tmp_path.glob("disk1/topics/t/*/append/*"))
    newest.unlink()
    assert "nothing was changed" in cli.run("nodes", "renew", "1", stdin="n\n", code=1).stderr
    asked = cli.run("nodes", "renew", "1", stdin="y\n")
    assert "lacks files that the node holds" in asked.stderr
    assert asked.stdout == "node 1 begins anew; count and copy its files with: pyspark-log node run 1\n"
    assert [each["isr"] for each in partitions(cli)] == [["0", "2"]] * 2
    cli.run("node", "run", "1", "--once")
    assert [each["isr"] for each in partitions(cli)] == [["0", "1", "2"], ["0", "2", "1"]]
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)
    assert "intact; nothing was changed" in cli.out("nodes", "renew", "1")


def test_a_damaged_file_is_copied_from_another_node(cli, tmp_path):
    append(cli, 0, on="02")
    [path] = cli.path.glob("topics/t/*/append/*")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    cli.run("node", "run", "1", "--once")
    assert files_of_t(tmp_path / "disk1") == files_of_t(tmp_path / "disk2")


def test_the_throttle_is_kept(cli):
    append(cli, 0)
    size = sum(map(len, files_of_t(cli.path).values()))
    begin = time.monotonic()
    cli.run("node", "run", "1", "--once", "--throttle", 5 * size)
    assert time.monotonic() - begin > 0.2


def test_what_is_damaged_on_the_node_is_copied_again_and_told(cli, tmp_path, monkeypatch, capsys):
    append(cli, 0, on="012")
    [damaged] = tmp_path.glob("disk1/topics/t/*/append/*")
    [gone] = tmp_path.glob("disk2/topics/t/*/append/*")
    whole = damaged.read_bytes()
    flip_bit(damaged, 8 * 100)
    gone.unlink()

    def scrub_twice():
        passes = iter(range(1))

        def sleep(seconds):
            assert seconds == node_run.SCRUB_PAUSE_SECONDS
            next(passes)

        monkeypatch.setattr(node_run, "time", SimpleNamespace(sleep=sleep))
        with pytest.raises(StopIteration):
            node_run._scrub(str(cli.path), "1", 10**9)
        return capsys.readouterr().err

    key = damaged.relative_to(tmp_path / "disk1")
    assert scrub_twice() == f"node 1: {key} was damaged or missing; it is repaired\n"
    assert damaged.read_bytes() == whole
    assert not gone.exists()
    gone.parent.rename(gone.parent.with_name("elsewhere"))
    for path in (*tmp_path.glob("log/topics/t/*/append/*"), damaged):
        flip_bit(path, 8 * 100)
    assert scrub_twice().count("pyspark-log: topic 't': ") == 1  # told once in two passes


def test_it_watches_and_scrubs_as_it_is_told(cli, monkeypatch):
    watched, scrubbed = [], []

    def scrub(path, node, speed):
        scrubbed.append((node, speed))
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "start", lambda _, settings: watched.append(settings))
    monkeypatch.setattr(node_run, "_start_scrubbing", scrub)
    how = (
        *("--broker-session-timeout-ms", 1, "--no-auto-leader-rebalance-enable"),
        *("--leader-imbalance-check-interval-seconds", 3, "--leader-imbalance-per-broker-percentage", 4),
    )
    cli.run("node", "run", "1", code=130)
    cli.run("node", "run", "1", "--scrub", 5, *how, code=130)
    cli.run("node", "run", "1", "--scrub", 0, "--once")
    assert watched == [ControllerSettings(), ControllerSettings(1, False, 3.0, 4.0)]
    assert scrubbed == [("1", 1024 * 1024), ("1", 5)]


# As a process


def wait_for(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.deep
def test_it_waits_for_a_disk_that_is_not_there_and_follows_until_it_is_interrupted(cli, tmp_path):
    disk, away = tmp_path / "disk1", tmp_path / "away"
    append(cli, 0)
    disk.rename(away)
    with cli.start("node", "run", "1", "--interval", "0.05") as process:
        try:
            assert b"node '1' at" in process.stderr.readline()
            away.rename(disk)
            for batch in (1, 2):
                wait_for(lambda: files_of_t(disk) == files_of_t(cli.path))
                append(cli, batch)
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, b"Traceback" in errors) == (130, False)
    assert re.match(rb"node 1: copied (1 file|2 files), ", printed), printed  # two if the second came during the round
    assert [each.name for each in (disk / ".tmp").iterdir()] == ["reserve"]
