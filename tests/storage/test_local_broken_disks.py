"""The local store on full, read-only and broken disks."""

import errno
import os

import pytest

from pyspark_log_storage.errors import (
    StoreRefused,
    StoreUnavailable,
    is_node_failure,
)
from pyspark_log_storage.stores.local import LocalStore
from tests.support.storage.local_writes import fail, temporaries, write


def create(store, data=b"hello"):
    store.create("a/b", data)


def put(store, data=b"hello"):
    store.put("a/b", data)


WRITES = pytest.mark.parametrize("write", [create, put, write])


class TestBrokenDisks:
    @WRITES
    @pytest.mark.parametrize(
        ("call", "number", "words"),
        [
            ("write", errno.ENOSPC, "disk is full"),
            ("write", errno.EDQUOT, "quota"),
            ("write", errno.EROFS, "read-only"),
            ("write", errno.EACCES, "permission"),
            ("open", errno.EMFILE, "ulimit -n"),
            ("open", errno.ENFILE, "machine has too many"),
        ],
    )
    def test_a_disk_that_says_no_has_refused_and_why(self, local, monkeypatch, write, call, number, words):
        local.create("a/other", b"")
        fail(monkeypatch, call, number)
        with pytest.raises(StoreRefused, match=words) as caught:
            write(local)
        assert caught.value.retriable is False
        assert is_node_failure(caught.value) is (number in {errno.ENOSPC, errno.EDQUOT, errno.EROFS})

    @pytest.mark.parametrize(
        ("call", "denied", "named"), [("open", "/.tmp/", "/.tmp"), ("mkdir", "/a/b", "/a"), ("link", "/a/b", "/a")]
    )
    def test_without_permission_the_folder_that_refused_is_named(self, local, monkeypatch, call, denied, named):
        local.create("a/other", b"")
        real = getattr(os, call)

        def deny(path, *target, **options):
            if str([path, *target][call == "link"]).startswith(local.url + denied):
                raise PermissionError(errno.EACCES, "denied", path, None, *target[: call == "link"])
            return real(path, *target, **options)

        monkeypatch.setattr(os, call, deny)
        with pytest.raises(StoreRefused, match=f"check the owner and mode of {local.url}{named}, then"):
            local.create("a/b/c", b"")

    @pytest.mark.parametrize(
        ("write", "call"),
        [
            *((each, call) for each in (create, put, write) for call in ("write", "fdatasync", "fsync", "close")),
            (create, "link"),
            (put, "rename"),
            (write, "link"),
        ],
    )
    def test_an_io_error_may_pass_and_leaves_no_temporary_file(self, local, monkeypatch, write, call):
        local.create("a/other", b"")
        with monkeypatch.context() as broken:
            fail(broken, call, errno.EIO)
            with pytest.raises(StoreUnavailable, match="Input/output error") as caught:
                write(local)
        assert caught.value.retriable is True
        assert temporaries(local) == []
        if call in {"write", "fdatasync"}:
            assert list(local.list("")) == ["a/other"]

    @pytest.mark.parametrize("call", ["open", "pread"])
    def test_a_read_error_may_pass(self, local, monkeypatch, call):
        local.create("a", b"hello")
        fail(monkeypatch, call, errno.EIO)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            local.read("a")

    @WRITES
    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOENT])
    def test_a_name_that_cannot_be_flushed_is_in_doubt_whatever_the_reason(self, local, monkeypatch, write, number):
        """The object is there. To say "refused" would mean that it is not."""
        local.create("a/other", b"")
        fail(monkeypatch, "fsync", number)
        with pytest.raises(StoreUnavailable):
            write(local)

    def test_a_temporary_file_that_cannot_be_removed_does_not_undo_a_create(self, local, monkeypatch):
        fail(monkeypatch, "unlink", errno.EIO)
        assert local.create("a/b", b"") is True

    def test_a_piece_that_was_torn_gives_the_object_up(self, local, monkeypatch):
        """Else the same piece, written again, would lie behind its own first half."""
        writer = local.open_write("a/b")
        real = os.write

        def torn(fd, data):
            if len(data) < 5:
                raise OSError(errno.EIO, "torn")
            return real(fd, data[:3])

        monkeypatch.setattr(os, "write", torn)
        with pytest.raises(StoreUnavailable):
            writer.write(b"hello")
        with pytest.raises(AssertionError):
            writer.close()

    def test_a_short_write_and_a_short_read_are_gone_on_with(self, local, monkeypatch):
        write, read = os.write, os.pread
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        local.create("a", bytes(range(100)))
        assert local.read("a") == bytes(range(100))
        monkeypatch.setattr(os, "pread", lambda fd, length, start: read(fd, min(length, 7), start))
        assert local.read("a", 10, 50) == bytes(range(10, 60))

    def test_an_error_while_listing_names_the_folder(self, local, monkeypatch):
        local.create("a/b", b"")
        fail(monkeypatch, "scandir", errno.EACCES)
        with pytest.raises(StoreRefused) as caught:
            list(local.list("a/"))
        assert caught.value.key == "a/"

    @WRITES
    def test_a_folder_that_vanishes_under_a_write_is_no_missing_object(self, local, monkeypatch, write):
        fail(monkeypatch, "mkdir", errno.ENOENT)
        with pytest.raises(StoreUnavailable):
            write(local)

    @WRITES
    def test_a_root_that_is_a_file_is_refused(self, tmp_path, write):
        (tmp_path / "file").touch()
        with pytest.raises(StoreRefused, match="part of the path is a file"):
            write(LocalStore(str(tmp_path / "file")))
