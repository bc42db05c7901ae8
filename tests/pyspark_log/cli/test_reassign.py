"""`pyspark-log topics reassign`, `add-partitions`, `elect-leaders` and `nodes drain`."""

import json
import shutil
from pathlib import Path

import pytest

from pyspark_log.opening import open_log
from tests.support.command_line import CommandLine
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of five nodes with topic t on 0 and 1, of 18 rows."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "first")
    for number in range(1, 5):
        cli.run("nodes", "add", tmp_path / f"disk{number}")
    cli.run("topics", "create", "t", "--replica-assignment", "0:1,1:0")
    append(cli, 3)
    return cli


def append(cli: CommandLine, batches: int, on: str = "01", first: int = 0) -> None:
    log = open_log(str(cli.path))
    for batch in range(first, first + batches):
        write(log, log.topic("t"), batch, {0: [b"a" * 1000] * 3, 1: [b"b" * 1000] * 3}, on=list(on), acks="all")


def partitions(cli: CommandLine, topic: str = "t") -> list[dict[str, object]]:
    return cli.documents("topics", "describe", topic)[0]["partitions"]


def where(cli: CommandLine, topic: str = "t") -> list[str]:
    return [":".join(each["replicas"]) for each in partitions(cli, topic)]


def leaders(cli: CommandLine) -> list[str | None]:
    return [each["leader"] for each in partitions(cli)]


def rows(cli: CommandLine) -> int:
    return len(cli.documents("consume", "t"))


# Reassigning


def test_a_topic_moves_to_the_nodes_that_are_named_after_a_look_at_what_would_move(cli):
    [planned] = cli.documents("topics", "reassign", "t", "--to-nodes", "2,3", "--dry-run")
    assert where(cli) == ["0:1", "1:0"]
    [done] = cli.documents("topics", "reassign", "t", "--to-nodes", "2,3")
    moved = {"before": ["0", "1"], "after": ["2", "3"], "adding": ["2", "3"], "removing": ["0", "1"]}
    assert done["partitions"][0] == {"partition": 0} | moved
    assert (done["objects"], done["bytes"], done["unfinished"], done["failures"]) == (6, planned["bytes"], [], [])
    assert (where(cli), leaders(cli), rows(cli)) == (["2:3", "3:2"], ["2", "3"], 18)
    for again in (["--to-nodes", "2,3"], []):
        [done] = cli.documents("topics", "reassign", "t", *again)
        assert (done["partitions"], done["objects"]) == ([], 0)


def test_a_reassignment_that_cannot_end_says_why_and_may_be_cancelled_or_continued(cli, tmp_path):
    shutil.move(tmp_path / "disk2", tmp_path / "away")
    result = cli.run("topics", "reassign", "t", "--replica-assignment", "1:0:2,0:2:1", code=1)
    first, last = result.stderr.splitlines()
    assert "node '2' at" in first
    assert last.endswith("continue with: pyspark-log topics reassign t")
    assert where(cli) == ["1:0:2", "0:2:1"]
    cli.run("topics", "reassign", "t", "--cancel")
    assert where(cli) == ["0:1", "1:0"], "also in their order"
    cli.run("topics", "reassign", "t", "--to-nodes", "2,3", code=1)
    shutil.move(tmp_path / "away", tmp_path / "disk2")
    cli.run("topics", "reassign", "t")
    assert where(cli) == ["2:3", "3:2"]


def test_a_reassignment_that_cannot_be_is_refused(cli):
    for words, said in (
        (["--to-nodes", "2,3", "--cancel"], "give only one of these"),
        (["--replica-assignment", "0:1,1:0", "--replication-factor", "2"], "give only one of these"),
        (["--to-nodes", "2,,3"], "is not a list of different nodes"),
        (["--to-nodes", "2,2"], "'2,2' is not a list of different nodes, such as 3,4,5"),
        (["--replica-assignment", "0:"], "such as 0:1,1:2"),
    ):
        assert said in cli.misuse("topics", "reassign", "t", *words)
    assert cli.error("topics", "reassign", "t", "--to-nodes", "2,9").startswith("node '9' does not exist")
    for dry_run in ([], ["--dry-run"]):
        said = cli.error("topics", "reassign", "t", "--replica-assignment", "0:9,1:0", *dry_run)
        assert "partition 0, names node '9', which does not exist" in said
    assert "cannot have 6 replicas" in cli.error("topics", "reassign", "t", "--replication-factor", 6)
    assert where(cli) == ["0:1", "1:0"]


def test_a_topic_gets_more_partitions_and_never_fewer(cli):
    cli.run("topics", "add-partitions", "t", "--partitions", 4)
    assert [len(each["isr"]) for each in partitions(cli)] == [2] * 4
    [done] = cli.documents("topics", "add-partitions", "t", "--partitions", 5, "--replica-assignment", "3:4")
    assert done == {"topic": "t", "partitions": 5, "added": [{"partition": 4, "replicas": ["3", "4"]}]}
    cli.run("produce", "t", "--format", "json", stdin='{"value": "new", "partition": 4}\n')
    assert rows(cli) == 19
    assert "partitions are never removed" in cli.error("topics", "add-partitions", "t", "--partitions", 3)


