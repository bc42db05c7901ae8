"""Temporary files: what a killed writer left goes when it was still for a day, and nothing else does."""

import os
import time
from pathlib import Path

import pytest

from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.stores.local import STILL_SECONDS


def files(store):
    folder = Path(store.url) / ".tmp"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


def make_old(store, name, seconds=STILL_SECONDS + 60):
    moment = time.time() - seconds
    os.utime(f"{store.url}/.tmp/{name}", (moment, moment))


def abandoned(store):
    """Leave a file as a writer does that is killed: the system closes its descriptor. Return the name of the file."""
    writer = store.open_write("a/b")
    writer.write(b"half")
    os.close(writer._fd)
    [name] = files(store)
    return name


def test_the_file_of_a_killed_writer_is_deleted_when_it_was_still_for_a_day(local):
    assert local.delete_unfinished() == []
    assert not Path(local.url).exists(), "it was never written to"
    name = abandoned(local)
    assert local.delete_unfinished() == []
    make_old(local, name, STILL_SECONDS - 60)
    assert local.delete_unfinished() == []
    make_old(local, name)
    assert local.delete_unfinished(dry_run=True) == [f".tmp/{name}"]
    assert local.delete_unfinished() == [f".tmp/{name}"]
    assert (local.delete_unfinished(), files(local)) == ([], [])


def test_the_day_is_one_of_the_file_system_whatever_time_it_is_here(local, monkeypatch):
    """A process whose clock is eight days ahead would delete what others are writing."""
    abandoned(local)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * STILL_SECONDS)
    assert local.delete_unfinished() == []


def test_a_writer_whose_file_was_deleted_fails_and_nothing_is_lost(local):
    """A day was not enough for the writer."""
    writer = local.open_write("a/b")
    writer.write(b"hello")
    [name] = files(local)
    make_old(local, name)
    assert local.delete_unfinished() == [f".tmp/{name}"]
    with pytest.raises(StoreUnavailable, match="a/b"):
        writer.close()
    assert list(local.list("")) == []
    assert local.create("a/b", b"again") is True


def test_a_file_that_its_writer_removes_in_this_moment_is_not_counted(local, monkeypatch):
    names = [each * 32 for each in "ef"]
    local.create("a", b"")
    for name in names:
        Path(f"{local.url}/.tmp/{name}").touch()
        make_old(local, name)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _: ["d" * 32, *names])  # the first has gone since
        found = local.delete_unfinished()
    assert found == [f".tmp/{name}" for name in names]


def test_what_the_store_does_not_name_or_is_no_file_is_left_alone_however_old(local):
    local.create("a", b"")
    folder, word = Path(local.url) / ".tmp", "f" * 32
    others = ["notes.txt", "reserve", word[1:], f"{word}f", "F" * 32, f"{word}.bak", f".{word}", "ü"]
    for name in [*others, word]:
        (folder / name).write_bytes(b"somebody's")
        make_old(local, name)
    (folder / ("e" * 32)).symlink_to(folder / "notes.txt")
    (folder / ("d" * 32)).mkdir()
    os.mkfifo(folder / ("c" * 32))
    for name in ("d" * 32, "c" * 32):
        make_old(local, name)
    assert local.delete_unfinished() == [f".tmp/{word}"]
    assert files(local) == sorted([*others, "e" * 32, "d" * 32, "c" * 32])
