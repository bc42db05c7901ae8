"""`pyspark-log node run`: three nodes on a disk, without Spark."""

import json
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_log.cli.nodes import node_run
from pyspark_log.cli.nodes.node_run import Nodes
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


def test_a_node_that_was_away_catches_up(cli, tmp_path):
    for batch in range(3):
        append(cli, batch)
    size = sum(map(len, files_of_t(cli.path).values()))
    for objects, copied in ((3, size), (0, 0)):
        [done] = cli.documents("node", "run", "1", "--once")
        assert done == {"node": "1", "objects": objects, "bytes": copied, "failures": []}
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)
    assert [each["log_end_offsets"] for each in partitions(cli)] == [{"0": 9, "1": 9, "2": 0}, {"0": 3, "2": 0, "1": 3}]
    said = cli.out("node", "run", "2", "--once").splitlines()
    assert said == ["node      2", "objects   3", f"bytes     {size:,}", "failures  none"]
    assert [each["high_watermark"] for each in partitions(cli)] == [9, 3]
    assert cli.error("node", "run", "9", "--once") == "node '9' does not exist (existing: 0, 1, 2)"


def test_a_node_whose_disk_was_set_back_begins_anew_with_what_is_left_on_it(cli, tmp_path):
    for batch in range(2):
        append(cli, batch, on="012")
    newest = max(tmp_path.glob("disk1/topics/t/*/append/*"))
    newest.unlink()
    assert "nothing was changed" in cli.run("nodes", "renew", "1", stdin="n\n", code=1).stderr
    asked = cli.run("nodes", "renew", "1", "--json", stdin="y\n")
    assert "lacks files that the node holds" in asked.stderr
    assert json.loads(asked.stdout)["renewed"]
    assert [each["isr"] for each in partitions(cli)] == [["0", "2"]] * 2
    cli.run("node", "run", "1", "--once")
    assert [each["isr"] for each in partitions(cli)] == [["0", "1", "2"], ["0", "2", "1"]]
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)
    assert not json.loads(cli.out("nodes", "renew", "1", "--json"))["renewed"]


def test_the_throttle_is_kept(cli):
    append(cli, 0)
    size = sum(map(len, files_of_t(cli.path).values()))
    begin = time.monotonic()
    cli.run("node", "run", "1", "--once", "--throttle", 5 * size)
    assert time.monotonic() - begin > 0.2


def test_without_a_node_all_nodes_in_service_catch_up_also_if_one_of_them_is_away(cli, tmp_path):
    append(cli, 0)
    lose_folder(tmp_path / "disk1")
    done = cli.run("node", "run", "--once", "--json", code=1)
    assert [json.loads(line)["node"] for line in done.stdout.splitlines()] == ["0", "2"]
    assert "has no marker" in done.stderr
    assert files_of_t(tmp_path / "disk2") == files_of_t(cli.path)
    cli.run("nodes", "fence", "1")
    assert [each["node"] for each in cli.documents("node", "run", "--once")] == ["0", "2"]


def test_only_the_job_that_keeps_the_limit_copies(cli, tmp_path):
    append(cli, 0)
    log = open_log(str(cli.path))
    node_run.Maintainer(json=True).maintain(log, [])
    assert files_of_t(tmp_path / "disk1") == {}
    assert Nodes(None, None, 0, json=True).follow(log, [])
    assert files_of_t(tmp_path / "disk1") == files_of_t(cli.path)


