"""The folders of the local store: empty ones are deleted, and none is made below the mount point of a missing disk."""

import os
import shutil

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    NodeMissing,
    StoreUnavailable,
)
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.self_test import self_test
from pyspark_log_storage.stores.store import make_folder
from tests.support.memory_store import MemoryStore

# Empty folders


@pytest.mark.parametrize("times", [1, 2])
def test_a_create_in_a_folder_that_is_being_removed_creates_it_again_or_is_retriable(tmp_path, monkeypatch, times):
    store, link = LocalStore(str(tmp_path)), os.link
    store.create("a/b/other", b"")
    store.delete("a/b/other")
    removals = iter(range(times))

    def late(source, target):
        for _ in removals:
            LocalStore(str(tmp_path)).remove_folders("a/")
            break
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    if times == 2:
        with pytest.raises(StoreUnavailable) as refused:
            store.create("a/b/x", b"x")
        assert refused.value.retriable
    assert store.create("a/b/x", b"x")
    assert store.read("a/b/x") == b"x"


# A disk that is not mounted


@pytest.fixture
def mount_point(tmp_path):
    """The store of a node whose disk is not mounted: what is below its mount point."""
    (tmp_path / "mnt").mkdir()
    return LocalStore(str(tmp_path / "mnt"), marker="node", first="selftest/")


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.create("topics/t", b""),
        lambda store: store.put("topics/t", b""),
        lambda store: store.open_write("topics/t"),
    ],
)
def test_nothing_is_written_below_the_mount_point_of_a_disk_that_is_not_mounted(mount_point, write):
    with pytest.raises(NodeMissing, match=f"the store at {mount_point.url} has no marker: is its disk mounted"):
        write(mount_point)
    assert os.listdir(mount_point.url) == []


def test_no_folder_is_made_below_it_either(mount_point):
    with pytest.raises(StoreUnavailable, match=r"\.tmp|topics"):
        make_folder(mount_point, "topics/t/append/")
    assert os.listdir(mount_point.url) == []
    self_test(mount_point, "n")
    for _ in range(2):
        make_folder(mount_point, "topics/t/append/")
    assert list(mount_point.folders("topics/t/")) == ["append"]
    make_folder(MemoryStore(), "topics/")


def test_a_store_that_is_tried_and_marked_is_written_to(mount_point):
    self_test(mount_point, "n")
    assert mount_point.create(layout.MARKER, b"")
    shutil.rmtree(f"{mount_point.url}/.tmp")  # as may be done by hand
    assert mount_point.create("topics/t", b"")


def test_a_disk_that_is_unmounted_while_an_object_is_written_leaves_no_folders_behind(mount_point):
    self_test(mount_point, "n")
    for end in (mount_point.open_write("topics/t").close, lambda: mount_point.put("topics/t", b"")):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("link", "rename"):
                patch.setattr(os, name, _unmounts_once(mount_point, getattr(os, name)))
            with pytest.raises(StoreUnavailable):
                end()
        assert os.listdir(mount_point.url) == []
        self_test(mount_point, "n")


@pytest.mark.parametrize(
    "write", [lambda store: store.put("a/b/t", b""), lambda store: store.create_unflushed("a/b/t", b"")]
)
def test_a_root_that_is_moved_while_the_folders_of_an_object_are_created_is_not_created_again(tmp_path, write):
    store = LocalStore(str(tmp_path / "root"))
    store.create("t", b"")

    def after_moving(*arguments):
        os.rename(store.url, tmp_path / "moved")
        return mkdir(*arguments)

    mkdir = os.mkdir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", after_moving)
        with pytest.raises(StoreUnavailable):
            write(store)
    assert os.listdir(tmp_path) == ["moved"]


def _unmounts_once(store, call):
    mounted = [store.url]

    def after_unmounting(*arguments):
        while mounted:
            shutil.rmtree(mounted.pop())
            os.mkdir(store.url)
        return call(*arguments)

    return after_unmounting


def test_an_object_that_comes_while_its_folder_is_removed_stays(tmp_path, monkeypatch):
    store, rmdir = LocalStore(str(tmp_path)), os.rmdir
    (tmp_path / "a" / "b").mkdir(parents=True)

    def late(folder):
        monkeypatch.setattr(os, "rmdir", rmdir)
        assert LocalStore(str(tmp_path)).create("a/b/x", b"x")
        rmdir(folder)

    monkeypatch.setattr(os, "rmdir", late)
    store.remove_folders("a/")
    assert store.read("a/b/x") == b"x"
