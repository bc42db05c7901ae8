"""`pyspark-log backup` and `pyspark-log restore`, on folders."""

import json
import shutil

import pytest

from pyspark_log.opening import forget_logs
from tests.pyspark_log.cli.test_copies import files
from tests.support.command_line import CommandLine, on_three_nodes


@pytest.fixture
def cli(tmp_path):
    """A log on three nodes, with five rows in a topic and a group that has read them."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--partitions", "2", "--replication-factor", "3")
    cli.run("produce", "t", stdin="1\n2\n3\n4\n5\n")
    cli.run("groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute")
    return cli


def restored(cli, target, folder, *options):
    cli.run("restore", target, "--path", folder, *options)
    return CommandLine(folder)


def test_a_log_on_several_nodes_is_backed_up_and_restored_as_one_of_its_own(cli, tmp_path):
    assert "5 rows, 1 group" in cli.out("backup", tmp_path / "backups")
    before = files(tmp_path)
    new = restored(cli, tmp_path / "backups", tmp_path / "new", "--as-new")
    assert sorted(new.out("consume", "t").split()) == list("12345")
    assert "no problems" in new.out("verify")
    [group] = new.documents("groups", "describe", "g")
    assert {each["lag"] for each in group["partitions"]} == {0}
    new.run("produce", "t", stdin="6\n")
    new.run("maintain")
    new.run("topics", "delete", "t", "--yes")
    assert {name: each for name, each in files(tmp_path).items() if name.parts[0] != "new"} == before
    assert sorted(cli.out("consume", "t").split()) == list("12345")


def test_a_restored_log_takes_the_place_of_the_lost_one_only_if_that_is_confirmed(cli, tmp_path):
    cli.run("backup", tmp_path / "backups")
    [cluster] = cli.documents("cluster", "describe")
    [topic, *_] = cli.documents("topics", "describe", "t")
    for name in ("log", "disk1", "disk2"):
        shutil.rmtree(tmp_path / name)
    forget_logs()
    words = ("restore", tmp_path / "backups", "--as-original")
    refused = cli.run(*words, stdin="n\n", code=1).stderr
    assert "are lost, and the original must not be used afterwards. [y/N]" in refused
    assert not cli.path.exists()
    cli.run(*words, "--yes")
    assert cli.documents("cluster", "describe")[0]["cluster"] == cluster["cluster"]
    assert cli.documents("topics", "describe", "t")[0]["id"] == topic["id"]


def test_a_copy_of_the_root_is_backed_up_from_its_own_files(cli, tmp_path):
    shutil.copytree(cli.path, tmp_path / "copy")
    copy, before = CommandLine(tmp_path / "copy"), files(tmp_path)
    copy.out("backup", tmp_path / "backups", "--verify")
    assert {name: each for name, each in files(tmp_path).items() if name.parts[0] != "backups"} == before
    new = restored(cli, tmp_path / "backups", tmp_path / "new", "--as-new")
    assert sorted(new.out("consume", "t").split()) == list("12345")


def test_a_backup_is_verified_and_a_problem_is_named_and_ends_with_code_1(cli, tmp_path):
    assert "checked every file: no problems" in cli.out("backup", tmp_path / "backups", "--verify")
    [*_, damaged] = (tmp_path / "backups" / "topics").rglob("append/*")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    result = cli.run("backup", tmp_path / "backups", "--verify", "--keep", "1", code=1)
    assert "checked every file: 1 problem" in result.stdout
    assert damaged.name in result.stderr
    assert f"move damaged files out of {tmp_path / 'backups'}, and the next backup copies them again" in result.stderr
    assert [each["backup"] for each in cli.documents("restore", tmp_path / "backups", "--list")] == [1, 2]
    assert damaged.name in cli.error("restore", tmp_path / "backups", "--as-new", "--path", tmp_path / "new")
    assert "there is no log" in CommandLine(tmp_path / "new").error("topics", "list")


def test_old_backups_are_listed_restored_and_deleted(cli, tmp_path):
    target = tmp_path / "backups"
    assert cli.documents("backup", target)[0]["bytes"] > 0
    [same] = cli.documents("backup", target)
    assert (same["backup"], same["copied"], same["bytes"]) == (2, 0, 0)
    cli.run("produce", "t", stdin="6\n")
    assert cli.documents("backup", target)[0]["copied"] == 1
    assert [each["backup"] for each in cli.documents("restore", target, "--list")] == [1, 2, 3]
    old = restored(cli, target, tmp_path / "old", "--as-new", "--backup", "1")
    assert sorted(old.out("consume", "t").split()) == list("12345")
    assert "deleted 3 older backups" in cli.out("backup", target, "--keep", "1")
    assert "existing: 4" in cli.misuse("restore", target, "--as-new", "--backup", "1")


def test_a_list_names_a_damaged_backup_and_shows_the_others(cli, tmp_path):
    target = tmp_path / "backups"
    for _ in range(3):
        cli.run("backup", target)
    [_, damaged, _] = sorted((target / "backups").iterdir())
    damaged.write_bytes(b"damaged")
    result = cli.run("restore", target, "--list", "--json", code=1)
    assert [json.loads(line)["backup"] for line in result.stdout.splitlines()] == [1, 3]
    assert damaged.name in result.stderr


def test_a_backup_is_reported_although_a_damaged_older_one_prevents_deletions(cli, tmp_path):
    target = tmp_path / "backups"
    for _ in range(2):
        cli.run("backup", target)
    [_, damaged] = sorted((target / "backups").iterdir())
    damaged.write_bytes(b"damaged")
    result = cli.run("backup", target, "--verify", "--keep", "2", code=1)
    assert "backup 3 of cluster" in result.stdout
    assert "checked every file: no problems" in result.stdout
    assert damaged.name in result.stderr
    damaged.unlink()
    assert "deleted 1 older backup" in cli.run("backup", target, "--keep", "2").stdout


def test_what_is_restored_where_and_as_what_must_be_said(cli, tmp_path):
    assert "give one of these" in cli.misuse("restore", tmp_path / "backups")
    assert "there is no backup in" in cli.misuse("restore", tmp_path / "backups", "--as-new")
    assert "overlap" in cli.error("backup", cli.path / "backups")
    cli.run("backup", tmp_path / "backups")
    assert "there is a log already" in cli.error("restore", tmp_path / "backups", "--as-new")
