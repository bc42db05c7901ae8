"""`pyspark-log cluster rebuild`."""

import json
import time

import pytest

from pyspark_log.opening import forget_logs
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder
from tests.support.pyspark_log.typed_frames import write


@pytest.fixture
def cli(tmp_path):
    """Topic t on three nodes, two rows in a segment, one unrolled and described; then the journals are lost."""
    cli = CommandLine(tmp_path / "node0")
    cli.run("topics", "create", "first")
    for number in (1, 2):
        cli.run("nodes", "add", tmp_path / f"node{number}")
    cli.run("topics", "create", "t", "--partitions", 1, "--config", "flush.messages=2", "--config", "retention.ms=-1")
    cli.run("produce", "t", stdin="a\nb\n")
    cli.run("maintain")
    cli.run("produce", "t", stdin="c\n")
    cli.run("maintain")
    lose_journals(tmp_path)
    return cli


def lose_journals(path):
    lose_folder(path / "node0" / "cluster")
    for journal in path.glob("node*/topics/*/*/journal"):
        lose_folder(journal)


def nodes(tmp_path, *numbers):
    return ",".join(str(tmp_path / f"node{number}") for number in numbers)


def rows(cli):
    return [line.split("\t")[-1] for line in cli.out("consume", "t").splitlines()]


def test_without_yes_it_shows_what_it_would_do(cli, tmp_path):
    lines = cli.out("cluster", "rebuild", "--nodes", nodes(tmp_path, 0, 1, 2)).splitlines()
    table = [line.split() for line in lines if line.startswith("t ")]
    assert table == [["t", "0", "0-3", "0-3", "0-3", "0-3", "3", "0"]]
    assert lines[-1] == "nothing was changed; add --yes to rebuild the cluster"
    forget_logs()  # what this process knows of before
    assert "there is no log" in cli.error("topics", "list")


def test_with_yes_the_cluster_is_there_again(cli, tmp_path):
    printed = cli.out("cluster", "rebuild", "--nodes", nodes(tmp_path, 0, 1, 2), "--yes")
    assert f"address: {tmp_path / 'node0'}" in printed
    assert rows(cli) == ["a", "b", "c"]
    cli.run("produce", "t", stdin="d\n")
    assert rows(cli) == ["a", "b", "c", "d"]
    cli.run("verify")
    assert "can be read: there is nothing to rebuild" in cli.error("cluster", "rebuild", "--nodes", nodes(tmp_path, 0))


def test_added_partitions_are_there_although_no_maintenance_has_run_since(tmp_path):
    cli = CommandLine(tmp_path / "node0")
    cli.run("topics", "create", "t", "--partitions", 1)
    cli.run("produce", "t", stdin="a\n")
    cli.run("maintain")
    cli.run("topics", "add-partitions", "t", "--partitions", 3)
    lose_journals(tmp_path)
    cli.run("cluster", "rebuild", "--nodes", nodes(tmp_path, 0), "--yes")
    assert len(cli.documents("topics", "describe", "t")[0]["partitions"]) == 3
    assert rows(cli) == ["a"]


def test_rows_of_a_typed_topic_that_were_set_aside_are_printed_by_dump(tmp_path):
    cli = CommandLine(tmp_path / "node0")
    cli.run("topics", "create", "t", "--schema", "id BIGINT, name STRING")
    write(str(tmp_path / "node0"), "id BIGINT, name STRING", [{"id": 7, "name": "late"}])
    lose_journals(tmp_path)
    cli.run("cluster", "rebuild", "--nodes", nodes(tmp_path, 0), "--yes")
    [file] = tmp_path.glob("node0/set-aside/*/topics/t/*/append/*")
    assert json.loads(cli.out("dump", file, "--rows").splitlines()[-1]).items() >= {"id": 7, "name": "late"}.items()


def test_it_says_that_groups_are_not_rebuilt(cli, tmp_path):
    told = cli.out("cluster", "rebuild", "--nodes", nodes(tmp_path, 0, 1, 2))
    assert "groups and their committed offsets are not rebuilt" in told


