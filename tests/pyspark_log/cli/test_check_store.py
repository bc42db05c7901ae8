"""`pyspark-log cluster check-store`: whether a folder can hold a log, alone or with another machine."""

import threading

import pytest

from pyspark_log_storage.errors import StoreUnfit
from pyspark_log_storage.stores import self_test
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.store_check import meet
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path / "log")


def test_a_folder_on_a_disk_can_hold_a_log_and_the_output_says_what_was_not_tested(cli, tmp_path):
    printed = cli.out("cluster", "check-store", tmp_path)
    assert printed.startswith(f"{tmp_path} can hold a log, as far as this test shows\n")
    assert "power failure" in printed
    assert "use --meet" in printed
    [found] = cli.documents("cluster", "check-store", tmp_path)
    assert (found["machines"], found["rounds"], found["locks"]) == (1, 50, True)
    assert found["file_system"]


def test_two_machines_meet(cli, tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(meet(LocalStore(str(tmp_path)), "monday", "other")))
    thread.start()
    printed = cli.out("cluster", "check-store", tmp_path, "--meet", "monday")
    thread.join()
    assert "machines     2\n" in printed
    assert "--meet" not in printed
    assert found[0].rounds == 50


def test_a_node_that_is_in_use_may_be_checked(cli):
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="a\n")
    cli.run("cluster", "check-store", cli.path)
    assert cli.out("consume", "t") == "a\n"
    assert "no problems" in cli.out("verify")


def test_what_is_not_there_is_not_created(cli, tmp_path):
    assert "is it mounted?" in cli.error("cluster", "check-store", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert "not a word" in cli.misuse("cluster", "check-store", tmp_path, "--meet", "a/b")


def test_a_store_that_fails_the_test_is_an_error(cli, tmp_path, monkeypatch):
    def unfit(store, *_):
        raise StoreUnfit(store.url, "", "it overwrites an existing object")

    monkeypatch.setattr(self_test, "self_test", unfit)
    assert cli.error("cluster", "check-store", tmp_path) == "it overwrites an existing object"
