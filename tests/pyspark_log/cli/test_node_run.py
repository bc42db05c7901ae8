"""`pyspark-log node run`: three nodes on a disk, without Spark."""

import json
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


def partitions(cli: CommandLine) -> list[dict[str, object]]:
    return cli.documents("topics", "describe", "t")[0]["partitions"]


def test_a_node_that_was_away_catches_up(cli, tmp_path):
    for batch in range(3):
        append(cli, batch)
    told = cli.out("node", "run", "1", "--once")
    size = sum(map(len, files_of_t(cli.path).values()))
    assert told == f"node 1: copied 3 files, {size:,} bytes\n"
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)
    assert cli.out("node", "run", "1", "--once") == "node 1 is up to date; nothing was copied\n"
    assert [each["log_end_offsets"] for each in partitions(cli)] == [{"0": 9, "1": 9, "2": 0}, {"0": 3, "2": 0, "1": 3}]
    (done,) = cli.documents("node", "run", "2", "--once")
    assert done == {"node": "2", "objects": 3, "bytes": size, "failures": []}
    assert [each["high_watermark"] for each in partitions(cli)] == [9, 3]


def test_the_node_has_its_checkpoints(cli, tmp_path):
    append(cli, 0)
    for name in ("1", "2", "0", "1"):
        cli.run("node", "run", name, "--once")
    (folder,) = tmp_path.glob("disk1/topics/t/*")
    assert (folder / "replication-offset-checkpoint").read_text() == "0\n2\nt 0 3\nt 1 1\n"
    assert (folder / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nt 1 0\n"
    assert (folder / "0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_the_node_has_its_delta_tables(cli, tmp_path):
    cli.run("topics", "alter", "t", "--config", "segment.format=parquet")
    cli.run("node", "run", "1", "--once")
    (found,) = tmp_path.glob("disk1/topics/*/*/_delta_log")
    assert found.parent.parent.name == "t"
    assert not list(tmp_path.glob("disk2/topics/*/*/_delta_log"))


def test_a_wiped_node_is_filled_again_and_in_sync_again(cli, tmp_path):
    append(cli, 0, on="012")
    lose_folder(tmp_path / "disk1")
    assert "has no marker" in cli.error("node", "run", "1", "--once")
    cli.run("nodes", "renew", "1", "--yes")
    assert [each["isr"] for each in partitions(cli)] == [["0", "2"]] * 2
    cli.run("node", "run", "1", "--once")
    assert [each["isr"] for each in partitions(cli)] == [["0", "1", "2"], ["0", "2", "1"]]
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)


def test_a_damaged_file_is_copied_from_another_node(cli, tmp_path):
    append(cli, 0, on="02")
    (path,) = cli.path.glob("topics/t/*/append/*")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    cli.run("node", "run", "1", "--once")
    assert files_of_t(tmp_path / "disk1") == files_of_t(tmp_path / "disk2")


def test_what_no_node_has_whole_is_told_and_is_an_error(cli):
    append(cli, 0)
    (path,) = cli.path.glob("topics/t/*/append/*")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    append(cli, 1)
    result = cli.run("node", "run", "1", "--once", code=1)
    assert result.stdout.startswith("node 1: copied 1 file, ")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"pyspark-log: topic 't': {path}")
    assert json.loads(cli.run("node", "run", "1", "--once", "--json", code=1).stdout)["failures"]


def test_an_unknown_node_is_an_error(cli):
    assert cli.error("node", "run", "9", "--once") == "node '9' does not exist (existing: 0, 1, 2)"


def test_the_throttle_is_kept(cli):
    append(cli, 0)
    size = sum(map(len, files_of_t(cli.path).values()))
    begin = time.monotonic()
    cli.run("node", "run", "1", "--once", "--throttle", 2 * size)
    assert time.monotonic() - begin > 0.5


def test_it_follows_until_it_is_interrupted(cli, tmp_path):
    append(cli, 0)
    with cli.start("node", "run", "1", "--interval", "0.05") as process:
        try:
            for batch in (1, 2):
                deadline = time.monotonic() + PATIENCE_SECONDS
                while (
                    files_of_t(tmp_path / "disk1") != files_of_t(cli.path)
                    or partitions(cli)[0]["log_end_offsets"]["1"] == 0
                ):
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                append(cli, batch)
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, b"")
    assert re.match(rb"node 1: copied (1 file|2 files), ", printed), printed  # two if the second came during the round
    assert [each.name for each in (tmp_path / "disk1" / ".tmp").iterdir()] == ["reserve"]


def test_it_waits_for_a_disk_that_is_not_there(cli, tmp_path):
    append(cli, 0)
    disk, away = tmp_path / "disk1", tmp_path / "away"
    disk.rename(away)
    with cli.start("node", "run", "1", "--interval", "0.05") as process:
        try:
            assert b"node '1' at" in process.stderr.readline()
            away.rename(disk)
            assert process.stdout.readline().startswith(b"node 1: copied 1 file, ")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 130
        finally:
            process.kill()