# Leaders


def test_preferred_leaders_lead_again_unless_they_are_out_of_sync_fenced_or_away(cli, tmp_path):
    def elect(code=0):
        printed = cli.run("topics", "elect-leaders", "t", "--json", code=code).stdout
        found = [json.loads(line) for line in printed.splitlines()]
        return [(each["partition"], each["preferred"], each["leader"], each["not_elected"]) for each in found]

    assert elect() == []
    cli.run("nodes", "fence", "0")
    assert elect(1) == [(0, "0", "1", "it is fenced")]
    cli.run("nodes", "unfence", "0")
    assert elect(1) == [(0, "0", "1", "it is not in sync")]
    cli.run("node", "run", "0", "--once")
    assert leaders(cli) == ["1", "1"]
    assert elect() == [(0, "0", "0", None)]
    cli.run("nodes", "fence", "1")
    cli.run("nodes", "unfence", "1")
    lose_folder(tmp_path / "disk1")
    assert elect(1) == [(1, "1", "0", "it is unreachable")]


@pytest.fixture
def lost(cli, tmp_path) -> CommandLine:
    """Topic t moved to node 1 and 2; 2 misses the last batch, and 1 is lost."""
    cli.run("topics", "reassign", "t", "--replica-assignment", "1:2,1:2")
    append(cli, 1, on="1", first=3)
    lose_folder(tmp_path / "disk1")
    return cli


def unclean(cli, *words, **how):
    return cli.run("topics", "elect-leaders", "t", "--unclean", "--broker-session-timeout-ms", 200, *words, **how)


def test_an_unclean_election_says_what_is_lost_and_asks(lost):
    asked = unclean(lost, stdin="n\n", code=1)
    assert asked.stderr.splitlines() == [
        "topic t, partition 0: 3 rows (offsets 9 to 11) would be lost",
        "topic t, partition 1: 3 rows (offsets 9 to 11) would be lost",
        "elect out-of-sync leaders for topic t and lose 6 rows? [y/N] ",
        "pyspark-log: no leader was elected",
    ]
    assert leaders(lost) == [None, None]
    found = [json.loads(line) for line in unclean(lost, "--yes", "--json").stdout.splitlines()]
    keys = ("partition", "leader", "rows_lost", "first_lost_offset", "not_elected")
    assert [tuple(each[key] for key in keys) for each in found] == [(0, "2", 3, 9, None), (1, "2", 3, 9, None)]
    assert rows(lost) == 18
    assert unclean(lost).stdout == "no partition is without a leader\n"
    assert leaders(lost) == ["2", "2"]


def test_without_any_replica_nobody_is_elected_and_it_says_why_and_what_to_do(lost, tmp_path):
    lose_folder(tmp_path / "disk2")
    done = unclean(lost, "--yes", code=1)
    assert done.stderr == "pyspark-log: 2 partitions still without a leader\n"
    assert "node 1 is missing; node 2 is missing. Bring one back, then try again" in done.stdout
    lost.run("nodes", "fence", "2")
    shown = unclean(lost, "--yes", code=1).stdout
    assert "node 1 is missing; node 2 is fenced (nodes unfence 2). Bring one back, then try again" in shown


# Draining


def test_a_node_is_drained_and_removed(cli):
    cli.run("topics", "create", "u", "--replica-assignment", "1:2")
    planned = cli.documents("nodes", "drain", "1", "--dry-run")
    assert [(each["topic"], len(each["partitions"])) for each in planned] == [("t", 2), ("u", 1)]
    [done] = cli.documents("nodes", "drain", "1")
    assert (done["node"], done["fenced"]) == ("1", True)
    assert [(each["topic"], each["objects"]) for each in done["topics"]] == [("t", 6), ("u", 0)]
    assert not any("1" in each.split(":") for topic in "tu" for each in where(cli, topic))
    cli.run("nodes", "remove", "1", "--yes")
    assert rows(cli) == 18
    cli.run("topics", "elect-leaders")
    cli.run("produce", "t", stdin="one more\n")
    assert rows(cli) == 19
    cli.run("nodes", "drain", "0")
    assert "is the cluster root" in cli.error("nodes", "remove", "0", "--yes")


def test_a_node_whose_disk_is_lost_is_drained_from_the_others_but_for_what_only_it_had(cli, tmp_path):
    cli.run("topics", "create", "solo", "--replica-assignment", "1")
    cli.run("produce", "solo", stdin="row\n")
    lose_folder(tmp_path / "disk1")
    result = cli.run("nodes", "drain", "1", code=1)
    assert "none of its holders (1) is reachable; bring one back" in result.stderr
    assert cli.documents("nodes", "list")[1]["state"] == "missing", "it was not fenced"
    cli.run("topics", "delete", "solo", "--yes")
    [done] = cli.documents("nodes", "drain", "1")
    assert (done["node"], done["fenced"]) == ("1", True)
    cli.run("nodes", "remove", "1", "--yes")
    assert rows(cli) == 18
