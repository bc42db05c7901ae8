"""The local store against races, kills, full and broken disks."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_log_storage import layout, node, writeback
from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
)
from pyspark_log_storage.local import LocalStore

RACERS = 16
RACES = 40

# Creates each key that it is told, with bytes that are its own, and says whether it did it.
RACER = """
import sys
from pyspark_log_storage.local import LocalStore
store = LocalStore(sys.argv[1])
for line in sys.stdin:
    print(store.create(line.strip(), (sys.argv[2] + " ").encode() * 5000), flush=True)
"""

# Stops for ever inside the call that it is told, in the middle of a `create`.
STOPS_INSIDE = """
import os, sys
from pyspark_log_storage.local import LocalStore
def stop(*_):
    print("inside", flush=True)
    sys.stdin.read()
store = LocalStore(sys.argv[1])
store.put("a/other", b"")
setattr(os, sys.argv[2], stop)
store.create("a/b", bytes(100_000))
"""

STOPS_WHILE_WRITING = """
import sys
from pyspark_log_storage.local import LocalStore
writer = LocalStore(sys.argv[1]).open_write("a/b")
writer.write(bytes(100_000))
print("inside", flush=True)
sys.stdin.read()
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def kill_inside(script, *arguments):
    with start(script, *arguments) as process:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def temporaries(store):
    folder = Path(store.url) / ".tmp"
    return sorted(folder.iterdir()) if folder.exists() else []


def fail(monkeypatch, call, number):
    """Let a call of the operating system fail."""

    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    """For each key, who said that it created it; and the store."""
    store = LocalStore(str(tmp_path_factory.mktemp("races") / "root"))
    racers = [start(RACER, store.url, racer) for racer in range(RACERS)]
    winners = {}
    for race in range(RACES):
        key = f"folder {race % 5}/of/{race}"
        for racer in racers:
            racer.stdin.write(f"{key}\n")
        winners[key] = [i for i, racer in enumerate(racers) if racer.stdout.readline() == "True\n"]
    for racer in racers:
        with racer:
            racer.stdin.close()
        assert racer.returncode == 0
    return store, winners


class TestRaces:
    def test_of_sixteen_processes_exactly_one_creates_an_object(self, races):
        _, winners = races
        assert {key: who for key, who in winners.items() if len(who) != 1} == {}

    def test_the_object_holds_the_bytes_of_the_one_that_created_it(self, races):
        store, winners = races
        assert {store.read(key) == f"{who[0]} ".encode() * 5000 for key, who in winners.items()} == {True}

    def test_every_object_lists_once(self, races):
        store, winners = races
        assert list(store.list("")) == sorted(winners)

    def test_nothing_temporary_is_left(self, races):
        store, _ = races
        assert temporaries(store) == []


