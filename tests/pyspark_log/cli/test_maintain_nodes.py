"""The operator's tools on three nodes: `pyspark-log maintain`, `verify` and `recover`, without Spark."""

import json
from pathlib import Path

import pytest

from pyspark_log.opening import open_log
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.command_line import CommandLine, files_of_t, on_three_nodes
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import flip_bit


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of three nodes with topic t, which node 0 leads."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--replica-assignment", "0:1:2")
    # The rows are of 1970.
    settings = {"flush.messages": "1", "file.delete.delay.ms": "0", "retention.ms": "-1"}
    open_log(str(cli.path)).topic("t").submit(AlterConfig(settings))
    return cli


def append(cli: CommandLine, batch: int, on: str = "012") -> None:
    log = open_log(str(cli.path))
    write(log, log.topic("t"), batch, {0: [b"a" * 50_000]}, on=list(on), acks="all")


def isr(cli: CommandLine) -> list[str]:
    return list(cli.documents("topics", "describe", "t")[0]["partitions"][0]["isr"])


# maintain


def test_nodes_that_lag_are_brought_up_to_date_before_anything_is_rolled(cli, tmp_path):
    append(cli, 0)
    append(cli, 1, on="02")
    assert cli.documents("maintain", "t", "--dry-run")[0]["copied"] == 1
    assert isr(cli) == ["0", "2"]
    [done] = cli.documents("maintain", "t")
    assert (done["copied"], done["segments"], done["failures"]) == (1, 1, [])
    assert isr(cli) == ["0", "1", "2"]
    assert len(files_of_t(cli.path)) == 2
    assert files_of_t(cli.path) == files_of_t(tmp_path / "disk1") == files_of_t(tmp_path / "disk2")
    [again] = cli.documents("maintain", "t")
    assert (again["copied"], again["segments"]) == (0, 0)


def test_a_bad_copy_is_named_with_its_node_and_made_again_and_a_missing_node_is_named(cli, tmp_path):
    for batch in range(2):
        append(cli, batch)
    cli.run("maintain", "t")
    [bad] = tmp_path.glob("disk2/topics/t/*/0/*.log")
    whole = bad.read_bytes()
    flip_bit(bad, 8 * 1000)
    [finding] = json.loads(cli.run("verify", "t", "--json", code=1).stdout)["findings"]
    assert (finding["node"], finding["partition"], finding["offset"], finding["repairable"]) == ("2", 0, 0, True)
    assert cli.documents("verify", "t", "--node", "1")[0]["sound"]
    [repaired] = cli.documents("verify", "t", "--node", "2", "--repair")
    assert (repaired["sound"], len(repaired["repaired"])) == (True, 1)
    assert bad.read_bytes() == whole
    assert cli.error("verify", "t", "--node", "9") == "node '9' does not exist (existing: 0, 1, 2)"
    lose_folder(tmp_path / "disk1")
    [finding] = json.loads(cli.run("verify", "t", "--json", code=1).stdout)["findings"]
    assert f"node '1' at {tmp_path / 'disk1'} has no marker: is its disk mounted" in finding["detail"]
    assert "has no marker" in cli.error("recover", "--node", "1"), "it is not taken for an empty one"


# verify and recover


def test_a_node_is_recovered_by_its_id_or_without_journals_by_its_address(cli, tmp_path):
    append(cli, 0)
    cli.run("maintain")
    [index] = (tmp_path / "disk1").glob("topics/t/*/0/*.index")
    whole = index.read_bytes()
    for node in ("1", tmp_path / "disk1"):
        index.unlink()
        [document] = cli.documents("recover", "--node", node, "--all")
        assert (document["topic"], document["partition"], document["good_up_to"]) == ("t", 0, 1)
        assert len(document["rebuilt"]) == 1
        assert index.read_bytes() == whole
    lose_folder(cli.path)
    assert cli.documents("recover", "t", "--node", tmp_path / "disk2", "--all")[0]["good_up_to"] == 1
