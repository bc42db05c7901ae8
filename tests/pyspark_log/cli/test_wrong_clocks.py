"""What was written by a clock that runs thousands of years ahead: the years behind 9999 are none that Python knows."""

import msgspec
import pytest

from pyspark_log import opening
from pyspark_log_coordinator.backup import backup
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import checkpoint_files
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_storage.stores.local import LocalStore
from tests.support.command_line import CommandLine
from tests.support.coordinator.replicated_topic import write

FAR_AHEAD_MS = 10**15
"""The year 33658."""


@pytest.fixture
def cli(tmp_path) -> CommandLine:
    """Topic t, created and written to by such a clock."""
    environment = msgspec.structs.replace(real_environment(), now_ms=lambda: FAR_AHEAD_MS)
    log = Log(LocalStore(str(tmp_path / "log")), environment)
    log.open(create=True)
    handle = log.create_topic("t", 1)
    write(log, handle, 0, {0: [b"a", b"b"]}, on=["0"])
    checkpoint_files.write_on_nodes(handle)
    opening.forget_logs()
    return CommandLine(tmp_path / "log")


def test_the_topic_is_listed_described_and_read(cli):
    assert f"{FAR_AHEAD_MS:,} ms since 1970" in cli.out("topics", "list")
    assert cli.documents("topics", "list")[0]["created_ms"] == FAR_AHEAD_MS
    assert "t" in cli.out("topics", "describe", "t")
    assert cli.out("consume", "t").split() == ["a", "b"]
    cli.out("verify")


def test_its_files_are_dumped(cli):
    files = [each for each in cli.path.rglob("*") if each.is_file() and each.parent.name != ".tmp"]
    assert str(FAR_AHEAD_MS) in cli.out("dump", "--rows", *files)


def test_the_topic_is_maintained_by_a_clock_that_is_right(cli):
    cli.run("maintain")
    assert cli.out("consume", "t").split() == ["a", "b"]


def test_backups_of_such_a_clock_are_listed_and_restored(cli, tmp_path, monkeypatch):
    environment = msgspec.structs.replace(real_environment(), now_ms=lambda: FAR_AHEAD_MS)
    log = Log(LocalStore(str(cli.path)), environment)
    log.open(create=False)
    backup.back_up(log, LocalStore(str(tmp_path / "backups")))
    assert f"{FAR_AHEAD_MS:,} ms since 1970" in cli.out("restore", tmp_path / "backups", "--list")
    asked = cli.run("restore", tmp_path / "backups", "--as-original", "--path", tmp_path / "again", code=None)
    assert f"since {FAR_AHEAD_MS:,} ms since 1970 are lost" in asked.output


def test_a_folder_for_what_is_set_aside_is_named_by_any_clock():
    environment = msgspec.structs.replace(real_environment(), now_ms=lambda: FAR_AHEAD_MS, nonce=lambda: "n")
    assert execute.new_folder(environment) == f"set-aside/{FAR_AHEAD_MS}ms-n/"
