"""The calls of the operating system through which a store on a disk writes, watched and disturbed by a test.

Between two of these calls nothing on the disk changes. So a process that is killed before each of them, and in the
middle of each write, was killed wherever it matters.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec

from tests.processes.line_file import LineFile

CHANGES = ("create", "write", "link", "rename", "unlink", "mkdir")
FLUSHES = ("fdatasync", "fsync")
READS = ("read", "pread", "scandir")
"""`create` and `read` are `open`, of a new file and of one that is there."""


class Call(msgspec.Struct):
    """A call that is about to be made. `go` makes it."""

    name: str
    path: str
    """What it is about: of a link and a rename the new name."""
    arguments: tuple[Any, ...]
    go: Callable[[], Any]
    _real: Callable[..., Any]

    def tear(self) -> None:
        """Write half of what is to be written."""
        assert self.name == "write"
        descriptor, data = self.arguments
        self._real(descriptor, bytes(data)[: len(data) // 2])


Watcher = Callable[[Call], Any]
"""Is given each call in its place, and returns what it gives."""


@contextlib.contextmanager
def watched(watcher: Watcher, names: tuple[str, ...] = CHANGES) -> Iterator[None]:
    """Let every call of these names pass by the watcher."""
    paths: dict[int, str] = {}
    real_open = os.open

    def opened(path: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        name = "create" if flags & os.O_CREAT else "read"
        whole = _in(path, dir_fd)

        def go() -> int:
            descriptor = real_open(path, flags, *rest, dir_fd=dir_fd)
            paths[descriptor] = whole
            return descriptor

        if name not in names or flags & os.O_DIRECTORY:
            return go()
        return int(watcher(Call(name, whole, (path, flags), go, real_open)))

    def around(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            about = arguments[1] if name in {"link", "rename"} else arguments[0]
            path = paths.get(about, "") if isinstance(about, int) else _in(str(about), named.get("dir_fd"))
            return watcher(Call(name, path, arguments, lambda: real(*arguments, **named), real))

        return call

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(os, "open", opened))
        for name in names:
            if hasattr(os, name) and name != "read":
                stack.enter_context(mock.patch.object(os, name, around(name, getattr(os, name))))
        yield


def _in(path: str, folder: int | None) -> str:
    """Return the whole path of what a call names in an open folder."""
    return path if folder is None else f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}"


def die() -> None:
    """SIGKILL this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class SuspendPoint:
    """Where a process suspends itself. A test calls `resume`, and then continues the process (SIGCONT)."""

    def __init__(self, path: str) -> None:
        self._lines = LineFile(path)

    @property
    def is_suspended(self) -> bool:
        """Whether a process is suspended here, or will be before it does anything else."""
        return "suspended" in self._lines.lines()

    def suspend(self) -> None:
        """SIGSTOP this process until `resume`, even if the test also stops and continues it otherwise."""
        self._lines.append("suspended")
        while "resume" not in self._lines.lines():
            os.kill(os.getpid(), signal.SIGSTOP)

    def resume(self) -> None:
        self._lines.append("resume")


class Counter:
    """Makes every call, and keeps what they were."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, call: Call) -> Any:
        self.calls.append((call.name, call.path))
        return call.go()


class DeathAt:
    """Kills the process before its call number `at`, from 0, or in the middle of it."""

    def __init__(self, at: int, *, torn: bool) -> None:
        self._left = at
        self._torn = torn

    def __call__(self, call: Call) -> Any:
        if self._left == 0:
            if self._torn:
                call.tear()
            die()
        self._left -= 1
        return call.go()


class BrokenFrom:
    """Lets the calls from number `at` on fail with an error of the operating system, `times` of them.

    A write that fails has written half.
    """

    def __init__(self, at: int, error: int, times: int) -> None:
        self._left = at
        self._error = error
        self._times = times
        self.failed = 0

    def __call__(self, call: Call) -> Any:
        if self._left > 0 or self.failed == self._times:
            self._left -= 1
            return call.go()
        self.failed += 1
        if call.name == "write":
            call.tear()
        raise OSError(self._error, os.strerror(self._error))


_ONE_BY_ONE = threading.Lock()


class SuspendAt:
    """Stops the process, once, before or after a call about a path that has `part` in it.

    SIGSTOP reaches the other threads a moment later: their calls about such a path wait, else of several stores that
    are written at once a second one may have the object before the process sleeps.
    """

    def __init__(self, point: str, name: str, part: str, *, after: bool = False) -> None:
        self._point = SuspendPoint(point)
        self._name = name
        self._part = part
        self._after = after
        self._is_pending = True

    def __call__(self, call: Call) -> Any:
        if call.name != self._name or self._part not in call.path:
            return call.go()
        with _ONE_BY_ONE:
            if self._is_pending:
                self._is_pending = False
                return self._suspended(call)
        return call.go()

    def _suspended(self, call: Call) -> Any:
        if not self._after:
            self._point.suspend()
            return call.go()
        try:
            return call.go()
        finally:
            self._point.suspend()
