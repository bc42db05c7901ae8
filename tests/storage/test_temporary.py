"""Temporary files: what a dead writer left is swept, what a living one writes never is, however long it sleeps."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyspark_log_storage.errors import StoreRefused
from pyspark_log_storage.stores import temporary
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.temporary import STILL_SECONDS

PROCESSES = 4
SECONDS = 1.5

# Stops inside the call that it is told, in the middle of a `create`, a `put` or a large object, until stdin ends.

# Writes objects of all kinds until stdin ends, and says how many.
WRITES = """
import sys, threading
from pyspark_log_storage.stores.local import LocalStore
store, count = LocalStore(sys.argv[1]), 0
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
while not ended.is_set():
    key = f"{sys.argv[2]}/{count}"
    if count % 3 == 0:
        assert store.create(key, b"x" * 5000)
    elif count % 3 == 1:
        store.put(key, b"x" * 5000)
    else:
        writer = store.open_write(key, durable=False)
        writer.write(b"x" * 2500)
        writer.write(b"x" * 2500)
        writer.close()
    count += 1
print(count, flush=True)
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def files(store):
    folder = Path(store.url) / ".tmp"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


def make_old(store, name, seconds=STILL_SECONDS + 60):
    moment = time.time() - seconds
    os.utime(f"{store.url}/.tmp/{name}", (moment, moment))


@pytest.mark.parametrize("method", ["create", "put", "open_write"])
def test_a_file_is_swept_once_its_writer_is_gone_and_not_before_however_old_it_is(local, monkeypatch, method):
    """A writer that sleeps, and is never killed here: the system drops its lock when it ends."""
    swept = []

    def sleep(real):
        def asleep(*arguments):
            [name] = files(local)
            make_old(local, name, 10 * STILL_SECONDS)
            swept.append(local.delete_unfinished())
            return real(*arguments)

        return asleep

    for call in ("fdatasync", "link", "rename"):
        monkeypatch.setattr(os, call, sleep(getattr(os, call)))
    if method == "open_write":
        writer = local.open_write("a/b")
        writer.write(b"hello")
        writer.close()
    else:
        getattr(local, method)("a/b", b"hello")
    assert len(swept) >= 2
    assert not any(swept)
    assert (files(local), local.read("a/b")) == ([], b"hello")


def abandoned(store):
    """Leave a file as a writer does that is killed: the system closes its descriptors. Return the name of the file."""
    writer = store.open_write("a/b")
    for fd in (writer._fd, writer._temporary._lock):
        os.close(fd)
    writer._fd = writer._temporary._lock = -1
    [name] = files(store)
    return name


def test_of_many_sweeps_one_names_the_file_of_a_writer_that_is_gone(local):
    name = abandoned(local)
    assert local.delete_unfinished(dry_run=True) == [f".tmp/{name}"]
    with ThreadPoolExecutor(8) as threads:
        swept = [each for found in threads.map(lambda _: local.delete_unfinished(), range(8)) for each in found]
    assert (swept, files(local)) == ([f".tmp/{name}"], [])


