"""The names of objects: no key leads out of its store, and what is no file of the store's is no object."""

import os

import pytest

from pyspark_log_storage.errors import StoreRefused
from pyspark_log_storage.stores.bucket import BucketStore
from pyspark_log_storage.stores.local import LocalStore
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
OUTSIDE = ["..", "../x", "a/../../x", "a/..", "/etc/x", "", "a//b", "./a", "a/.", "a\0b", ".tmp/x", ".tmp"]


@pytest.mark.parametrize("use", USES)
def test_a_key_that_leads_out_of_the_store_is_refused(tmp_path, use):
    local = LocalStore(str(tmp_path / "root"))
    local.create("selftest/x", b"")
    before = sorted(tmp_path.rglob("*"))
    nowhere = StorageOptions.given({"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"})
    for store in (local, MemoryStore(), BucketStore("s3://bucket/log", nowhere)):
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


def test_a_file_that_is_a_link_is_no_object(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    store = LocalStore(str(root))
    store.create("a/x", b"x")
    outside.write_bytes(b"somebody's")
    (root / "a" / "link").symlink_to(outside)
    (root / "linked").symlink_to(root / "a")
    assert list(store.list("")) == ["a/x"]
    assert "linked" not in list(store.folders(""))
    for use in ("read", "size"):
        with pytest.raises(StoreRefused, match="a/link: it is a symbolic link"):
            USES[use](store, "a/link")
    assert store.create("a/link", b"new") is False
    assert store.create_unflushed("a/link", b"new") is False
    store.delete("a/link")
    assert not (root / "a" / "link").is_symlink()
    assert outside.read_bytes() == b"somebody's"


def test_the_root_itself_may_be_a_link(tmp_path):
    """So operators mount disks."""
    (tmp_path / "root").mkdir()
    (tmp_path / "mounted").symlink_to(tmp_path / "root")
    store = LocalStore(str(tmp_path / "mounted"))
    store.create("a/b/x", b"x")
    assert store.read("a/b/x") == b"x"
    assert list(store.list("")) == ["a/b/x"]
    store.delete("a/b/x")
    store.remove_folders("a/")
    assert not (tmp_path / "root" / "a").exists()


def test_a_pipe_is_no_object_and_does_not_block(local):
    local.create("a/x", b"")
    os.mkfifo(f"{local.url}/a/pipe")
    assert list(local.list("")) == ["a/x"]
    with pytest.raises(Exception, match="a/pipe"):
        local.read("a/pipe", 0, 10)
