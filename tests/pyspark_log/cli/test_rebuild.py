"""`pyspark-log cluster rebuild`."""

import pytest

from pyspark_log.opening import forget_logs
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder


@pytest.fixture
def cli(tmp_path):
    """Topic t on three nodes, two rows in a segment, one unrolled and described; then the journals are lost."""
    cli = CommandLine(tmp_path / "node0")
    cli.run("topics", "create", "first")
    for number in (1, 2):
        cli.run("nodes", "add", tmp_path / f"node{number}")
    cli.run("topics", "create", "t", "--partitions", 1, "--config", "flush.messages=2", "--config", "retention.ms=-1")
    for written in ("a\nb\n", "c\n"):
        cli.run("produce", "t", stdin=written)
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
    return cli.out("consume", "t").split()


def test_only_with_yes_the_cluster_is_there_again(cli, tmp_path):
    command = ("cluster", "rebuild", "--nodes", nodes(tmp_path, 0, 1, 2))
    [planned] = cli.documents(*command)
    [topic] = [each for each in planned["topics"] if each["topic"] == "t"]
    there = {"0": 3, "1": 3, "2": 3}
    assert topic["partitions"] == [{"partition": 0, "log_start": 0, "log_end": 3, "nodes": there}]
    assert (planned["rebuilt"], planned["absent"], topic["losses"], topic["newer"]) == (False, [], [], {})
    assert cli.out(*command).splitlines()[-1].split() == ["t", "0", "0", "3", "0=3,", "1=3,", "2=3"]
    forget_logs()  # what this process knows of before
    assert "there is no log" in cli.error("topics", "list")
    assert cli.documents(*command, "--yes")[0]["journals"] == [str(tmp_path / "node0")]
    assert rows(cli) == ["a", "b", "c"]
    cli.run("produce", "t", stdin="d\n")
    assert rows(cli) == ["a", "b", "c", "d"]
    cli.run("verify")
    assert "can be read: there is nothing to rebuild" in cli.error(*command)


def test_without_the_node_that_had_the_journals_it_asks_for_a_word(cli, tmp_path):
    command = ("cluster", "rebuild", "--nodes", nodes(tmp_path, 1, 2))
    assert "may live" in cli.out(*command)
    assert "--journals-lost" in cli.run(*command, "--yes", code=1).stderr
    assert [each["node"] for each in cli.documents(*command, "--yes", "--journals-lost")[0]["absent"]] == ["0"]
    other = CommandLine(tmp_path / "node1")
    assert rows(other) == ["a", "b", "c"]
    other.run("verify")