def test_a_cluster_that_was_moved_is_not_rebuilt(tmp_path):
    """Its journals are whole, but name the addresses where its nodes were."""
    at, moved = (",".join(str(tmp_path / place / name) for name in "abc") for place in ("old", "new"))
    cli = CommandLine(tmp_path / "old" / "a")
    cli.run("cluster", "create", "--journal-nodes", at)
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="a\n")
    (tmp_path / "old").rename(tmp_path / "new")
    refused = cli.error("cluster", "rebuild", "--nodes", moved, "--yes")
    assert "can be read: there is nothing to rebuild" in refused
    assert f"mount {tmp_path / 'new' / 'b'} at {tmp_path / 'old' / 'b'}" in refused
    (tmp_path / "old").symlink_to(tmp_path / "new")
    assert rows(cli) == ["a"]


def test_without_the_node_that_had_the_journals_it_asks_for_a_word(cli, tmp_path):
    command = ("cluster", "rebuild", "--nodes", nodes(tmp_path, 1, 2))
    assert "; if they are lost for good, add --journals-lost" in cli.out(*command)
    assert "--journals-lost" in cli.run(*command, "--yes", code=1).stderr
    assert "node 0 (the root) is not given" in cli.out(*command, "--yes", "--journals-lost")
    other = CommandLine(tmp_path / "node1")
    assert rows(other) == ["a", "b", "c"]
    other.run("verify")


def test_machines_get_a_document(cli, tmp_path):
    for description in tmp_path.glob("node*/topics/t/*/description"):
        description.unlink()
    printed = cli.run("cluster", "rebuild", "--nodes", nodes(tmp_path, 0, 1, 2), "--json").stdout
    document = json.loads(printed)
    (topic,) = [each for each in document["topics"] if each["topic"] == "t"]
    assert topic["partitions"] == [
        {"partition": 0, "log_start": 0, "log_end": 2, "nodes": {"0": 2, "1": 2, "2": 2}, "lost": 1}
    ]
    # Of the batch in the segment the append file may be there still.
    assert max(each["rows"] for each in document["unplaced"]) in {1, 2}
    assert (document["rebuilt"], document["absent"], topic["described"]) == (False, [], False)


def on_one_of_three_journal_nodes(tmp_path):
    """Write three batches to topic t on three journal nodes, lose two of these, and return the last one's address."""
    at = nodes(tmp_path, 0, 1, 2)
    cli = CommandLine(at)
    cli.run("cluster", "create", "--journal-nodes", at)
    cli.run("topics", "create", "t", "--config", "min.insync.replicas=2", "--config", "retention.ms=3600000")
    for row in "abc":
        cli.run("produce", "t", stdin=f"{row}\n")
    while newest_vote(tmp_path / "node2") < newest_vote(tmp_path / "node0"):
        time.sleep(0.01)  # a thread still writes to the slowest node
    forget_logs()
    for number in (0, 1):
        lose_folder(tmp_path / f"node{number}")
    return nodes(tmp_path, 2)


def newest_vote(node):
    return max(each.name for each in node.glob("topics/t/*/journal/entries/*") if each.suffix != ".claim")


def test_what_is_left_of_the_journals_keeps_acknowledged_rows(tmp_path):
    left = on_one_of_three_journal_nodes(tmp_path)
    command = ("cluster", "rebuild", "--nodes", left, "--journals-lost")
    cli = CommandLine(left)
    planned = cli.out(*command)
    assert "topic t: keeps 1 row of the newest batch, in a new leader epoch" in planned
    assert "set aside" not in planned
    document = json.loads(cli.run(*command, "--yes", "--json").stdout)
    assert (document["rebuilt"], document["unplaced"], document["topics"][0]["undecided"]) == (True, [], 1)
    assert document["set_aside"].startswith("set-aside/")
    assert rows(cli) == ["a", "b", "c"]
    assert "retention.ms=3600000" in cli.out("topics", "describe", "t")


def test_rows_that_are_set_aside_are_said_to_be_possibly_acknowledged(tmp_path):
    left = on_one_of_three_journal_nodes(tmp_path)
    lose_journals(tmp_path)
    lose_folder(tmp_path / "node2" / "cluster")
    printed = CommandLine(left).out("cluster", "rebuild", "--nodes", left, "--journals-lost", "--yes")
    assert "3 append files set aside with 3 rows" in printed
    assert "They may be acknowledged rows, which `lost` does not count" in printed
    assert len([*tmp_path.glob("node2/set-aside/*/topics/t/*/append/*")]) == 3
