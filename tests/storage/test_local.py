"""The local store under races, kills and lost answers: an object is stored whole or not at all."""

import errno
import fcntl
import os
import shutil
import signal
import sys

import pytest

from pyspark_log_storage.errors import (
    ObjectMissing,
    StoreUnfit,
)
from pyspark_log_storage.stores import local
from pyspark_log_storage.stores.local import LocalStore
from tests.support.storage.local_writes import fail, start, temporaries

RACERS = 16
RACES = 40

# Creates each key that it is told, with bytes that are its own, and says whether it did it.
RACER = """
import sys
from pyspark_log_storage.stores.local import LocalStore
store = LocalStore(sys.argv[1])
for line in sys.stdin:
    print(store.create(line.strip(), (sys.argv[2] + " ").encode() * 5000), flush=True)
"""

# Hangs in the system call whose name it is given, in the middle of a `create`.
STOPS_INSIDE = """
import os, sys
from pyspark_log_storage.stores.local import LocalStore
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
from pyspark_log_storage.stores.local import LocalStore
writer = LocalStore(sys.argv[1]).open_write("a/b")
writer.write(bytes(100_000))
print("inside", flush=True)
sys.stdin.read()
"""


def kill_inside(script, *arguments):
    with start(script, *arguments) as process:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    """For each key, the processes that created it; and the store."""
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

    def test_write_back_of_a_large_file_begins_early(self, warm, monkeypatch):
        told = []
        monkeypatch.setattr(local, "_begin_writeback", lambda _, start, length: told.append((start, length)))
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
        local._begin_writeback(fd, 0, 1 << 20)
        local._begin_writeback(-1, 0, 1)  # the flush reports errors
        os.close(fd)
        assert local._sync_file_range() is not None

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

    def test_a_folder_that_vanished_and_is_made_again_is_flushed_again(self, warm, calls):
        shutil.rmtree(f"{warm.url}/a")
        warm.create("a/b/c", b"hello")
        assert {"fsync .", "fsync a", "fsync a/b"} <= set(calls)

    def test_folders_in_which_this_process_can_have_made_none_are_not_flushed(self, local, calls, monkeypatch):
        monkeypatch.setattr(os, "access", lambda *_: False)
        local.create("a/b/c", b"hello")
        assert {call for call in calls if call.startswith("fsync")} == {"fsync .", "fsync a", "fsync a/b"}

    def test_folders_above_a_mount_point_are_not_flushed(self, local, calls, monkeypatch):
        def on_a_disk_of_its_own(path, *arguments, **options):
            found = list(real(path, *arguments, **options))
            found[2] = len(str(path))
            return os.stat_result(found)

        real = os.stat
        monkeypatch.setattr(os, "stat", on_a_disk_of_its_own)
        local.create("a/b/c", b"hello")
        assert {call for call in calls if call.startswith("fsync")} == {"fsync .", "fsync a", "fsync a/b"}

    def test_the_second_writer_flushes_what_the_first_may_not_have_flushed(self, warm, calls):
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
