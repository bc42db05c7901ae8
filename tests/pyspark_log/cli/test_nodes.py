"""`pyspark-log nodes`, and topics on several nodes."""

import json
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


def states(cli: CommandLine) -> list[str]:
    return [each["state"] for each in cli.documents("nodes", "list")]


def partitions_of(cli: CommandLine, topic: str) -> list[list[str]]:
    return [each["replicas"] for each in cli.documents("topics", "describe", topic)[0]["partitions"]]


def test_a_node_is_added_once_with_the_next_free_id_or_one_that_is_given(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [added] = cli.documents("nodes", "add", "disk1")
    assert (added["node"], added["address"], added["added"]) == ("1", str(tmp_path / "disk1"), True)
    assert (tmp_path / "disk1" / "node").exists()
    assert cli.documents("nodes", "add", tmp_path / "disk1") == [added | {"added": False}]
    [east] = cli.documents("nodes", "add", "disk", "--id", "east-1", "--rack", "east")
    assert (east["node"], east["rack"], east["state"], east["missing"]) == ("east-1", "east", "live", None)


def test_what_cannot_be_a_node_of_the_cluster_is_refused(three, tmp_path):
    assert "the address of a store is empty; give a folder" in three.error("nodes", "add", "")
    assert "node '0' already exists, at the cluster's root;" in three.error("nodes", "add", tmp_path / "x", "--id", "0")
    assert f"exists, at {tmp_path / 'disk1'}; give another" in three.error("nodes", "add", tmp_path / "x", "--id", "1")
    assert "invalid node name" in three.error("nodes", "add", tmp_path / "disk", "--id", "a/b")
    assert not (tmp_path / "disk").exists()
    said = three.error("topics", "create", "t", "--path", tmp_path / "disk1")
    assert said.startswith(f"the store at {tmp_path / 'disk1'} is node '1' of cluster ")
    assert "give the address of that cluster's root" in said
    other = CommandLine(tmp_path / "other")
    other.run("topics", "create", "t")
    assert "is node '0' of another cluster, " in three.error("nodes", "add", other.path)
    assert "overlap: one contains the other" in three.error("nodes", "add", three.path / "disk")
    assert "hdfs:// stores cannot hold a log" in three.error("nodes", "add", "hdfs://host/log")
    for command in ("describe", "fence", "unfence", "renew", "remove", "alter", "drain"):
        words = ["--rack", "a"] if command == "alter" else []
        assert three.error("nodes", command, "9", *words) == "node '9' does not exist (existing: 0, 1, 2)"


def test_nodes_are_listed_with_what_is_the_matter(three, tmp_path):
    three.run("nodes", "fence", "2")
    lose_folder(tmp_path / "disk1")
    result = three.run("nodes", "list", "--json")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["node"], each["rack"], each["state"], each["missing"] is None) for each in documents] == [
        ("0", None, "live", True),
        ("1", "a", "missing", False),
        ("2", "b", "fenced", True),
    ]
    assert f"node '1' at {tmp_path / 'disk1'} has no marker: is its disk mounted" in documents[1]["missing"]


