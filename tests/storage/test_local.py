"""The local store under races, kills and lost answers: an object is stored whole or not at all."""

import errno
import fcntl
import os
import stat

import pytest

from pyspark_log_storage.errors import (
    StoreUnfit,
)
from pyspark_log_storage.stores.local import LocalStore
from tests.support.storage.local_writes import fail, temporaries


def test_folders_in_which_this_process_can_have_made_none_are_not_flushed(local, monkeypatch):
    """It may lack the right to open them."""
    flushed, fsync = set(), os.fsync

    def recording(fd):
        flushed.add(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), local.url))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.setattr(os, "access", lambda *_: False)
    local.create("a/b/c", b"hello")
    assert flushed == {".", "a", "a/b"}


class TestLinks:
    @pytest.fixture
    def lossy(self, local, monkeypatch):
        """The store, where every link is made, and the answer lost."""
        real = os.link

        def link(source, target):
            real(source, target)
            raise FileExistsError(errno.EEXIST, "lost", target)

        monkeypatch.setattr(os, "link", link)
        return local

    def test_a_link_whose_answer_was_lost_counts_as_created(self, lossy):
        assert lossy.create("a/b", b"mine") is True
        writer = lossy.open_write("a/c")
        writer.write(b"mine")
        writer.close()
        assert lossy.read("a/c") == b"mine"

    def test_another_ones_object_is_not_taken_for_a_lost_answer(self, lossy, monkeypatch):
        lossy.create("a/b", b"first")
        monkeypatch.undo()
        assert lossy.create("a/b", b"first") is False

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS])
    def test_a_file_system_without_hard_links_is_unfit(self, local, monkeypatch, number):
        fail(monkeypatch, "link", number)
        with pytest.raises(StoreUnfit, match="hard links"):
            local.create("a", b"")
        assert temporaries(local) == []


def test_a_file_system_that_cannot_flush_folders_is_unfit_before_anything_has_a_name(tmp_path, monkeypatch):
    real = os.fsync

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    os.makedirs(tmp_path / "made/.tmp")
    for name in ("made", "new"):
        store = LocalStore(str(tmp_path / name))
        for write in (store.create, store.put):
            with pytest.raises(StoreUnfit, match=r"cannot flush folders \(Invalid argument\).*use another"):
                write("a/b", b"")
        assert list(store.list("")) == []


def test_on_macos_bytes_are_flushed_to_the_disk_itself_and_a_mount_that_cannot_flushes_what_it_can(
    tmp_path, monkeypatch
):
    """macOS has no fdatasync, and fcntl with F_FULLFSYNC instead."""
    store, calls = LocalStore(str(tmp_path)), []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda _, call: calls.append(call))
    assert store.create("a", b"1")
    writer = store.open_write("b")
    writer.write(b"2")
    writer.close()
    assert calls == [51, 51]

    def unknown(*_):
        raise OSError(errno.ENOTSUP, "unknown")

    fsync = os.fsync
    monkeypatch.setattr(fcntl, "fcntl", unknown)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or fsync(fd))
    assert store.create("c", b"3")
    assert calls[2:] == ["fsync", "fsync"]  # the file, and the folder of its name
