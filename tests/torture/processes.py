"""The processes of the torture: hundreds are killed in some minutes.

A server that has imported all that they use forks them (`multiprocessing`). What one prints is in a file of its name.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.coordinator.small_topic import make_constants_small

DEADLINE_S = 250
"""Of a machine on which much else runs; nothing here takes long by itself."""
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.torture.workers"])
Call = tuple[Any, ...]
"""A function of a module, and its arguments."""


class Processes:
    """Processes by name, each of which is begun anew when it was killed."""

    def __init__(self, folder: Path, calls: Mapping[str, Call]) -> None:
        """`calls` has what each of them does, `folder` what they print."""
        self._folder = folder
        self._calls = calls
        self._running = {name: self._begin(name) for name in calls}

    def _begin(self, name: str) -> Any:
        begun = _SERVER.Process(target=_work, args=(str(self._output(name)), *self._calls[name]), daemon=True)
        begun.start()
        return begun

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.output"

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal; nothing if it was killed in this moment."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._running[name].pid, what)

    def kill(self, name: str) -> None:
        """Kill a process, and begin it anew. Fails if it has ended by itself."""
        self._running[name].kill()
        self._ended(name, -signal.SIGKILL)
        self._running[name] = self._begin(name)

    def check(self) -> None:
        """Hold that nobody has ended by itself."""
        for name, each in self._running.items():
            assert each.exitcode is None, self._said(name)

    def wait(self, names: Iterable[str]) -> None:
        """Wait until these have ended as they should."""
        for name in names:
            self._ended(name, 0)

    def end(self) -> None:
        """Kill all that are left."""
        for each in self._running.values():
            each.kill()

    def _ended(self, name: str, code: int) -> None:
        self._running[name].join(DEADLINE_S)
        assert self._running[name].exitcode == code, self._said(name)

    def _said(self, name: str) -> str:
        printed = self._output(name).read_text()[-5000:] if self._output(name).exists() else ""
        return f"{name} ended with {self._running[name].exitcode}: {printed}"


def _work(output: str, function: Callable[..., object], *arguments: object) -> None:
    """Be a process."""
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for each in (1, 2):
        os.dup2(descriptor, each)
    make_constants_small()
    function(*arguments)
