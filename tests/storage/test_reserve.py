"""The reserve of a local store: made where there is room, given up, and filled up again."""

import errno
import os
import shutil
import zlib
from pathlib import Path

import pytest

from pyspark_log_storage.stores import reserve
from pyspark_log_storage.stores.local import LocalStore
from tests.support.memory_store import MemoryStore

BYTES = reserve.RESERVE_BYTES


@pytest.fixture
def store(tmp_path):
    store = LocalStore(str(tmp_path / "log"))
    store.create("node", b"a marker")
    return store


@pytest.fixture
def room(monkeypatch):
    """Let the disk have so much room."""
    return lambda number: monkeypatch.setattr(reserve, "_free", lambda _: number)


def file_of(store):
    return Path(store.url) / ".tmp" / "reserve"


def held(store):
    return file_of(store).stat().st_blocks * 512 if file_of(store).exists() else None


def test_a_reserve_takes_a_mebibyte_and_is_no_object_nor_left_over(store):
    reserve.fill(store)
    assert held(store) == BYTES == 1024 * 1024
    assert list(store.list("")) == ["node"]
    os.utime(file_of(store), (0, 0))
    assert store.delete_unfinished() == []
    assert held(store) == BYTES


def test_a_disk_with_little_room_keeps_it_for_rows(store, room):
    room(2 * BYTES - 1)
    reserve.fill(store)
    assert held(store) is None
    room(2 * BYTES)
    reserve.fill(store)
    assert held(store) == BYTES


def test_a_reserve_is_given_up_once(store, room):
    assert not reserve.release(store)
    reserve.fill(store)
    assert reserve.release(store)
    assert held(store) is None
    assert not reserve.release(store)
    room(0)
    file_of(store).touch()
    assert not reserve.release(store), "an empty one makes no room"


def test_what_is_left_is_reserved_and_filled_up_when_there_is_room(store, room, monkeypatch):
    write = os.pwrite

    def until_it_is_full(fd, data, at):
        if at >= 200_704:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: 200_704 - at], at)

    room(0)
    monkeypatch.setattr(os, "pwrite", until_it_is_full)
    reserve.fill(store, rest=True)
    monkeypatch.setattr(os, "pwrite", write)
    assert held(store) == 200_704
    room(BYTES)
    reserve.fill(store)
    assert held(store) == 200_704
    room(2 * BYTES)
    reserve.fill(store)
    assert held(store) == BYTES


def test_the_space_is_taken_by_bytes_that_do_not_compress(store):
    reserve.fill(store)
    assert len(zlib.compress(file_of(store).read_bytes())) > BYTES


def test_nothing_is_reserved_below_an_unused_mount_point_or_in_another_store(store):
    shutil.rmtree(store.url)
    for each in (store, MemoryStore("/log")):
        reserve.fill(each)
        reserve.fill(each, rest=True)
        assert not reserve.release(each)
    assert not Path(store.url).exists()
