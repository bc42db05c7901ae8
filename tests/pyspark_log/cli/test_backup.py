"""`pyspark-log backup` and `pyspark-log restore`, on folders."""

import shutil

import pytest

from pyspark_log.opening import forget_logs
from tests.support.command_line import CommandLine, files, on_three_nodes


@pytest.fixture
def cli(tmp_path):
    """A log on three nodes, with five rows in a topic and a group that has read them."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--partitions", "2", "--replication-factor", "3")
    cli.run("produce", "t", stdin="1\n2\n3\n4\n5\n")
    cli.run("groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute")
    return cli


@pytest.fixture
def target(tmp_path):
    return tmp_path / "backups"


def restored(cli, target, folder, *options):
    cli.run("restore", target, "--path", folder, "--as-new", *options)
    return CommandLine(folder)


def rows(cli):
    return sorted(cli.out("consume", "t").split())


def test_a_log_on_several_nodes_is_backed_up_and_restored_as_one_of_its_own(cli, target, tmp_path):
    said = dict(line.split("  ", 1) for line in cli.out("backup", target).splitlines())
    assert (said["rows"].strip(), said["groups"].strip()) == ("5", "1")
    before = files(tmp_path)
    new = restored(cli, target, tmp_path / "new")
    assert rows(new) == list("12345")
    new.run("verify")
    [group] = new.documents("groups", "describe", "g")
    assert {each["lag"] for each in group["partitions"]} == {0}
    new.run("produce", "t", stdin="6\n")
    new.run("maintain")
    new.run("topics", "delete", "t", "--yes")
    assert files(tmp_path, without="new") == before
    assert rows(cli) == list("12345")


def test_a_restored_log_takes_the_place_of_the_lost_one_only_if_that_is_confirmed(cli, target, tmp_path):
    cli.run("backup", target)
    [cluster] = cli.documents("cluster", "describe")
    [topic] = cli.documents("topics", "describe", "t")
    for name in ("log", "disk1", "disk2"):
        shutil.rmtree(tmp_path / name)
    forget_logs()
    words = ("restore", target, "--as-original")
    refused = cli.run(*words, stdin="n\n", code=1).stderr
    assert "are lost, and the original must not be used afterwards. [y/N]" in refused
    assert not cli.path.exists()
    cli.run(*words, "--yes")
    assert cli.documents("cluster", "describe")[0]["cluster"] == cluster["cluster"]
    assert cli.documents("topics", "describe", "t")[0]["id"] == topic["id"]


def test_a_backup_is_verified_and_a_damaged_file_is_named_and_never_restored(cli, target, tmp_path):
    assert cli.documents("backup", target, "--verify")[0]["verified"]
    [*_, damaged] = (target / "topics").rglob("append/*")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = cli.run("backup", target, "--verify", "--keep", "1", code=1)
    assert damaged.name in result.stderr
    assert "(in backups 2, 3)" in cli.run("backup", target, "--verify", "--keep", "2", code=1).stderr
    assert [each["backup"] for each in cli.documents("restore", target, "--list")] == [1, 2, 3], "none was deleted"
    assert damaged.name in cli.error("restore", target, "--as-new", "--path", tmp_path / "new")
    assert "there is no log" in CommandLine(tmp_path / "new").error("topics", "list")


def test_old_backups_are_listed_restored_and_deleted(cli, target, tmp_path):
    assert cli.documents("backup", target)[0]["bytes"] > 0
    [same] = cli.documents("backup", target)
    assert (same["backup"], same["copied"], same["bytes"]) == (2, 0, 0)
    cli.run("produce", "t", stdin="6\n")
    assert cli.documents("backup", target)[0]["copied"] == 1
    assert [each["backup"] for each in cli.documents("restore", target, "--list")] == [1, 2, 3]
    assert rows(restored(cli, target, tmp_path / "old", "--backup", "1")) == list("12345")
    assert cli.documents("backup", target, "--keep", "1")[0]["deleted"] == [1, 2, 3]
    assert "existing: 4" in cli.misuse("restore", target, "--as-new", "--backup", "1")


def test_what_is_restored_where_and_as_what_must_be_said(cli, target):
    assert "give one of these" in cli.misuse("restore", target)
    assert "there is no backup in" in cli.misuse("restore", target, "--as-new")
    assert "overlap" in cli.error("backup", cli.path / "backups")
    cli.run("backup", target)
    assert "there is a log already" in cli.error("restore", target, "--as-new")
