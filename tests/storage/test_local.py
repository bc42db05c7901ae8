"""The local store against races, kills, full and broken disks."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_log_storage.errors import ObjectMissing, StoreError, StoreRefused, StoreUnavailable, StoreUnfit
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