def test_it_has_help_with_an_example(cli):
    assert "  pyspark-log node run 1 --once" in cli.out("node", "run", "--help")


# Watching


def wait_for(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def led_by(cli: CommandLine) -> tuple[object, object]:
    (partition,) = cli.documents("topics", "describe", "led")[0]["partitions"]
    return partition["leader"], partition["isr"]


def test_a_leader_that_is_gone_is_replaced_and_leads_again_when_it_is_back(cli, tmp_path):
    cli.run("topics", "create", "led", "--replica-assignment", "1:2:0")
    quick = ("--broker-session-timeout-ms", "300", "--leader-imbalance-check-interval-seconds", "0.5")
    printed = tmp_path / "stderr"
    with printed.open("wb") as stderr, cli.start("node", "run", "2", *quick, stderr=stderr) as process:
        try:
            (tmp_path / "disk1").rename(tmp_path / "away")
            wait_for(lambda: led_by(cli) == ("2", ["2", "0"]))
            (tmp_path / "away").rename(tmp_path / "disk1")
            cli.run("node", "run", "1", "--once")
            wait_for(lambda: led_by(cli) == ("1", ["1", "2", "0"]))
            said = [f"topic led, partition 0: node {node} is now the leader" for node in ("2", "1")]
            wait_for(lambda: [line for line in printed.read_text().splitlines() if "leader" in line] == said)
        finally:
            process.kill()


def test_maintenance_watches_too(cli, tmp_path):
    (tmp_path / "disk1").rename(tmp_path / "away")
    with cli.start("maintain", "--watch") as process:
        try:
            wait_for(lambda: open_log(str(cli.path)).topic("t").journal.state.suspects == {"1": 1})
        finally:
            process.kill()


def test_how_it_watches_is_said_in_kafkas_words(cli, monkeypatch):
    asked = []

    def start(path, settings):
        asked.append((path, settings))
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "start", start)
    cli.run("node", "run", "1", code=130)
    cli.run(
        *("node", "run", "1", "--broker-session-timeout-ms", 1),
        *("--no-auto-leader-rebalance-enable", "--leader-imbalance-check-interval-seconds", 3),
        *("--leader-imbalance-per-broker-percentage", 4),
        code=130,
    )
    assert asked == [(str(cli.path), ControllerSettings()), (str(cli.path), ControllerSettings(1, False, 3.0, 4.0))]
    cli.run("node", "run", "1", "--once")
    assert len(asked) == 2


def test_maintenance_watches_as_it_is_told(cli, monkeypatch):
    asked = []

    def start(path, settings):
        asked.append((path, settings))
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "start", start)
    cli.run("maintain", "--watch", code=130)
    cli.run(
        *("maintain", "--watch", "--broker-session-timeout-ms", 1),
        *("--no-auto-leader-rebalance-enable", "--leader-imbalance-check-interval-seconds", 3),
        *("--leader-imbalance-per-broker-percentage", 4),
        code=130,
    )
    assert asked == [(str(cli.path), ControllerSettings()), (str(cli.path), ControllerSettings(1, False, 3.0, 4.0))]


def test_what_is_damaged_on_the_node_is_copied_again_and_told(cli, tmp_path, monkeypatch, capsys):
    append(cli, 0, on="012")
    (damaged,) = tmp_path.glob("disk1/topics/t/*/append/*")
    (gone,) = tmp_path.glob("disk2/topics/t/*/append/*")
    whole = damaged.read_bytes()
    flip_bit(damaged, 8 * 100)
    gone.unlink()
    passes = iter(range(1))

    def sleep(seconds):
        assert seconds == node_run.SCRUB_PAUSE_SECONDS
        next(passes)

    monkeypatch.setattr(node_run, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(StopIteration):
        node_run._scrub(str(cli.path), "1", 10**9)
    assert damaged.read_bytes() == whole
    key = damaged.relative_to(tmp_path / "disk1")
    assert capsys.readouterr().err == f"node 1: {key} was damaged or missing; copied it from another node\n"
    assert not gone.exists()
    gone.parent.rename(gone.parent.with_name("elsewhere"))
    for node in ("0", "1"):
        (path,) = tmp_path.glob(f"{'log' if node == '0' else 'disk1'}/topics/t/*/append/*")
        flip_bit(path, 8 * 100)
    passes = iter(range(1))
    with pytest.raises(StopIteration):
        node_run._scrub(str(cli.path), "1", 10**9)
    assert capsys.readouterr().err.count("pyspark-log: topic 't': ") == 1  # told once in two passes


def test_a_node_is_scrubbed_as_it_is_told(cli, monkeypatch):
    asked = []

    def start(path, node, speed):
        asked.append((path, node, speed))
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "start", lambda *_: None)
    monkeypatch.setattr(node_run, "_start_scrubbing", start)
    cli.run("node", "run", "1", code=130)
    cli.run("node", "run", "1", "--scrub", 5, code=130)
    assert asked == [(str(cli.path), "1", 1024 * 1024), (str(cli.path), "1", 5)]
    cli.run("node", "run", "1", "--scrub", 0, "--once")
    assert len(asked) == 2
