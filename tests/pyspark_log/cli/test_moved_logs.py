"""Logs on disks that were copied, moved or mounted elsewhere, and `pyspark-log cluster adopt --moved`."""

import shutil

import pytest

from pyspark_log.opening import forget_logs
from tests.support.command_line import CommandLine, files, on_three_nodes


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
    """The command line of a cluster of three nodes, whose root is `log`."""
    log = on_three_nodes(tmp_path)
    log.run("topics", "create", "t", "--replication-factor", "3")
    log.run("produce", "t", stdin="one\n")
    return log


def test_copied_journal_nodes_are_not_opened_and_change_nothing(journals, tmp_path):
    log, copy = journals
    before = files(tmp_path)
    for path in (copy.path, tmp_path / "copies" / "a", f"{tmp_path / 'copies' / 'a'},{tmp_path / 'disks' / 'b'}"):
        for words in (("topics", "list"), ("topics", "delete", "t", "--yes"), ("maintain",), ("consume", "t")):
            assert "pyspark-log cluster adopt --moved" in CommandLine(path).error(*words)
    assert files(tmp_path) == before
    assert log.out("consume", "t") == "one\n"


def test_moved_journal_nodes_are_the_log_once_they_are_adopted(journals, tmp_path):
    _, copy = journals
    shutil.rmtree(tmp_path / "disks")
    assert "--moved" in copy.misuse("cluster", "adopt")
    refused = copy.run("cluster", "adopt", "--moved", stdin="n\n", code=1).stderr
    assert "Rows are lost if the original is used afterwards. [y/N]" in refused
    assert "nothing was changed" in refused
    assert "has recorded the address" in copy.error("topics", "delete", "t", "--yes")
    copy.run("cluster", "adopt", "--moved", "--yes")
    assert [each["changed"] for each in copy.documents("cluster", "adopt", "--moved", "--yes")] == [False]
    forget_logs()
    copy.run("produce", "t", stdin="two\n")
    assert copy.out("consume", "t") == "one\ntwo\n"
    assert [each["address"] for each in copy.documents("nodes", "list")] == str(copy.path).split(",")
    copy.run("verify")
    assert not (tmp_path / "disks").exists()


def test_a_root_that_is_mounted_elsewhere_is_opened_by_a_link_at_its_address_or_adopted(root, tmp_path):
    moved = CommandLine((tmp_path / "log").rename(tmp_path / "mounted"))
    forget_logs()
    assert "make a symbolic link there that leads here" in moved.error("consume", "t")
    (tmp_path / "log").symlink_to(tmp_path / "mounted")
    for each in (moved, root):
        each.run("produce", "t", stdin="two\n")
        forget_logs()
    (tmp_path / "log").unlink()
    said = moved.run("cluster", "adopt", "--moved", stdin="y\n").stderr
    assert f"which was at {tmp_path / 'log'}? It uses the nodes at" in said
    assert moved.out("consume", "t") == "one\ntwo\ntwo\n"
