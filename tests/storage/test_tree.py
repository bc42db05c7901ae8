"""A store's folder: nothing outside of it is read, written, listed or deleted, whatever keys and links there are."""

import itertools
import os

import pytest

from pyspark_log_storage.errors import CorruptObject, StoreRefused
from pyspark_log_storage.stores import tree
from pyspark_log_storage.stores.local import WHOLE_BYTES_MAX, LocalStore
from pyspark_log_storage.stores.s3 import S3Store
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.memory_store import MemoryStore

USES = {
    "create": lambda store, key: store.create(key, b"new"),
    "create_unflushed": lambda store, key: store.create_unflushed(key, b"new"),
    "put": lambda store, key: store.put(key, b"new"),
    "read": lambda store, key: store.read(key),
    "size": lambda store, key: store.size(key),
    "exists": lambda store, key: store.exists(key),
    "delete": lambda store, key: store.delete(key),
    "open_write": lambda store, key: store.open_write(key),
    "list": lambda store, key: list(store.list(f"{key}/")),
    "folders": lambda store, key: list(store.folders(f"{key}/")),
    "remove_folders": lambda store, key: store.remove_folders(f"{key}/"),
}
EVERY_USE = pytest.mark.parametrize("use", USES)
OUTSIDE = ["..", "../x", "a/../../x", "a/..", "/etc/x", "", "a//b", "./a", "a/.", "a\0b", ".tmp/x", ".tmp"]


@pytest.mark.parametrize("use", USES)
def test_a_key_that_leads_out_of_the_store_is_refused(tmp_path, use):
    local = LocalStore(str(tmp_path / "root"))
    local.create("selftest/x", b"")
    before = sorted(tmp_path.rglob("*"))
    nowhere = StorageOptions.given({"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"})
    for store in (local, MemoryStore(), S3Store("s3://bucket/log", nowhere)):
        for key in OUTSIDE:
            if key == "" and use in {"list", "folders", "remove_folders"}:
                key = "/"  # noqa: PLW2901
            with pytest.raises(StoreRefused, match="is not a valid object key"):
                USES[use](store, key)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("root", ["", "relative/path", "a\0b", "/a\0b"])
def test_an_address_that_is_no_absolute_path_is_refused(root):
    with pytest.raises(StoreRefused, match="absolute path"):
        LocalStore(root)


# Links


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"somebody's")
    (tmp_path / "outside" / "empty").mkdir()
    return tmp_path / "root"


def is_untouched(root):
    outside = root.parent / "outside"
    return sorted(os.listdir(outside)) == ["empty", "x"] and (outside / "x").read_bytes() == b"somebody's"


@EVERY_USE
@pytest.mark.parametrize(("link", "to"), [("a/link", "outside"), ("link", "outside"), ("link", "")])
def test_a_folder_that_is_a_link_is_not_followed(root, use, link, to):
    (root / link).symlink_to(root.parent / to)
    folder = link if to else f"{link}/outside"
    key = folder if use in {"list", "folders", "remove_folders"} else f"{folder}/x"
    with pytest.raises(StoreRefused, match=f"{link} is a symbolic link"):
        USES[use](LocalStore(str(root)), key)
    assert is_untouched(root)


@pytest.mark.parametrize("use", ["list", "folders", "delete", "remove_folders"])
def test_a_link_that_takes_the_place_of_a_folder_meanwhile_is_not_followed(root, use):
    store = LocalStore(str(root))
    store.put("a/x", b"")
    store.delete("a/x")
    (root / "a").rmdir()
    (root / "a").symlink_to(root.parent / "outside")
    with pytest.raises(StoreRefused, match="symbolic link"):
        USES[use](store, "a/x" if use == "delete" else "a")
    assert is_untouched(root)


def test_a_file_that_is_a_link_is_no_object(root):
    (root / "a" / "link").symlink_to(root.parent / "outside" / "x")
    store = LocalStore(str(root))
    assert list(store.list("")) == []
    for use in ("read", "size"):
        with pytest.raises(StoreRefused, match="symbolic link"):
            USES[use](store, "a/link")
    assert store.create("a/link", b"new") is False
    store.delete("a/link")
    assert not (root / "a" / "link").is_symlink()
    assert is_untouched(root)


def test_the_root_itself_may_be_a_link(root):
    """So operators mount disks."""
    (root.parent / "mounted").symlink_to(root)
    store = LocalStore(str(root.parent / "mounted"))
    store.create("a/b/x", b"x")
    assert store.read("a/b/x") == b"x"
    assert list(store.list("")) == ["a/b/x"]
    store.delete("a/b/x")
    store.remove_folders("a/")
    assert not (root / "a").exists()


def test_a_link_in_the_place_of_the_folder_of_temporary_files_is_not_followed(root):
    name = "f" * 32
    (root / ".tmp").symlink_to(root.parent / "outside")
    (root.parent / "outside" / name).write_bytes(b"")
    os.utime(root.parent / "outside" / name, (0, 0))
    store = LocalStore(str(root))
    for use in (store.delete_unfinished, lambda: store.create("a/x", b"x"), lambda: store.put("a/x", b"x")):
        with pytest.raises(StoreRefused, match="symbolic link"):
            use()
    assert (root.parent / "outside" / name).exists()


# Strange things


def test_a_pipe_is_no_object_and_does_not_block(root):
    os.mkfifo(root / "a" / "pipe")
    store = LocalStore(str(root))
    assert list(store.list("")) == []
    with pytest.raises(Exception, match="a/pipe"):
        store.read("a/pipe", 0, 10)


def test_an_object_that_is_larger_than_any_is_not_read_whole(local):
    """It may be a file with holes, which takes no space on the disk."""
    local.create("a", b"hello")
    os.truncate(f"{local.url}/a", WHOLE_BYTES_MAX + 1)
    with pytest.raises(CorruptObject, match="the maximum for objects of its kind"):
        local.read("a")
    assert local.read("a", 1, 4) == b"ello"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_interrupt_at_any_close_closes_no_descriptor_twice(tmp_path, monkeypatch, at):
    """The number may be that of another thread's file by then."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"")
    real, calls = os.close, itertools.count()

    def close(fd: int) -> None:
        real(fd)  # OSError if it is closed already
        if next(calls) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", close)
    with pytest.raises(KeyboardInterrupt):
        tree.Tree(str(tmp_path)).delete("a/b/c")


def test_folders_that_are_deeper_than_any_are_not_listed(root):
    path = root
    for _ in range(tree.DEPTH_MAX + 5):
        path = path / "d"
    path.mkdir(parents=True)
    (path / "x").write_bytes(b"")
    store = LocalStore(str(root))
    assert list(store.list("")) == []
    store.remove_folders("d/")
    assert (path / "x").exists()
