"""Disks of their own that are full or read-only: the command line says so, and what frees space goes on.

The log stays readable meanwhile, the audit finds nothing wrong, and no row is lost.
"""

import contextlib
import os
from pathlib import Path

import pytest

from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_storage.stores import reserve
from tests.support.command_line import CommandLine
from tests.support.coordinator.small_topic import make_constants_small
from tests.torture.mounted_disk import Disk

MEBIBYTE = 2**20


@pytest.fixture(autouse=True)
def small_constants(monkeypatch):
    make_constants_small(monkeypatch.setattr)


@contextlib.contextmanager
def mounted(path, size):
    """Mount a disk of this size, where that is possible."""
    disk = Disk(path)
    if not disk.mount(size):
        pytest.skip("only root may mount a disk, and not everywhere")
    yield disk
    disk.unmount()


@pytest.fixture
def disk(tmp_path):
    """A disk of a megabyte, which is gone afterwards."""
    with mounted(tmp_path, MEBIBYTE) as disk:
        yield disk


def test_the_command_line_says_that_the_disk_is_full_and_what_was_written(disk):
    command = CommandLine(Path(disk.root))
    command.run("topics", "create", "t")
    command.run("produce", "t", stdin="first\n")
    disk.fill(0)
    for words in ("produce t", "delete-records t --partition 0 --before 1 --yes", "topics create u", "maintain"):
        said = command.run(*words.split(), stdin="second\n", code=1).stderr
        assert f"cannot use {disk.root}/" in said
        assert "the disk is full; free some space, then try again" in said
    assert command.error("produce", "t", stdin="second\n").endswith("; nothing was written")
    assert command.out("consume", "t") == "first\n"
    assert command.documents("verify")[-1]["sound"]
    disk.free()
    command.run("produce", "t", stdin="second\n")
    assert command.out("consume", "t") == "first\nsecond\n"
    assert command.documents("verify")[-1]["sound"]


def test_the_command_line_reads_a_disk_that_is_read_only_and_says_that_it_is(disk):
    command = CommandLine(Path(disk.root))
    command.run("topics", "create", "t")
    command.run("produce", "t", stdin="first\n")
    disk.remount("ro")
    message = command.error("produce", "t", stdin="second\n")
    assert message.startswith(f"cannot use {disk.root}/")
    assert message.endswith("the file system is read-only; mount it for writing, then try again; nothing was written")
    assert command.out("consume", "t") == "first\n"
    assert command.documents("verify")[-1]["sound"]


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """A disk of 4 MiB with room for a reserve, and a log with topics t and u on it; then it is full."""
    monkeypatch.setattr(reserve, "RESERVE_BYTES", MEBIBYTE)
    with mounted(tmp_path, 4 * MEBIBYTE) as disk:
        command = CommandLine(Path(disk.root))
        for topic in "tu":
            command.run("topics", "create", topic, "--config", "file.delete.delay.ms=0")
            command.run("produce", topic, stdin=os.urandom(300_000).hex() + "\n")
        with monkeypatch.context() as undone:  # by itself a Producer would roll its own row
            undone.setattr(roll_plan, "ROLL_CHUNKS", 1)
            command.run("maintain")
        command.run("produce", "t", stdin="unrolled\n")
        disk.fill(0)
        yield disk, command


def reserved(disk):
    return (Path(disk.root) / ".tmp" / "reserve").stat().st_blocks * 512


def test_on_a_full_disk_rows_and_topics_can_be_deleted_and_maintenance_frees_their_space(full_disk):
    disk, command = full_disk
    assert "the disk is full" in command.error("produce", "t", stdin="second\n")
    [deleted] = command.documents("delete-records", "t", "--partition", "0", "--before", "-1", "--yes")
    assert deleted["rows"] == 2
    command.run("topics", "delete", "u", "--yes")
    assert 0.9 * MEBIBYTE < reserved(disk) < MEBIBYTE  # what is left is not for writers
    assert disk.room() == 0
    command.run("maintain", code=None)
    assert disk.room() > 500_000
    command.run("maintain")
    assert reserved(disk) == MEBIBYTE
    command.run("produce", "t", stdin="second\n")
    assert command.out("consume", "t") == "second\n"
    command.out("verify")


def test_on_a_full_disk_retention_can_be_shortened_and_is_applied_before_anything_is_rolled(full_disk):
    disk, command = full_disk
    command.run("topics", "alter", "t", "--config", "retention.ms=0")
    [done] = command.documents("maintain", "t")
    assert [(each["from"], each["log_start"]) for each in done["expired"]] == [(0, 1), (1, 2)]  # before it and after it
    assert done["segments"] == 1
    assert disk.room() > 200_000
