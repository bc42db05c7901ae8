"""The local store under races, kills and lost answers: an object is stored whole or not at all."""

import errno
import fcntl
import os
import shutil
import stat
import sys

import pytest

from pyspark_log_storage.errors import (
    StoreUnfit,
)
from pyspark_log_storage.stores import local
from pyspark_log_storage.stores.local import LocalStore
from tests.support.storage.local_writes import fail, temporaries

# Creates each key that it is told, with bytes that are its own, and says whether it did it.

# Hangs in the system call whose name it is given, in the middle of a `create`.


class TestFlushes:
    @pytest.fixture
    def calls(self, monkeypatch, local):
        """What the store asks of the operating system, in order; a flushed folder by its path."""
        made = []

        def record(call):
            real = getattr(os, call)

            def recording(*arguments, **options):
                folder = os.readlink(f"/proc/self/fd/{arguments[0]}") if call == "fsync" else ""
                made.append(f"{call} {os.path.relpath(folder, local.url)}" if folder else call)
                return real(*arguments, **options)

            monkeypatch.setattr(os, call, recording)

        for call in ("fdatasync", "link", "rename", "fsync", "unlink"):
            record(call)
        return made

    @pytest.fixture
    def warm(self, local):
        """The store, when it has flushed the folder "a" and all above it before."""
        local.create("a/b/first", b"")
        return local

    @pytest.mark.parametrize("durable", [True, False])
    def test_the_bytes_are_flushed_then_named_then_the_folder_is_flushed(self, warm, calls, durable):
        flushes = ["fdatasync"] * durable, ["fsync a/b"] * durable
        if durable:
            warm.create("a/b/c", b"hello")
            assert calls == ["fdatasync", "link", "fsync a/b", "unlink"]
            calls.clear()
            warm.put("a/b/c", b"hello")
            assert [call for call in calls if call != "unlink"] == ["fdatasync", "rename", "fsync a/b"]
            calls.clear()
        writer = warm.open_write("a/b/d", durable=durable)
        writer.write(b"hello")
        writer.close()
        assert calls == [*flushes[0], "link", *flushes[1], "unlink"]

    def test_write_back_of_a_large_file_begins_early(self, warm, monkeypatch):
        told = []
        monkeypatch.setattr(local, "_begin_writeback", lambda _, start, length: told.append((start, length)))
        for durable in (True, False):
            writer = warm.open_write(f"a/b/{durable}", durable=durable)
            for size in (3_000_000, 3_000_000, 9_000_000, 10):
                writer.write(bytes(size - 1), b"x")
            writer.close()
        assert told == [(0, 6_000_000), (6_000_000, 9_000_000)], "only what must be durable is flushed at all"

    @pytest.mark.parametrize("whose", ["its own", "another process's", "made again"])
    def test_every_new_folder_is_durable(self, local, calls, whose):
        if whose == "another process's":
            os.makedirs(f"{local.url}/a/b")
        if whose == "made again":
            local.create("a/b/first", b"")
            shutil.rmtree(f"{local.url}/a")
            calls.clear()
        local.create("a/b/c", b"hello")
        assert {"fsync .", "fsync a", "fsync a/b"} <= set(calls)
        assert ({"fsync ../..", "fsync .."} <= set(calls)) is (whose != "made again")

    @pytest.mark.parametrize("why", ["a mount point", "no rights"])
    def test_folders_above_a_mount_point_or_in_which_this_process_can_have_made_none_are_not_flushed(
        self, local, calls, monkeypatch, why
    ):
        def on_a_disk_of_its_own(path, *arguments, **options):
            found = list(real(path, *arguments, **options))
            found[2] = len(str(path))
            return os.stat_result(found)

        real = os.stat
        if why == "no rights":
            monkeypatch.setattr(os, "access", lambda *_: False)
        else:
            monkeypatch.setattr(os, "stat", on_a_disk_of_its_own)
        local.create("a/b/c", b"hello")
        assert {call for call in calls if call.startswith("fsync")} == {"fsync .", "fsync a", "fsync a/b"}

    def test_the_second_writer_flushes_what_the_first_may_not_have_flushed(self, warm, calls):
        """It may act upon the object, so the object must not vanish in a power failure."""
        assert warm.create("a/b/first", b"second") is False
        assert "fsync a/b" in calls

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is nothing to ask for it")
    def test_write_back_is_begun_before_the_flush(self, warm):
        fd = os.open(f"{warm.url}/a/b/file", os.O_CREAT | os.O_RDWR)
        os.write(fd, bytes(1 << 20))
        local._begin_writeback(fd, 0, 1 << 20)
        local._begin_writeback(-1, 0, 1)  # the flush reports errors
        os.close(fd)
        assert local._sync_file_range() is not None


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
