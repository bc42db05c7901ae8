"""Temporary files: what a dead writer left is swept, what a living one writes never is, however long it sleeps."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pyspark_log_storage.errors import StoreRefused
from pyspark_log_storage.stores import temporary
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.temporary import STILL_SECONDS

PROCESSES = 4
SECONDS = 1.5

# Stops inside the call that it is told, in the middle of a `create`, a `put` or a large object, until stdin ends.
STOPS = """
import os, sys
from pyspark_log_storage.stores.local import LocalStore
root, method, call = sys.argv[1:]
store = LocalStore(root)
store.put("a/other", b"")
real = getattr(os, call)
def stop(*arguments):
    setattr(os, call, real)
    print("inside", flush=True)
    sys.stdin.read()
    return real(*arguments)
setattr(os, call, stop)
if method == "open_write":
    writer = store.open_write("a/b")
    writer.write(bytes(100_000))
    writer.close()
else:
    getattr(store, method)("a/b", bytes(100_000))
"""

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

STEPS = pytest.mark.parametrize(
    ("method", "call"),
    [
        *(("create", call) for call in ("write", "fdatasync", "link")),
        *(("put", call) for call in ("write", "fdatasync", "rename")),
        *(("open_write", call) for call in ("write", "fdatasync", "link")),
    ],
)


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def files(store):
    folder = Path(store.url) / ".tmp"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@contextlib.contextmanager
def stopped(store, method="create", call="link"):
    """A writer in the middle of its work."""
    with start(STOPS, store.url, method, call) as process:
        try:
            assert process.stdout.readline() == "inside\n"
            yield process
        finally:
            process.kill()


def abandoned(store, method="create", call="link"):
    """Kill a writer in the middle of its work; return the name of the file that it leaves."""
    with stopped(store, method, call):
        pass
    [name] = files(store)
    return name


def make_old(store, name, seconds=STILL_SECONDS + 60):
    moment = time.time() - seconds
    os.utime(f"{store.url}/.tmp/{name}", (moment, moment))


@STEPS
def test_the_file_of_a_killed_writer_is_swept(local, method, call):
    name = abandoned(local, method, call)
    assert local.delete_unfinished() == [f".tmp/{name}"]
    assert files(local) == []
    assert list(local.list("")) == ["a/other"]


@STEPS
def test_the_file_of_a_writer_that_sleeps_is_not_swept_however_old_it_is(local, method, call):
    with stopped(local, method, call) as process:
        process.send_signal(signal.SIGSTOP)
        [name] = files(local)
        make_old(local, name, 10 * STILL_SECONDS)
        assert local.delete_unfinished() == []
        assert files(local) == [name]
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
        assert process.wait() == 0
    assert local.read("a/b") == bytes(100_000)
    assert files(local) == []


def test_a_dry_run_names_the_file_and_leaves_it(local):
    name = abandoned(local)
    assert local.delete_unfinished(dry_run=True) == [f".tmp/{name}"]
    assert files(local) == [name]
    assert local.delete_unfinished() == [f".tmp/{name}"]


def test_an_object_that_has_its_name_stays_when_its_temporary_name_is_swept(local):
    abandoned(local, "create", "unlink")
    assert len(local.delete_unfinished()) == 1
    assert local.read("a/b") == bytes(100_000)


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


def test_of_many_sweeps_at_once_one_names_each_file(local):
    for _ in range(5):
        with stopped(local):
            pass
    names, answers = files(local), []
    threads = [threading.Thread(target=lambda: answers.extend(local.delete_unfinished())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [f".tmp/{name}" for name in names]
    assert len(names) == 5


# Between the file and its lock


def test_a_file_that_a_cleanup_locks_first_is_replaced_by_another(local, monkeypatch):
    real, taken = fcntl.flock, []

    def flock(fd, operation):
        if not taken:
            taken.append(os.open(os.readlink(f"/proc/self/fd/{fd}"), os.O_RDONLY))
            real(taken[0], operation)
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert local.create("a/b", b"hello") is True
    assert (local.read("a/b"), files(local)) == (b"hello", [])
    os.close(taken[0])


def test_a_file_that_a_cleanup_deletes_before_it_is_locked_is_replaced_by_another(local, monkeypatch):
    real, gone = fcntl.flock, []

    def flock(fd, operation):
        if not gone:
            gone.append(os.readlink(f"/proc/self/fd/{fd}"))
            os.unlink(gone[0])
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert local.create("a/b", b"hello") is True
    assert (local.read("a/b"), files(local)) == (b"hello", [])


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
    writer = store.open_write("a/b")
    writer.write(b"hello")
    os.close(writer._temporary._lock)  # as the system does when a process ends
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


def test_a_cleanup_without_locks_uses_the_age(local, monkeypatch):
    name = abandoned(local)
    monkeypatch.setattr(fcntl, "flock", refuse_locks)
    assert local.delete_unfinished() == []
    make_old(local, name)
    assert local.delete_unfinished() == [f".tmp/{name}"]


def test_a_file_system_without_locks_is_written_to_as_any_other(local, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse_locks)
    assert local.create("a/b", b"first") is True
    local.put("a/c", b"second")
    assert (local.read("a/b"), local.read("a/c"), files(local)) == (b"first", b"second", [])


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


def test_what_is_no_file_is_left_alone(local):
    local.create("a", b"")
    folder = Path(local.url) / ".tmp"
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    for each in ("folder", "pipe"):
        os.utime(folder / each, (0, 0))
    assert local.delete_unfinished() == []
    assert files(local) == ["folder", "link", "pipe"]


def test_a_store_that_was_never_written_to_has_nothing_to_sweep(local):
    assert local.delete_unfinished() == []
    assert not Path(local.url).exists()


def test_a_sweep_that_is_not_allowed_says_so(local, monkeypatch):
    abandoned(local)

    def refuse(*_, dir_fd):
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StoreRefused, match="permission"):
        local.delete_unfinished()


def test_a_writer_that_is_discarded_twice_closes_only_its_own_file(local):
    writer = local.open_write("a/b")
    writer.discard()
    with open(os.devnull) as one, open(os.devnull) as other:
        writer.discard()
        os.fstat(one.fileno())
        os.fstat(other.fileno())


def test_what_the_store_does_not_name_is_left_alone_however_old(local):
    local.create("a", b"")
    folder = Path(local.url) / ".tmp"
    others = [
        "notes.txt",
        "f" * 31,
        "f" * 33,
        "F" * 32,
        f"{'f' * 16}-{'f' * 31}",
        f"{'f' * 32}.bak",
        f".{'f' * 32}",
        "ü",
    ]
    for name in [*others, "f" * 32, f"{'0' * 16}-{'f' * 32}"]:
        (folder / name).write_bytes(b"somebody's")
        make_old(local, name)
    (folder / ("e" * 32)).symlink_to(folder / "notes.txt")
    assert local.delete_unfinished() == [f".tmp/{'0' * 16}-{'f' * 32}", f".tmp/{'f' * 32}"]
    assert files(local) == sorted([*others, "e" * 32])
