"""The operator's tools on three nodes: `pyspark-log maintain`, `verify` and `recover`, without Spark."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyspark_log.cli.nodes import maintain
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
    log = open_log(str(cli.path))
    # The rows are of 1970.
    settings = {"flush.messages": "1", "file.delete.delay.ms": "0", "retention.ms": "-1"}
    log.topic("t").submit(AlterConfig(settings))
    return cli


def append(cli: CommandLine, batch: int, on: str = "012") -> None:
    log = open_log(str(cli.path))
    write(log, log.topic("t"), batch, {0: [b"a" * 50_000]}, on=list(on), acks="all")


def the_log(folder: Path) -> Path:
    [found] = folder.glob("topics/t/*/0/*.log")
    return found


def isr(cli: CommandLine) -> list[str]:
    return list(cli.documents("topics", "describe", "t")[0]["partitions"][0]["isr"])


# maintain


def test_nodes_that_lag_are_brought_up_to_date_before_anything_is_rolled(cli, tmp_path):
    append(cli, 0)
    append(cli, 1, on="02")
    assert isr(cli) == ["0", "2"]
    assert cli.documents("maintain", "t", "--dry-run")[0]["copied"] == 1
    assert isr(cli) == ["0", "2"]
    [done] = cli.documents("maintain", "t")
    assert (done["copied"], done["segments"], done["failures"]) == (1, 1, [])
    assert isr(cli) == ["0", "1", "2"]
    assert len(files_of_t(cli.path)) == 2
    assert files_of_t(cli.path) == files_of_t(tmp_path / "disk1") == files_of_t(tmp_path / "disk2")
    again = cli.out("maintain", "t").splitlines()
    assert again[0].split() == ["topic", "copied", "segments", "bytes", "deleted", "orphans"]
    assert again[2].split()[:3] == ["t", "0", "0"]


def test_a_segment_that_waits_for_a_node_comes_into_its_place(cli, tmp_path):
    append(cli, 0)
    disk = tmp_path / "disk1"
    disk.rename(tmp_path / "unplugged")
    [done] = cli.documents("maintain", "t")
    assert (done["segments"], done["copied"], done["failures"]) == (1, 0, [])
    assert len(open_log(str(cli.path)).topic("t").journal.state.partitions[0].staged) == 1
    lose_folder(disk)
    (tmp_path / "unplugged").rename(disk)
    assert cli.documents("maintain", "t")[0]["copied"] == 1
    [segment] = open_log(str(cli.path)).topic("t").journal.state.partitions[0].segments
    assert sorted(each.node for each in segment.holders) == ["0", "1", "2"]
    assert files_of_t(disk) == files_of_t(cli.path)


def test_watching_goes_on_after_the_journals_could_not_be_reached(cli, monkeypatch):
    append(cli, 0)
    away = cli.path.with_name("away")
    rounds = 0

    def sleep(_):
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            cli.path.rename(away)
            cli.path.write_text("not a folder")
        elif rounds == 3:
            cli.path.unlink()
            away.rename(cli.path)
        elif rounds == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(maintain, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(maintain.watching, "start", lambda *_: None)
    done = cli.run("maintain", "--watch", code=None)
    assert (rounds, done.exit_code) == (4, 130)
    assert "the cluster was not cleaned up" in done.stderr


def test_what_cannot_be_copied_is_told_and_the_exit_code_is_one(cli):
    append(cli, 0, on="0")
    [file] = cli.path.glob("topics/t/*/append/*")
    flip_bit(file, 8 * 100)
    result = cli.run("maintain", "t", "--json", code=1)
    failures = json.loads(result.stdout)["failures"]
    assert [each.partition(":")[0] for each in failures[:2]] == ["topic 't', node '1'", "topic 't', node '2'"]
    assert all(file.name in each for each in failures)


# verify


def test_a_bad_copy_is_named_with_its_node_and_made_again(cli, tmp_path):
    for batch in range(2):
        append(cli, batch)
    cli.run("maintain", "t")
    bad = the_log(tmp_path / "disk2")
    whole = bad.read_bytes()
    flip_bit(bad, 8 * 1000)
    first, verdict = cli.run("verify", "t", code=1).stdout.splitlines()
    assert first.startswith("t: node '2', partition 0, offset 0, segment ")
    assert first.endswith("(verify --repair can fix this)")
    assert verdict.startswith("t: 1 problem; 2 rows, ")
    document = json.loads(cli.run("verify", "t", "--json", code=1).stdout)
    assert [(each["node"], each["partition"], each["offset"]) for each in document["findings"]] == [("2", 0, 0)]
    assert cli.out("verify", "t", "--node", "1").startswith("t: no problems; ")
    made, verdict = cli.out("verify", "t", "--node", "2", "--repair").splitlines()
    assert made == f"t: repaired {bad.relative_to(tmp_path / 'disk2')} on node '2'"
    assert verdict.startswith("t: no problems; ")
    assert bad.read_bytes() == whole


def test_a_node_that_is_not_there_is_an_error_that_says_what_is(cli):
    assert cli.error("verify", "t", "--node", "9") == "node '9' does not exist (existing: 0, 1, 2)"


def test_a_missing_node_is_named(cli, tmp_path):
    append(cli, 0)
    lose_folder(tmp_path / "disk1")
    first, verdict = cli.run("verify", "t", code=1).stdout.splitlines()
    assert first == (
        f"t: node '1' at {tmp_path / 'disk1'} has no marker: is its disk mounted, or was it wiped? Mount the right one"
    )
    assert verdict.startswith("t: 1 problem; ")


# recover


def test_a_node_is_recovered_by_its_id_or_its_address(cli, tmp_path):
    append(cli, 0)
    cli.run("maintain")
    [index] = (tmp_path / "disk1").glob("topics/t/*/0/*.index")
    for node in ("1", tmp_path / "disk1"):
        whole = index.read_bytes()
        index.unlink()
        [document] = cli.documents("recover", "--node", node, "--all")
        assert (document["topic"], document["partition"], document["good_up_to"]) == ("t", 0, 1)
        assert len(document["rebuilt"]) == 1
        assert index.read_bytes() == whole
        lines = cli.out("recover", "--node", node).splitlines()
        assert lines[0].split()[:2] == ["topic", "partition"]
        assert lines[2].split() == ["t", "0", "1", "1", "0", "0"]
        assert lines[3].endswith("let the node catch up and rejoin the ISR with pyspark-log node run 1")


def test_a_node_given_by_address_may_need_a_rebuild_because_its_journals_may_be_lost(cli, tmp_path):
    append(cli, 0)
    assert "rebuild" not in cli.out("recover", "--node", "1")
    *_, catch_up, rebuild = cli.out("recover", "--node", tmp_path / "disk1").splitlines()
    assert catch_up.startswith("next: if the journals can be read, let the node catch up ")
    assert rebuild.startswith("next: if all journals are lost, rebuild the cluster ")
    assert rebuild.endswith(" with pyspark-log cluster rebuild")


def test_of_a_damaged_node_it_is_said_how_it_is_mended(cli, tmp_path):
    append(cli, 0)
    cli.run("maintain")
    flip_bit(the_log(tmp_path / "disk1"), 8 * 1000)
    lines = cli.run("recover", "t", "--node", "1", "--all", code=1).stdout.splitlines()
    assert lines[3].startswith("partition 0, offset 0: segment ")
    assert lines[4] == "next: replace damaged files with pyspark-log verify --node 1 --repair"
    cli.run("verify", "--node", "1", "--repair")
    assert cli.documents("recover", "t", "--node", "1", "--all")[0]["damage"] is None


def test_an_address_needs_no_journal(cli, tmp_path):
    append(cli, 0)
    cli.run("maintain")
    lose_folder(cli.path)
    [document] = cli.documents("recover", "t", "--node", tmp_path / "disk2", "--all")
    assert document["good_up_to"] == 1


def test_a_wiped_node_is_not_taken_for_an_empty_one(cli, tmp_path):
    lose_folder(tmp_path / "disk1")
    assert "has no marker" in cli.error("recover", "--node", "1")