def test_a_node_is_described_with_its_replicas(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2,2:1,0:2")
    [described] = three.documents("nodes", "describe", "2")
    assert described["topics"] == [{"topic": "t", "replicas": 3, "leads": 1, "in_sync": 3, "behind": 0}]


def test_racks_are_changed_and_new_replicas_follow_them(three):
    for node, rack, changed in (("0", "x", True), ("1", "x", True), ("1", "x", False), ("2", "y", True)):
        [altered] = three.documents("nodes", "alter", node, "--rack", rack)
        assert (altered["rack"], altered["changed"]) == (rack, changed)
    three.run("topics", "create", "t", "--partitions", "4", "--replication-factor", "2")
    assert all("2" in nodes for nodes in partitions_of(three, "t"))


def test_a_fenced_node_leads_nothing_and_gets_nothing_new(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2:0")
    for changed in (True, False):
        assert three.documents("nodes", "fence", "1") == [{"node": "1", "fenced": True, "changed": changed}]
    [partition] = three.documents("topics", "describe", "t")[0]["partitions"]
    assert (partition["leader"], partition["isr"], partition["replicas"]) == ("2", ["2", "0"], ["1", "2", "0"])
    assert "names node '1', which is fenced" in three.error("topics", "create", "u", "--replica-assignment", "1:2")
    for changed in (True, False):
        assert three.documents("nodes", "unfence", "1") == [{"node": "1", "fenced": False, "changed": changed}]


def test_a_wiped_node_begins_again_after_a_question_and_a_whole_one_not_at_all(three, tmp_path):
    disk = tmp_path / "disk1"
    [intact] = three.documents("nodes", "renew", "1")
    lose_folder(disk)
    refused = three.run("nodes", "renew", "1", stdin="n\n", code=1)
    assert f"{disk} has no node marker: the disk is empty, or it is not mounted" in refused.stderr
    assert refused.stderr.endswith("pyspark-log: nothing was changed\n")
    assert not disk.exists()
    asked = three.run("nodes", "renew", "1", stdin="y\n")
    assert "renewed      yes" in asked.stdout
    assert states(three) == ["live"] * 3
    assert intact["renewed"] is False
    assert intact["incarnation"] not in asked.stdout


def test_a_node_whose_marker_is_damaged_is_renewed_with_its_rows_when_somebody_has_deleted_the_marker(three, tmp_path):
    three.run("topics", "create", "t", "--replica-assignment", "1")
    three.run("produce", "t", stdin="row\n")
    marker = tmp_path / "disk1" / "node"
    marker.write_bytes(b"")
    error = three.error("nodes", "renew", "1", "--yes")
    assert f"{marker} is damaged; if this is the store of node '1', delete that file and try again" in error
    marker.unlink()
    three.run("nodes", "renew", "1", "--yes")
    three.run("node", "run", "1", "--once")
    assert three.out("consume", "t") == "row\n"


def test_a_node_is_removed_when_it_is_fenced_and_empty_and_nobody_is_asked_before(three):
    three.run("topics", "create", "t", "--replica-assignment", "1:2")
    assert "fence it first" in three.error("nodes", "remove", "1", stdin="y\n")  # one line: no question
    three.run("nodes", "fence", "1")
    assert "has replicas of topics t; reassign these" in three.error("nodes", "remove", "1", stdin="y\n")
    three.run("topics", "delete", "t", "--yes")
    refused = three.run("nodes", "remove", "1", stdin="n\n", code=1)
    assert "This cannot be undone. [y/N]" in refused.stderr
    assert refused.stderr.endswith("pyspark-log: nothing was removed\n")
    three.run("nodes", "remove", "1", "--yes")
    assert [each["node"] for each in three.documents("nodes", "list")] == ["0", "2"]
    three.run("nodes", "fence", "0")
    assert "is the cluster root" in three.error("nodes", "remove", "0", "--yes")


def test_replicas_are_on_three_nodes_or_as_many_as_are_asked_for_or_where_one_says(three):
    three.run("topics", "create", "t", "--partitions", 2)
    assert [sorted(each) for each in partitions_of(three, "t")] == [["0", "1", "2"]] * 2
    [created] = three.documents("topics", "create", "u", "--replication-factor", 2)
    assert (created["partitions"], created["replication_factor"]) == (1, 2)
    three.run("topics", "create", "v", "--replica-assignment", "0:1,2:0,1:2")
    assert partitions_of(three, "v") == [["0", "1"], ["2", "0"], ["1", "2"]]


def test_replicas_that_cannot_be_are_refused(three):
    assert "names node '7', which does not exist" in three.error("topics", "create", "t", "--replica-assignment", "0:7")
    for text in ("", "0:", "0,,1", "0:1,"):
        said = three.misuse("topics", "create", "t", "--replica-assignment", text)
        assert "is not NODE:NODE,NODE:NODE, such as 0:1,1:2" in said
    said = three.misuse("topics", "create", "t", "--replica-assignment", "0:1", "--partitions", 2)
    assert "cannot be combined with --partitions or --replication-factor" in said
    assert [each["topic"] for each in three.documents("topics", "list")] == ["first"]