def test_what_is_damaged_on_the_node_is_copied_again_and_told(cli, tmp_path, monkeypatch, capsys):
    append(cli, 0, on="012")
    [damaged] = tmp_path.glob("disk1/topics/t/*/append/*")
    [gone] = tmp_path.glob("disk2/topics/t/*/append/*")
    whole = damaged.read_bytes()
    flip_bit(damaged, 8 * 100)
    gone.unlink()

    def scrub_twice():
        stop_after(monkeypatch, 2)
        with pytest.raises(StopIteration):
            node_run.repeat(str(cli.path), Nodes("1", None, 10**9, json=False).scrub, node_run.SCRUB)
        return capsys.readouterr().err

    key = damaged.relative_to(tmp_path / "disk1")
    assert scrub_twice() == f"node 1: {key} was damaged or missing; it is repaired\n"
    assert damaged.read_bytes() == whole
    assert not gone.exists()
    gone.parent.rename(gone.parent.with_name("elsewhere"))
    for path in (*tmp_path.glob("log/topics/t/*/append/*"), damaged):
        flip_bit(path, 8 * 100)
    assert scrub_twice().count("pyspark-log: topic 't': ") == 1  # told once in two passes


# The jobs


def stop_after(monkeypatch, rounds: int) -> None:
    """Let a job end after so many rounds."""
    pauses = iter(range(rounds - 1))
    monkeypatch.setattr(node_run, "time", SimpleNamespace(sleep=lambda _: next(pauses)))


def test_it_does_what_its_options_say_for_one_node_and_for_all(cli, monkeypatch):
    started = []

    def start(_, job, pause):
        started.append((job.__name__ if hasattr(job, "__name__") else job.func.__name__, pause))
        watcher = getattr(job, "__self__", None)
        if isinstance(watcher, node_run.Watcher):
            started.append(watcher._settings)

    monkeypatch.setattr(node_run, "start", start)
    stop_after(monkeypatch, 1)
    how = (
        *("--broker-session-timeout-ms", 1, "--no-auto-leader-rebalance-enable"),
        *("--leader-imbalance-check-interval-seconds", 3, "--leader-imbalance-per-broker-percentage", 4),
    )
    watch, scrub = [("watch", node_run.WATCH), ControllerSettings()], [("scrub", node_run.SCRUB)]
    for words, expected in (
        ([], [*watch, *scrub, ("maintain", node_run.MAINTAIN)]),
        (["1", "--scrub", 0], [*watch, ("maintain_node", node_run.MAINTAIN_NODE)]),
        (["1", *how], [watch[0], ControllerSettings(1, False, 3.0, 4.0), *scrub, ("maintain_node", (60, 600))]),
    ):
        started.clear()
        cli.run("node", "run", *words, code=1)
        assert started == expected


def test_a_pause_doubles_in_an_object_store_while_nothing_happens():
    pauses = [0.5]
    for _ in range(6):
        pauses.append(node_run.FOLLOW.after(pauses[-1], is_busy=False, is_remote=True))
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10]
    assert node_run.FOLLOW.after(10, is_busy=True, is_remote=True) == 0.5
    assert node_run.FOLLOW.after(0.5, is_busy=False, is_remote=False) == 0.5
    assert node_run.Pause(20, 10).after(20, is_busy=False, is_remote=True) == 20


def test_it_goes_on_after_the_journals_could_not_be_reached(cli, monkeypatch, capsys):
    append(cli, 0)
    away, rounds = cli.path.with_name("away"), []

    def sleep(_):
        rounds.append(len(files_of_t(cli.path.with_name("disk1"))))
        if len(rounds) == 1:
            append(cli, 1)
            cli.path.rename(away)
            cli.path.write_text("not a folder")
        elif len(rounds) == 3:
            cli.path.unlink()
            away.rename(cli.path)
        elif len(rounds) == 4:
            raise StopIteration

    monkeypatch.setattr(node_run, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(StopIteration):
        node_run.repeat(str(cli.path), Nodes(None, None, 0, json=True).follow, node_run.FOLLOW)
    assert rounds == [1, 1, 1, 2]
    assert capsys.readouterr().err.count("pyspark-log: ") == 1, "told once in two rounds"


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
    assert re.match(rb"node      1\nobjects   [12]\n", printed), printed  # two if the second came during the round
    assert [each.name for each in (disk / ".tmp").iterdir()] == ["reserve"]
