"""Records the system calls of this process that change the files of some disks, and ends the process at one of them.

Only calls of `os` are recorded. What changes a file by any other means is found by `Recorder.assert_complete`: the
model of each disk must have what its folder has.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark_log_storage.stores import local
from tests.disk.disk import Call, Disk, Tree
from tests.support.faulty_store import Killed

_REAL = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
_CREATES = os.O_CREAT | os.O_TRUNC
_WRITES = os.O_WRONLY | os.O_RDWR
_UNKNOWN = ("writev", "pwritev", "sendfile", "copy_file_range", "splice", "symlink", "mkfifo", "mknod", "truncate")
"""Calls that would change a file, and that nothing here makes."""


class Recorder:
    """The calls for the folders at `paths`, each of which is a disk; the folders exist and are empty."""

    def __init__(self, paths: dict[str, str]) -> None:
        """`paths` has the folder of each disk by its name."""
        self.paths = paths
        self.disks = {name: Disk() for name in paths}
        self.calls: list[tuple[str, Call]] = []
        """All calls: the disk, and what was done there."""
        self.kill_at = -1
        """The number of the call before which the process is killed, counted in `calls`."""
        self.is_dead = False
        self._open: dict[int, tuple[str, int]] = {}
        """The disk and the file or folder of each descriptor."""
        self._writing: set[int] = set()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this process does meanwhile."""
        own = {name.removeprefix("_os_"): getattr(self, name) for name in dir(self) if name.startswith("_os_")}
        with contextlib.ExitStack() as stack:
            for name in _UNKNOWN:
                if hasattr(os, name):
                    stack.enter_context(mock.patch.object(os, name, self._refuse(name)))
            for name, function in own.items():
                stack.enter_context(mock.patch.object(os, name, function))
            yield

    def revive(self) -> None:
        """Begin another process after one was killed. The files that it had open are closed."""
        self.is_dead, self.kill_at = False, -1
        for fd in list(self._writing):
            self._os_close(fd)

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless the disks are as the recorded calls left them."""
        for name, path in self.paths.items():
            assert self.disks[name].tree() == read_tree(path), f"{name} was changed by a call that is not recorded"

    def _refuse(self, name: str) -> Any:
        def refuse(*arguments: Any, **_: Any) -> None:
            raise AssertionError(f"os.{name} is called with {arguments!r}, and the recorder does not know it")

        return refuse

    def _place(self, path: Any, dir_fd: int | None = None) -> tuple[str, str] | None:
        """Return the disk and the path there, or None for a path elsewhere."""
        if isinstance(path, int):
            return None
        where = os.fspath(path)
        if dir_fd is not None:
            where = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{where}"
        for name, root in self.paths.items():
            if where.startswith(f"{root}/"):
                return name, where[len(root) + 1 :]
            if where == root:
                return name, ""
        return None

    def _before(self, place: object) -> None:
        """Kill the process if it is its time: no call of it changes anything afterwards."""
        if place is not None and (self.is_dead or len(self.calls) == self.kill_at):
            self.is_dead = True
            raise Killed

    def _record(self, disk: str, call: Call) -> None:
        self.disks[disk].apply(call)
        self.calls.append((disk, call))

    # The calls

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        if place is None:
            return int(_REAL["open"](path, flags, mode, dir_fd=dir_fd))
        self._before(place if flags & _CREATES else None)
        fd = int(_REAL["open"](path, flags, mode, dir_fd=dir_fd))
        disk, name = place
        node = self.disks[disk].find(name)
        if node is None:
            self._record(disk, Call("create", name))
            node = self.disks[disk].find(name)
        elif flags & os.O_TRUNC:
            self._record(disk, Call("truncate", number=node.number))
        assert node is not None
        self._open[fd] = disk, node.number
        if flags & _WRITES:
            self._writing.add(fd)
        return fd

    def _os_close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._writing.discard(fd)
        _REAL["close"](fd)

    def _os_write(self, fd: int, data: Any) -> int:
        at = os.lseek(fd, 0, os.SEEK_CUR) if fd in self._open else 0
        return self._written(fd, data, at, lambda: _REAL["write"](fd, data))

    def _os_pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._written(fd, data, offset, lambda: _REAL["pwrite"](fd, data, offset))

    def _written(self, fd: int, data: Any, offset: int, write: Any) -> int:
        place = self._open.get(fd)
        self._before(place)
        count = int(write())
        if place is not None:
            self._record(place[0], Call("write", number=place[1], offset=offset, data=bytes(data)[:count]))
        return count

    def _os_ftruncate(self, fd: int, length: int) -> None:
        place = self._open.get(fd)
        self._before(place)
        _REAL["ftruncate"](fd, length)
        if place is not None:
            self._record(place[0], Call("truncate", number=place[1], offset=length))

    def _os_fsync(self, fd: int) -> None:
        self._flushed(fd, "fsync")

    def _os_fdatasync(self, fd: int) -> None:
        self._flushed(fd, "fdatasync")

    def _flushed(self, fd: int, name: str) -> None:
        """Of the disk of the model: the files of the tests may be in memory."""
        place = self._open.get(fd)
        if place is None:
            _REAL[name](fd)
            return
        self._before(place)
        self._record(place[0], Call("flush", number=place[1], place=_flusher()))

    def _os_link(self, src: Any, dst: Any, **more: Any) -> None:
        self._named("link", src, dst, more)

    def _os_rename(self, src: Any, dst: Any, **more: Any) -> None:
        self._named("rename", src, dst, more)

    def _os_replace(self, src: Any, dst: Any, **more: Any) -> None:
        self._named("replace", src, dst, more)

    def _named(self, call: str, src: Any, dst: Any, more: dict[str, Any]) -> None:
        before, after = self._place(src, more.get("src_dir_fd")), self._place(dst, more.get("dst_dir_fd"))
        assert (before and before[0]) == (after and after[0]), f"{call} of {src} to {dst}, on another disk"
        self._before(after)
        _REAL[call](src, dst, **more)
        if before is not None and after is not None:
            kind = "link" if call == "link" else "rename"
            self._record(after[0], Call(kind, after[1], source=before[1]))

    def _os_unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removed("unlink", path, dir_fd)

    def _os_remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removed("unlink", path, dir_fd)

    def _os_rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removed("rmdir", path, dir_fd)

    def _removed(self, call: str, path: Any, dir_fd: int | None) -> None:
        place = self._place(path, dir_fd)
        self._before(place)
        _REAL[call](path, dir_fd=dir_fd)
        if place is not None:
            self._record(place[0], Call(call, place[1]))

    def _os_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        self._before(place)
        _REAL["mkdir"](path, mode, dir_fd=dir_fd)
        if place is not None:
            self._record(place[0], Call("mkdir", place[1]))


def read_tree(path: str) -> Tree:
    """Return the files and folders below a folder."""
    return {str(each.relative_to(path)): None if each.is_dir() else each.read_bytes() for each in Path(path).rglob("*")}


def write_tree(path: str, tree: Tree) -> None:
    """Make the files and folders of a tree in an empty folder."""
    for name, content in tree.items():
        if content is None:
            os.mkdir(f"{path}/{name}")
        else:
            with open(f"{path}/{name}", "wb") as file:
                file.write(content)


def replayed(
    calls: list[tuple[str, Call]], names: list[str], without: str = ""
) -> Iterator[tuple[int, dict[str, Disk]]]:
    """Yield the disks before the first call, and after each; they are the same objects each time.

    The flushes of the place `without` are left out.
    """
    disks = {name: Disk() for name in names}
    yield 0, disks
    for number, (name, call) in enumerate(calls, 1):
        if not without or call.place != without:
            disks[name].apply(call)
        yield number, disks


def _flusher() -> str:
    """Return the function of the store that flushes something, and the one that called it.

    A function that calls itself does something else then: it flushes the folders above.
    """
    names: list[str] = []
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == local.__file__:
            names.append(frame.f_code.co_name)
    inner = [name for name in names if name not in {"_flush_file", "_flush_folder"}]
    return " < ".join(inner[:2])