@pytest.mark.deep
def test_many_writers_are_never_disturbed_by_sweeps(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    writers = [start(WRITES, store.url, number) for number in range(PROCESSES)]
    end, swept = time.monotonic() + SECONDS, []
    try:
        while time.monotonic() < end:
            swept += store.delete_unfinished()
            swept += store.delete_unfinished(dry_run=True)
    finally:
        answers = [writer.communicate()[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * PROCESSES
    assert all(store.size(key) == 5000 for key in store.list(""))
    assert len(list(store.list(""))) == sum(map(int, answers)) > 0
    # A writer is disturbed at most before it has begun: it takes another name then.
    assert files(store) == []
    assert len(swept) < sum(map(int, answers)) / 10


# Between the file and its lock


@pytest.mark.parametrize("how", ["locks", "deletes"])
def test_a_file_that_a_cleanup_locks_or_deletes_first_is_replaced_by_another(local, monkeypatch, how):
    real, taken = fcntl.flock, []

    def flock(fd, operation):
        if not taken:
            path = os.readlink(f"/proc/self/fd/{fd}")
            taken.append(os.open(path, os.O_RDONLY))
            if how == "locks":
                real(taken[0], operation)
            else:
                os.unlink(path)
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert local.create("a/b", b"hello") is True
    assert (local.read("a/b"), files(local)) == (b"hello", [])
    os.close(taken[0])


def test_a_writer_that_ends_between_a_look_and_its_lock_has_left_nothing(local, monkeypatch):
    writer = local.open_write("a/b")
    real, ended = fcntl.flock, []

    def flock(fd, operation):
        if not ended:
            ended.append(True)
            writer.close()
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert local.delete_unfinished(dry_run=True) == []
    writer = local.open_write("a/c")
    ended.clear()
    assert local.delete_unfinished() == []
    assert list(local.list("")) == ["a/b", "a/c"]


# Where locks say nothing


@pytest.fixture(params=["another machine", "no boot id", "no locks"])
def untold(request, local, monkeypatch, tmp_path):
    """The store, as a writer sees it of whose files a lock says nothing to others; where is it."""
    if request.param == "another machine":
        other = tmp_path / "boot_id"
        other.write_text("another\n")
        monkeypatch.setattr(temporary, "_BOOT_ID", str(other))
    elif request.param == "no boot id":
        monkeypatch.setattr(temporary, "_BOOT_ID", str(tmp_path / "none"))
    else:
        monkeypatch.setattr(fcntl, "flock", refuse_locks)
    return local


def refuse_locks(fd, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def leave(store, monkeypatch):
    """Write in a way that nothing can be seen of, and be gone; return the name of the file."""
    assert store.create("a/c", b"first") is True, "it is written to as any other"
    assert files(store) == []
    writer = store.open_write("a/b")
    writer.write(b"hello")
    os.close(writer._temporary._lock)
    monkeypatch.undo()
    [name] = files(store)
    return name


def test_a_file_whose_lock_is_invisible_stays_for_a_day(untold, monkeypatch):
    name = leave(untold, monkeypatch)
    assert untold.delete_unfinished() == []
    make_old(untold, name, STILL_SECONDS - 60)
    assert untold.delete_unfinished() == []
    make_old(untold, name)
    assert untold.delete_unfinished(dry_run=True) == [f".tmp/{name}"]
    assert untold.delete_unfinished() == [f".tmp/{name}"]


def test_a_writer_whose_file_was_swept_fails_and_nothing_is_lost(local, monkeypatch):
    """A day was not enough for the writer."""
    writer = local.open_write("a/b")
    writer.write(b"hello")
    os.unlink(writer._temporary.path)
    with pytest.raises(Exception, match="a/b"):
        writer.close()
    assert list(local.list("")) == []
    assert local.create("a/b", b"again") is True


# Strange things


def test_a_sweep_that_is_not_allowed_says_so(local, monkeypatch):
    abandoned(local)

    def refuse(*_, dir_fd):
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StoreRefused, match="permission"):
        local.delete_unfinished()


def test_what_the_store_does_not_name_or_is_no_file_is_left_alone_however_old(local):
    assert local.delete_unfinished() == []
    assert not Path(local.url).exists(), "it was never written to"
    local.create("a", b"")
    folder, word = Path(local.url) / ".tmp", "f" * 32
    others = ["notes.txt", word[1:], f"{word}f", "F" * 32, f"{word[16:]}-{word[1:]}", f"{word}.bak", f".{word}", "ü"]
    for name in [*others, word, f"{'0' * 16}-{word}"]:
        (folder / name).write_bytes(b"somebody's")
        make_old(local, name)
    (folder / ("e" * 32)).symlink_to(folder / "notes.txt")
    (folder / ("d" * 32)).mkdir()
    os.mkfifo(folder / ("c" * 32))
    for name in ("d" * 32, "c" * 32):
        make_old(local, name)
    assert local.delete_unfinished() == [f".tmp/{'0' * 16}-{word}", f".tmp/{word}"]
    assert files(local) == sorted([*others, "e" * 32, "d" * 32, "c" * 32])
