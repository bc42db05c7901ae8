"""Copies of logs on disks: what one can do with them, and `pyspark-log cluster adopt`."""

import shutil

import pytest

from pyspark_log.opening import forget_logs, open_log
from pyspark_log_coordinator.backup import as_new
from pyspark_log_coordinator.journal import journal_nodes
from tests.support.command_line import CommandLine, on_three_nodes


def files(folder):
    return {each.relative_to(folder): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


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


def test_deleting_a_topic_of_copied_journal_nodes_deletes_nothing(journals, tmp_path):
    log, copy = journals
    before = files(tmp_path)
    said = copy.error("topics", "delete", "t", "--yes")
    assert said.startswith(f"the log at {copy.path} is a copy: according to its records".replace(",", ", "))
    assert "is a copy" in copy.run("maintain", code=1).stderr
    assert "is a copy" in copy.error("produce", "t", stdin="two\n")
    assert copy.out("consume", "t") == "one\n"
    assert files(tmp_path) == before
    assert log.out("consume", "t") == "one\n"
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
    log, copy = journals
    shutil.rmtree(tmp_path / "disks")
    refused = copy.run("cluster", "adopt", "--moved", stdin="n\n", code=1).stderr
    assert (
        f"which was at {str(log.path).replace(',', ', ')}? Rows are lost if the original is used afterwards. [y/N]"
        in refused
    )
    assert "nothing was changed" in refused
    assert "is a copy" in copy.error("topics", "delete", "t", "--yes")
    assert "is at" in copy.out("cluster", "adopt", "--moved", "--yes")
    assert "already; nothing was changed" in copy.out("cluster", "adopt", "--moved", "--yes")
    forget_logs()
    copy.run("produce", "t", stdin="two\n")
    assert copy.out("consume", "t") == "one\ntwo\n"
    assert [each["address"] for each in copy.documents("nodes", "list")] == str(copy.path).split(",")
    assert "no problems" in copy.out("verify")
    assert not (tmp_path / "disks").exists()


def test_an_adoption_that_was_interrupted_is_continued(journals, tmp_path, monkeypatch):
    _, copy = journals
    replace = journal_nodes.replace

    def replace_one(nodes, store):
        if store.url.endswith("b"):
            raise KeyboardInterrupt
        return replace(nodes, store)

    monkeypatch.setattr(journal_nodes, "replace", replace_one)
    copy.run("cluster", "adopt", "--moved", "--yes", code=130)
    monkeypatch.undo()
    forget_logs()
    before = files(tmp_path / "disks")
    copy.run("produce", "t", stdin="two\n", code=None)
    assert "is at" in copy.out("cluster", "adopt", "--moved", "--yes")
    forget_logs()
    copy.run("produce", "t", stdin="three\n")
    copy.run("topics", "delete", "t", "--yes")
    assert files(tmp_path / "disks") == before


def test_a_copied_root_maintains_none_of_the_nodes_that_it_shares_with_its_original(tmp_path):
    log = on_three_nodes(tmp_path)
    log.run("topics", "create", "t", "--replication-factor", "3")
    log.run("produce", "t", stdin="one\n")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    log.run("topics", "delete", "first", "--yes")
    copy, before = CommandLine(tmp_path / "copy"), files(tmp_path)
    assert "belongs to the original of this copy" in copy.run("node", "run", "1", "--once", code=1).stderr
    for act in (["maintain"], ["topics", "delete", "t", "--yes"]):
        assert "is a copy: according to its records, its root is at" in copy.run(*act, code=1).stderr
    assert copy.out("consume", "t") == "one\n"
    assert files(tmp_path) == before


def test_a_link_to_the_root_is_the_root(tmp_path):
    log = on_three_nodes(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    CommandLine(tmp_path / "link").run("produce", "first", stdin="one\n")
    assert log.out("consume", "first") == "one\n"


def test_one_says_whether_the_log_was_moved_or_has_a_second_path(tmp_path):
    log = CommandLine(tmp_path / "log")
    log.run("topics", "create", "t")
    assert "give one of these" in log.misuse("cluster", "adopt")
    assert "give one of these" in log.misuse("cluster", "adopt", "--moved", "--same-storage")
    assert "give one of these" in log.misuse("cluster", "adopt", "--moved", "--as-new")


def test_a_copied_root_becomes_a_cluster_of_its_own_and_its_original_is_not_touched(tmp_path):
    log = on_three_nodes(tmp_path)
    log.run("topics", "create", "t", "--replication-factor", "3")
    log.run("produce", "t", stdin="one\n")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    copy = CommandLine(tmp_path / "copy")

    def of_the_original():
        return {path: data for path, data in files(tmp_path).items() if path.parts[0] != "copy"}

    before = of_the_original()
    said = copy.run("cluster", "adopt", "--as-new", stdin="n\n", code=1).stderr
    assert f"make {copy.path}, a copy of cluster" in said
    assert "nothing was changed" in said
    assert "is a copy" in copy.error("produce", "t", stdin="two\n")
    assert "with one node" in copy.out("cluster", "adopt", "--as-new", "--yes")
    forget_logs()
    copy.run("produce", "t", stdin="two\n")
    copy.run("maintain")
    assert copy.out("consume", "t") == "one\ntwo\n"
    assert "no problems" in copy.out("verify")
    copy.run("topics", "delete", "first", "--yes")
    assert of_the_original() == before
    assert log.out("consume", "t") == "one\n"
    assert "is not a copy" in log.run("cluster", "adopt", "--as-new", "--yes", code=None).stderr


def test_rows_that_are_not_in_the_copied_root_are_named_by_topic_and_partition(tmp_path):
    log = on_three_nodes(tmp_path)
    for topic in ("t", "empty"):
        log.run("topics", "create", topic, "--replica-assignment", "1")
    log.run("produce", "t", stdin="one\n")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    copy, before = CommandLine(tmp_path / "copy"), files(tmp_path)
    said = copy.error("cluster", "adopt", "--as-new", "--yes")
    assert (
        "does not have all rows of these partitions, undamaged: t-0. For a log of its own, back up the original" in said
    )
    assert files(tmp_path) == before


def test_an_adoption_as_new_that_was_interrupted_is_only_continued(tmp_path, monkeypatch):
    log = on_three_nodes(tmp_path)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    copy = CommandLine(tmp_path / "copy")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(as_new, "begin_journals", killed)
    copy.run("cluster", "adopt", "--as-new", "--yes", code=130)
    monkeypatch.undo()
    forget_logs()
    assert "interrupted here; run it again" in copy.misuse("cluster", "adopt", "--moved", "--yes")
    assert "with one node" in copy.out("cluster", "adopt", "--as-new", "--yes")
    forget_logs()
    copy.run("produce", "first", stdin="one\n")
    assert log.out("consume", "first") == ""
