"""Copies of logs on disks: what one can do with them, and `pyspark-log cluster adopt`."""

import shutil

import pytest

from pyspark_log.opening import forget_logs, open_log
from tests.support.command_line import CommandLine, on_three_nodes


def files(folder, *, without="none"):
    """Return the files below a folder, but for those in one that is directly in it."""
    found = {each.relative_to(folder): each for each in folder.rglob("*") if each.is_file()}
    return {path: each.read_bytes() for path, each in found.items() if path.parts[0] != without}


@pytest.fixture
def journals(tmp_path):
    """The command lines of a cluster with three journal nodes, and of the copies of these."""
    disks, copies = ([tmp_path / kind / name for name in "abc"] for kind in ("disks", "copies"))
    CommandLine(disks[0]).out("cluster", "create", "--journal-nodes", ",".join(map(str, disks)))
    log = CommandLine(",".join(map(str, disks)))
    log.run("topics", "create", "t")
    log.run("produce", "t", stdin="one\n")
    shutil.copytree(tmp_path / "disks", tmp_path / "copies")
    forget_logs()
    return log, CommandLine(",".join(map(str, copies)))


@pytest.fixture
def root(tmp_path):
    """The command lines of a cluster of three nodes, and of a copy of its root alone."""
    log = on_three_nodes(tmp_path)
    log.run("topics", "create", "t", "--replication-factor", "3")
    log.run("produce", "t", stdin="one\n")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    return log, CommandLine(tmp_path / "copy")


def test_copied_journal_nodes_are_read_and_change_nothing(journals, tmp_path):
    log, copy = journals
    before = files(tmp_path)
    said = copy.error("topics", "delete", "t", "--yes")
    assert said.startswith(f"the log at {copy.path} is a copy: according to its records".replace(",", ", "))
    assert "is a copy" in copy.run("maintain", code=1).stderr
    assert "is a copy" in copy.error("produce", "t", stdin="two\n")
    assert copy.out("consume", "t") == log.out("consume", "t") == "one\n"
    assert files(tmp_path) == before
    assert [each.url for each in open_log(str(copy.path)).nodes_to_read] == str(copy.path).split(",")


def test_a_part_of_the_copies_is_no_way_to_the_original(journals, tmp_path):
    _, copy = journals
    assert "the copies of all journal nodes" in CommandLine(tmp_path / "copies" / "a").error("topics", "list")
    mixed = CommandLine(f"{tmp_path / 'copies' / 'a'},{tmp_path / 'disks' / 'b'}")
    assert "is a copy of a journal node" in mixed.error("topics", "list")
    two = CommandLine(str(copy.path).rpartition(",")[0])
    assert two.out("consume", "t") == "one\n"
    assert "is a copy" in two.error("topics", "delete", "t", "--yes")


def test_moved_journal_nodes_are_the_log_once_they_are_adopted(journals, tmp_path):
    _, copy = journals
    shutil.rmtree(tmp_path / "disks")
    refused = copy.run("cluster", "adopt", "--moved", stdin="n\n", code=1).stderr
    assert "Rows are lost if the original is used afterwards. [y/N]" in refused
    assert "nothing was changed" in refused
    assert "is a copy" in copy.error("topics", "delete", "t", "--yes")
    copy.run("cluster", "adopt", "--moved", "--yes")
    assert "already; nothing was changed" in copy.out("cluster", "adopt", "--moved", "--yes")
    forget_logs()
    copy.run("produce", "t", stdin="two\n")
    assert copy.out("consume", "t") == "one\ntwo\n"
    assert [each["address"] for each in copy.documents("nodes", "list")] == str(copy.path).split(",")
    copy.run("verify")
    assert not (tmp_path / "disks").exists()


def test_a_link_to_the_root_is_the_root_and_one_says_what_another_address_is(root, tmp_path):
    log, _ = root
    (tmp_path / "link").symlink_to(tmp_path / "log")
    CommandLine(tmp_path / "link").run("produce", "first", stdin="one\n")
    assert log.out("consume", "first") == "one\n"
    for words in ((), ("--moved", "--same-storage"), ("--moved", "--as-new")):
        assert "give one of these" in log.misuse("cluster", "adopt", *words)
    assert "is not a copy" in log.run("cluster", "adopt", "--as-new", "--yes", code=None).stderr


def test_a_copied_root_becomes_a_cluster_of_its_own_and_its_original_is_not_touched(root, tmp_path):
    log, copy = root
    before = files(tmp_path, without="copy")
    said = copy.run("cluster", "adopt", "--as-new", stdin="n\n", code=1).stderr
    assert f"make {copy.path}, a copy of cluster" in said
    assert "nothing was changed" in said
    assert "is a copy" in copy.error("produce", "t", stdin="two\n")
    copy.run("cluster", "adopt", "--as-new", "--yes")
    forget_logs()
    copy.run("produce", "t", stdin="two\n")
    copy.run("maintain")
    assert copy.out("consume", "t") == "one\ntwo\n"
    copy.run("verify")
    copy.run("topics", "delete", "first", "--yes")
    assert files(tmp_path, without="copy") == before
    assert log.out("consume", "t") == "one\n"
