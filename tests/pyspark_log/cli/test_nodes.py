"""`pyspark-log nodes`, and topics on several nodes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of one node."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "first")
    return cli


@pytest.fixture
def three(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """A cluster of three nodes, of which 1 and 2 are in racks."""
    cli.run("nodes", "add", tmp_path / "disk1", "--rack", "a")
    cli.run("nodes", "add", tmp_path / "disk2", "--rack", "b")
    return cli


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


# Adding


def test_a_node_is_added_with_the_next_free_id(cli, tmp_path):
    disk = tmp_path / "disk1"
    assert cli.out("nodes", "add", disk) == f"added node 1 at {disk}\n"
    assert (disk / "node").exists()
    assert cli.out("nodes", "add", disk) == f"{disk} is already node 1; nothing was changed\n"


def test_an_id_and_a_rack_may_be_given(cli, tmp_path):
    (added,) = cli.documents("nodes", "add", tmp_path / "disk", "--id", "east-1", "--rack", "east")
    assert added == {
        "node": "east-1",
        "address": str(tmp_path / "disk"),
        "rack": "east",
        "state": "live",
        "missing": None,
        "incarnation": added["incarnation"],
        "added": True,
    }
    (again,) = cli.documents("nodes", "add", tmp_path / "disk")
    assert again == added | {"added": False}


def test_a_relative_address_is_made_absolute(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.run("nodes", "add", "disk1")
    assert cli.documents("nodes", "list")[1]["address"] == str(tmp_path / "disk1")


@pytest.mark.parametrize("name", ["a:b", "a/b", ".."])
def test_a_wrong_id_reaches_no_disk(cli, tmp_path, name):
    assert "invalid node name" in cli.error("nodes", "add", tmp_path / "disk", "--id", name)
    assert not (tmp_path / "disk").exists()


def test_the_address_of_a_node_is_no_address_of_the_cluster(three, tmp_path):
    for words in (("topics", "list"), ("topics", "create", "t")):
        said = three.error(*words, "--path", tmp_path / "disk1")
        assert said.startswith(f"the store at {tmp_path / 'disk1'} is node '1' of cluster ")
        assert "give the address of that cluster's root" in said


def test_a_node_of_another_cluster_is_refused(cli, tmp_path):
    other = CommandLine(tmp_path / "other")
    other.run("topics", "create", "t")
    said = cli.error("nodes", "add", other.path)
    assert said.startswith(f"the store at {other.path} is node '0' of another cluster, ")


def test_a_store_inside_another_node_is_refused(cli):
    assert "overlap: one contains the other" in cli.error("nodes", "add", cli.path / "disk")


def test_another_kind_of_store_is_refused(cli):
    assert "hdfs:// stores cannot hold a log" in cli.error("nodes", "add", "hdfs://host/log")


# Looking


def test_nodes_are_listed_with_what_is_the_matter(three, tmp_path):
    three.run("nodes", "fence", "2")
    lose_folder(tmp_path / "disk1")
    result = three.run("nodes", "list")
    assert table(result.stdout) == [
        ["node", "address", "rack", "state"],
        ["0", str(three.path), "none", "live"],
        ["1", str(tmp_path / "disk1"), "a", "missing"],
        ["2", str(tmp_path / "disk2"), "b", "fenced"],
    ]
    assert f"node '1' at {tmp_path / 'disk1'} has no marker: is its disk mounted, or was it wiped?" in result.stderr
    documents = [json.loads(line) for line in three.run("nodes", "list", "--json").stdout.splitlines()]
    assert [(each["node"], each["state"], each["missing"] is None) for each in documents] == [
        ("0", "live", True),
        ("1", "missing", False),
        ("2", "fenced", True),
    ]


def test_a_node_is_described_with_its_replicas(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2,2:1,0:2")
    (described,) = three.documents("nodes", "describe", "2")
    assert described["topics"] == [{"topic": "t", "replicas": 3, "leads": 1, "in_sync": 3, "behind": 0}]
    lines = table(three.out("nodes", "describe", "2"))
    assert [line[0] for line in lines[:5]] == ["node", "address", "rack", "state", "incarnation"]
    assert lines[5:] == [["topic", "replicas", "leads", "in", "sync", "rows", "behind"], ["t", "3", "1", "3", "0"]]
    assert three.documents("nodes", "describe", "1")[0]["topics"][0]["replicas"] == 2


@pytest.mark.parametrize("command", ["describe", "fence", "unfence", "renew", "remove", "alter"])
def test_a_node_that_is_not_there_is_an_error_that_says_what_is(three, command):
    words = ["--rack", "a"] if command == "alter" else []
    assert three.error("nodes", command, "9", *words) == "node '9' does not exist (existing: 0, 1, 2)"


# Racks


def test_the_rack_of_a_node_is_changed(three):
    assert three.out("nodes", "alter", "0", "--rack", "c") == "node 0: rack=c (was none)\n"
    assert three.out("nodes", "alter", "0", "--rack", "c") == "node 0 already has rack=c; nothing was changed\n"
    assert three.out("nodes", "alter", "1", "--rack", "") == "node 1: rack=none (was a)\n"
    assert [each["rack"] for each in three.documents("nodes", "list")] == ["c", None, "b"]
    (altered,) = three.documents("nodes", "alter", "2", "--rack", "d")
    assert (altered["rack"], altered["changed"]) == ("d", True)


def test_new_replicas_go_by_the_new_racks(three):
    for node, rack in (("0", "x"), ("1", "x"), ("2", "y")):
        three.run("nodes", "alter", node, "--rack", rack)
    three.run("topics", "create", "t", "--partitions", "4", "--replication-factor", "2")
    assert all("2" in nodes for nodes in partitions_of(three, "t"))


# Fencing


def test_a_fenced_node_leads_nothing_and_gets_nothing_new(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2:0")
    assert three.out("nodes", "fence", "1") == "node 1 is now fenced\n"
    (partition,) = three.documents("topics", "describe", "t")[0]["partitions"]
    assert (partition["leader"], partition["isr"], partition["replicas"]) == ("2", ["2", "0"], ["1", "2", "0"])
    assert three.out("nodes", "fence", "1") == "node 1 is already fenced; nothing was changed\n"
    assert "names node '1', which is fenced" in three.error("topics", "create", "u", "--replica-assignment", "1:2")
    assert three.out("nodes", "unfence", "1") == "node 1 is now in service\n"
    assert three.documents("nodes", "unfence", "1") == [{"node": "1", "fenced": False, "changed": False}]


# Coming back


def test_a_wiped_node_begins_again_after_a_question(three, tmp_path):
    disk = tmp_path / "disk1"
    lose_folder(disk)
    refused = three.run("nodes", "renew", "1", stdin="n\n", code=1)
    assert f"{disk} has no node marker: the disk is empty, or it is not mounted" in refused.stderr
    assert refused.stderr.endswith("pyspark-log: nothing was changed\n")
    assert not disk.exists()
    asked = three.run("nodes", "renew", "1", stdin="y\n")
    assert asked.stdout == f"node 1 is now empty at {disk}; fill it with: pyspark-log node run 1\n"
    assert [each["state"] for each in three.documents("nodes", "list")] == ["live"] * 3


def test_a_whole_node_is_not_renewed(three):
    assert three.out("nodes", "renew", "1") == "node 1 is intact; nothing was changed\n"


def test_a_node_may_move(three, tmp_path):
    shutil.move(tmp_path / "disk1", tmp_path / "moved")
    told = three.out("nodes", "renew", "1", "--address", tmp_path / "moved")
    assert told == f"node 1 is now at {tmp_path / 'moved'}, with its data\n"
    (document,) = three.documents("nodes", "renew", "1", "--address", tmp_path / "moved")
    assert (document["renewed"], document["state"]) == (False, "live")


# Leaving


def test_a_node_is_removed_when_it_is_fenced_and_empty(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2")
    assert "fence it first" in three.error("nodes", "remove", "1", "--yes")
    three.run("nodes", "fence", "1")
    assert "has replicas of topics t; reassign these to other nodes" in three.error("nodes", "remove", "1", "--yes")
    three.run("topics", "delete", "t", "--yes")
    refused = three.run("nodes", "remove", "1", stdin="n\n", code=1)
    assert refused.stderr.endswith("pyspark-log: nothing was removed\n")
    assert three.out("nodes", "remove", "1", "--yes") == "removed node 1\n"
    assert [each["node"] for each in three.documents("nodes", "list")] == ["0", "2"]


def test_nobody_is_asked_whether_a_node_is_to_be_removed_that_cannot_be(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2")
    for said in ("fence it first", "has replicas of topics t", None):
        if said is None:
            three.run("topics", "delete", "t", "--yes")
            assert "This cannot be undone. [y/N]" in three.run("nodes", "remove", "1", stdin="n\n", code=1).stderr
        else:
            assert said in three.error("nodes", "remove", "1", stdin="y\n")  # one line: no question
            three.run("nodes", "fence", "1")


def test_the_root_is_not_removed(three):
    three.run("nodes", "fence", "0")
    assert "is the cluster root" in three.error("nodes", "remove", "0", "--yes")


# Reading near


def test_rows_are_read_from_a_node_of_the_readers_rack(three, caplog):
    three.run("topics", "create", "t", "--replica-assignment", "0:1:2")
    three.run("produce", "t", stdin="v\n")
    [leaders] = three.path.glob("topics/t/*/append/*")
    leaders.write_bytes(leaders.read_bytes()[:-1] + b"?")
    assert three.out("consume", "t", "--rack", "b") == "v\n"
    assert caplog.messages == []
    assert three.out("consume", "t", "--rack", "elsewhere") == "v\n"
    assert "cannot be read from node '0'" in caplog.messages[0]


# Topics on several nodes


def partitions_of(cli: CommandLine, topic: str) -> list[list[str]]:
    return [each["replicas"] for each in cli.documents("topics", "describe", topic)[0]["partitions"]]


def test_a_topic_has_a_replica_on_three_nodes_unless_told_otherwise(three):
    assert (
        three.out("topics", "create", "t", "--partitions", 2)
        == "created topic t with 2 partitions and replication factor 3\n"
    )
    (created,) = three.documents("topics", "create", "u", "--replication-factor", 2)
    assert (created["partitions"], created["replication_factor"]) == (1, 2)
    assert [sorted(each) for each in partitions_of(three, "t")] == [["0", "1", "2"]] * 2
    assert partitions_of(three, "first") == [["0"]]


def test_replicas_are_placed_by_hand_as_in_kafka(three):
    three.run("topics", "create", "t", "--replica-assignment", "0:1,2:0,1:2")
    assert partitions_of(three, "t") == [["0", "1"], ["2", "0"], ["1", "2"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replication-factor", "4"], "the cluster has 3 nodes; choose 1 to 3, or add nodes"),
        (["--replica-assignment", "0:7"], "names node '7', which does not exist (existing: 0, 1, 2)"),
        (["--replica-assignment", "0:0"], "names node '0' twice"),
        (["--replica-assignment", "0:1,2"], "has 1 replica, but partition 0 has 2"),
        (["--replication-factor", "2", "--config", "min.insync.replicas=3"], "it has 2; choose fewer"),
    ],
)
def test_replicas_that_cannot_be_are_refused(three, words, said):
    assert said in three.error("topics", "create", "t", *words)


@pytest.mark.parametrize("text", ["", "0:", ":0", "0,,1", "0:1,"])
def test_an_assignment_that_is_typed_wrong_says_how_it_is_written(three, text):
    assert "is not NODE:NODE,NODE:NODE, such as 0:1,1:2" in three.misuse(
        "topics", "create", "t", "--replica-assignment", text
    )


@pytest.mark.parametrize("other", [["--partitions", 2], ["--replication-factor", 2]])
def test_an_assignment_says_all_by_itself(three, other):
    said = three.misuse("topics", "create", "t", "--replica-assignment", "0:1", *other)
    assert "cannot be combined with --partitions or --replication-factor" in said


def test_describe_shows_how_far_each_replica_is(three):
    three.run("topics", "create", "t", "--replica-assignment", "2:0")
    lines = table(three.out("topics", "describe", "t"))
    assert lines[-2][-3:] == ["LEO", "of", "each"]
    assert lines[-1] == ["0", "2", "0", "2,", "0", "2,", "0", "0", "0", "0", "0", "2=0,", "0=0"]


@pytest.mark.parametrize(
    "command", [[], ["add"], ["list"], ["describe"], ["alter"], ["fence"], ["unfence"], ["renew"], ["remove"]]
)
def test_every_command_has_help(cli, command):
    shown = cli.out("nodes", *command, "--help")
    assert shown.startswith("Usage: ")
    if command:
        assert f"  pyspark-log nodes {command[0]}" in shown