class TestKilled:
    @pytest.mark.parametrize("call", ["write", "fdatasync", "link"])
    def test_a_process_killed_inside_create_leaves_nothing_visible(self, local, call):
        kill_inside(STOPS_INSIDE, local.url, call)
        assert list(local.list("")) == ["a/other"]

    def test_a_writer_killed_before_its_end_leaves_nothing_visible(self, local):
        kill_inside(STOPS_WHILE_WRITING, local.url)
        assert list(local.list("")) == []
        with pytest.raises(ObjectMissing):
            local.read("a/b")

    def test_what_a_killed_process_left_does_not_list(self, local):
        kill_inside(STOPS_WHILE_WRITING, local.url)
        assert len(temporaries(local)) == 1
        assert list(local.list("")) == []

    def test_the_key_of_a_killed_writer_stays_free(self, local):
        kill_inside(STOPS_WHILE_WRITING, local.url)
        assert local.create("a/b", b"mine") is True

    @pytest.mark.parametrize("call", ["fsync", "unlink"])
    def test_a_process_killed_after_the_link_leaves_the_whole_object(self, local, call):
        kill_inside(STOPS_INSIDE, local.url, call)
        assert local.read("a/b") == bytes(100_000)

    def test_a_folder_called_as_that_of_temporary_files_lists_below_the_root(self, local):
        local.create("topics/.tmp/x", b"")
        assert list(local.list("")) == ["topics/.tmp/x"]


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

    def test_create_flushes_the_bytes_then_names_them_then_flushes_the_folder(self, warm, calls):
        warm.create("a/b/c", b"hello")
        assert calls == ["fdatasync", "link", "fsync a/b", "unlink"]

    def test_put_flushes_the_bytes_then_names_them_then_flushes_the_folder(self, warm, calls):
        warm.put("a/b/c", b"hello")
        assert [call for call in calls if call != "unlink"] == ["fdatasync", "rename", "fsync a/b"]

    def test_a_writer_flushes_the_bytes_then_names_them_then_flushes_the_folder(self, warm, calls):
        writer = warm.open_write("a/b/c")
        writer.write(b"hello")
        writer.close()
        assert calls == ["fdatasync", "link", "fsync a/b", "unlink"]

    def test_of_a_large_file_the_kernel_is_told_early_what_to_write_back(self, warm, monkeypatch):
        told = []
        monkeypatch.setattr(writeback, "begin", lambda _, start, length: told.append((start, length)))
        for durable in (True, False):
            writer = warm.open_write(f"a/b/{durable}", durable=durable)
            for size in (3_000_000, 3_000_000, 9_000_000, 10):
                writer.write(bytes(size - 1), b"x")
            writer.close()
        assert told == [(0, 6_000_000), (6_000_000, 9_000_000)], "only what must be durable is flushed at all"

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is nothing to ask for it")
    def test_write_back_is_begun_before_the_flush(self, warm):
        fd = os.open(f"{warm.url}/a/b/file", os.O_CREAT | os.O_RDWR)
        os.write(fd, bytes(1 << 20))
        writeback.begin(fd, 0, 1 << 20)
        writeback.begin(-1, 0, 1)  # whoever flushes is told of errors
        os.close(fd)
        assert writeback._sync_file_range() is not None

    def test_a_writer_that_need_not_be_durable_flushes_nothing(self, warm, calls):
        warm.open_write("a/b/c", durable=False).close()
        assert calls == ["link", "unlink"]

    def test_every_new_folder_is_durable(self, local, calls):
        local.create("a/b/c", b"hello")
        assert {"fsync ../..", "fsync ..", "fsync .", "fsync a", "fsync a/b"} <= set(calls)

    def test_a_folder_that_another_process_made_is_flushed_as_well(self, local, calls):
        os.makedirs(f"{local.url}/a/b")
        local.create("a/b/c", b"hello")
        assert {"fsync .", "fsync a", "fsync a/b"} <= set(calls)

    def test_who_comes_second_flushes_what_the_first_may_not_have_flushed(self, warm, calls):
        """It may act upon the object, so the object must not vanish in a power failure."""
        assert warm.create("a/b/first", b"second") is False
        assert "fsync a/b" in calls


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

    def test_a_writer_whose_link_lost_its_answer_has_written(self, lossy):
        writer = lossy.open_write("a/b")
        writer.write(b"mine")
        writer.close()
        assert lossy.read("a/b") == b"mine"

    def test_another_ones_object_is_not_taken_for_a_lost_answer(self, lossy, monkeypatch):
        lossy.create("a/b", b"first")
        monkeypatch.undo()
        assert lossy.create("a/b", b"first") is False

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS])
    def test_a_file_system_without_hard_links_is_unfit(self, local, monkeypatch, number):
        fail(monkeypatch, "link", number)
        with pytest.raises(StoreUnfit, match="hard links"):
            local.create("a", b"")

    def test_an_unfit_file_system_keeps_no_temporary_file(self, local, monkeypatch):
        fail(monkeypatch, "link", errno.EPERM)
        with pytest.raises(StoreUnfit):
            local.create("a", b"")
        assert temporaries(local) == []


def create(store):
    store.create("a/b", b"hello")


def put(store):
    store.put("a/b", b"hello")


def write(store):
    writer = store.open_write("a/b")
    try:
        writer.write(b"hello")
        writer.close()
    finally:
        writer.discard()


WRITES = pytest.mark.parametrize("write", [create, put, write])


class TestBrokenDisks:
    @WRITES
    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (errno.ENOSPC, "disk is full"),
            (errno.EDQUOT, "quota"),
            (errno.EROFS, "read-only"),
            (errno.EACCES, "permission"),
        ],
    )
    def test_a_disk_that_says_no_has_refused_and_why(self, local, monkeypatch, write, number, words):
        fail(monkeypatch, "write", number)
        with pytest.raises(StoreRefused, match=words) as caught:
            write(local)
        assert (caught.value.key, caught.value.retriable) == ("a/b", False)

    @WRITES
    @pytest.mark.parametrize("call", ["write", "fdatasync"])
    def test_an_io_error_may_pass(self, local, monkeypatch, write, call):
        fail(monkeypatch, call, errno.EIO)
        with pytest.raises(StoreUnavailable, match="Input/output error") as caught:
            write(local)
        assert caught.value.retriable is True

    @pytest.mark.parametrize(
        ("write", "call"),
        [
            *((each, call) for each in (create, put, write) for call in ("write", "fdatasync", "fsync", "close")),
            (create, "link"),
            (put, "rename"),
            (write, "link"),
        ],
    )
    def test_a_write_that_failed_leaves_no_temporary_file(self, local, monkeypatch, write, call):
        local.create("a/other", b"")
        with monkeypatch.context() as broken:
            fail(broken, call, errno.EIO)
            with pytest.raises(StoreUnavailable):
                write(local)
        assert temporaries(local) == []

    @WRITES
    @pytest.mark.parametrize("call", ["write", "fdatasync"])
    def test_a_write_that_failed_early_leaves_nothing_visible(self, local, monkeypatch, write, call):
        fail(monkeypatch, call, errno.EIO)
        with pytest.raises(StoreUnavailable):
            write(local)
        assert list(local.list("")) == []

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

    def test_a_short_write_is_gone_on_with(self, local, monkeypatch):
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
        local.create("a", bytes(range(100)))
        assert local.read("a") == bytes(range(100))

    def test_a_short_read_is_gone_on_with(self, local, monkeypatch):
        local.create("a", bytes(range(100)))
        real = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, length, start: real(fd, min(length, 7), start))
        assert local.read("a", 10, 50) == bytes(range(10, 60))

    @pytest.mark.parametrize("call", ["open", "pread"])
    def test_a_read_error_may_pass(self, local, monkeypatch, call):
        local.create("a", b"hello")
        fail(monkeypatch, call, errno.EIO)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            local.read("a")

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

    def test_an_error_of_the_caller_of_a_list_stays_its_own(self, local):
        local.create("a", b"")
        with pytest.raises(OSError, match="mine"):  # noqa: PT012 -- the list is what runs
            for _ in local.list(""):
                raise OSError(errno.EIO, "mine")

    def test_an_occupied_key_leaves_no_temporary_file(self, local):
        local.create("a/b", b"")
        with pytest.raises(StoreError):
            write(local)
        assert temporaries(local) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
