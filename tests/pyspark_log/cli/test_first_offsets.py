"""A topic that begins at another offset than 0 is maintained, replicated and rebuilt as any other."""

import json
import shutil

import pytest

from pyspark_log.opening import forget_logs, own_log
from pyspark_log_coordinator.topic.machine import SetFirstOffsets
from tests.support.command_line import on_three_nodes
from tests.support.lost_folders import lose_folder


@pytest.fixture
def cli(tmp_path):
    """Topic t on three nodes begins at offset 100: two rows in a segment, one unrolled."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--config", "flush.messages=2", "--config", "retention.ms=-1")
    log = own_log(str(cli.path))
    log.open(create=False)
    log.topic("t").submit(SetFirstOffsets({0: 100}))
    cli.run("produce", "t", stdin="a\nb\n")
    cli.run("maintain")
    cli.run("produce", "t", stdin="c\n")
    cli.run("maintain")
    return cli


def rows(cli, *options):
    lines = cli.out("consume", "t", "--json", *options).splitlines()
    return [(row["offset"], row["value"]) for row in map(json.loads, lines)]


ROWS = [(100, "a"), (101, "b"), (102, "c")]


def test_its_rows_are_read_from_there_on(cli):
    assert rows(cli) == ROWS
    assert rows(cli, "--partition", 0, "--from", 102) == ROWS[2:]
    assert "has no offset 99" in cli.error("consume", "t", "--partition", 0, "--from", 99)
    cli.run("verify")


def test_its_rows_are_read_without_the_node_that_leads(cli, tmp_path):
    [partition] = own_log(str(cli.path)).topic("t").journal.state.partitions
    folders = {"0": "log", "1": "disk1", "2": "disk2"}
    [topic] = (tmp_path / folders[partition.leader] / "topics" / "t").iterdir()
    for name in ("append", "0"):
        shutil.rmtree(topic / name)
    assert rows(cli) == ROWS


def test_its_offsets_survive_the_loss_of_all_journals(cli, tmp_path):
    lose_folder(tmp_path / "log" / "cluster")
    for journal in tmp_path.glob("*/topics/*/*/journal"):
        lose_folder(journal)
    folders = ",".join(str(tmp_path / name) for name in ("log", "disk1", "disk2"))
    cli.run("cluster", "rebuild", "--nodes", folders, "--yes")
    forget_logs()
    assert rows(cli) == ROWS