class TestSmallDisk:
    @pytest.fixture
    def disk(self, tmp_path):
        """A store on a disk of 64 KB."""
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=False)
        if mounted.returncode:
            pytest.skip("this place allows no mounts")
        yield LocalStore(str(tmp_path / "root"))
        subprocess.run(["umount", "--lazy", tmp_path], check=True)

    @pytest.mark.parametrize("method", ["create", "put"])
    def test_a_full_disk_has_refused(self, disk, method):
        with pytest.raises(StoreRefused, match="disk is full"):
            getattr(disk, method)("a/b", bytes(100_000))

    @pytest.mark.parametrize("method", ["create", "put"])
    def test_a_full_disk_gives_back_what_a_failed_write_took(self, disk, method):
        with pytest.raises(StoreRefused):
            getattr(disk, method)("a/b", bytes(100_000))
        assert disk.create("a/b", bytes(40_000)) is True

    def test_a_writer_on_a_full_disk_has_refused(self, disk):
        with pytest.raises(StoreRefused, match="disk is full"):
            disk.open_write("a/b").write(bytes(100_000))
        assert temporaries(disk) == []

    @WRITES
    def test_a_read_only_disk_has_refused(self, disk, tmp_path, write):
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        with pytest.raises(StoreRefused, match="read-only"):
            write(disk)


# Empty folders


def test_empty_folders_go_and_all_that_hold_something_stay(tmp_path):
    store = LocalStore(str(tmp_path))
    for key in ("t/empty/deep/x", "t/used/x", "u/x"):
        store.create(key, b"")
    store.delete("t/empty/deep/x")
    (tmp_path / "t" / "link").symlink_to(tmp_path / "u")
    store.delete("u/x")
    store.remove_folders("t/")
    assert sorted(each.name for each in (tmp_path / "t").iterdir()) == ["link", "used"]
    assert (tmp_path / "u").is_dir()


def test_an_object_that_comes_while_its_folder_is_removed_stays(tmp_path, monkeypatch):
    store, rmdir = LocalStore(str(tmp_path)), os.rmdir
    (tmp_path / "a" / "b").mkdir(parents=True)

    def late(name, dir_fd):
        monkeypatch.setattr(os, "rmdir", rmdir)
        assert LocalStore(str(tmp_path)).create("a/b/x", b"x")
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", late)
    store.remove_folders("a/")
    assert store.read("a/b/x") == b"x"


@pytest.mark.parametrize("times", [1, 2])
def test_who_creates_in_a_folder_that_is_being_removed_makes_it_again_or_may_try_again(tmp_path, monkeypatch, times):
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
    if times == 1:
        assert store.create("a/b/x", b"x")
    else:
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


def test_a_store_that_is_tried_and_marked_is_written_to(mount_point):
    node.self_test(mount_point, "n")
    assert mount_point.create(layout.KEY, b"")
    shutil.rmtree(f"{mount_point.url}/.tmp")  # as may be done by hand
    assert mount_point.create("topics/t", b"")


def test_a_disk_that_is_unmounted_while_an_object_is_written_leaves_no_folders_behind(mount_point):
    node.self_test(mount_point, "n")
    for end in (mount_point.open_write("topics/t").close, lambda: mount_point.put("topics/t", b"")):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("link", "rename"):
                patch.setattr(os, name, _unmounts_once(mount_point, getattr(os, name)))
            with pytest.raises(StoreUnavailable):
                end()
        assert os.listdir(mount_point.url) == []
        node.self_test(mount_point, "n")


def _unmounts_once(store, call):
    mounted = [store.url]

    def after_unmounting(*arguments):
        while mounted:
            shutil.rmtree(mounted.pop())
            os.mkdir(store.url)
        return call(*arguments)

    return after_unmounting
