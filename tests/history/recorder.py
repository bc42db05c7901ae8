"""Writes down what a client sees. Each process has a file of its own, of which SIGKILL may tear the last line."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.history.events import Event, encode


class LineFile:
    """A file to which processes append lines: what they did, or that others should stop. SIGKILL loses none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def append(self, line: object) -> None:
        """Add a line, at once."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(self._descriptor, f"{line}\n".encode())

    def lines(self) -> list[str]:
        """Return what there is."""
        path = Path(self._path)
        return path.read_text().splitlines() if path.exists() else []


class Recorder:
    """The history of one client."""

    def __init__(self, folder: str, name: str) -> None:
        self.who = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
        """This client: a process that is started again is another one."""
        os.makedirs(folder, exist_ok=True)
        self._lines = LineFile(f"{folder}/{self.who}.jsonl")

    @staticmethod
    def now() -> float:
        """Return the time, in milliseconds of the machine's monotonic clock."""
        return time.monotonic() * 1000

    def add(self, event: Event) -> None:
        """Write an event down, at once."""
        self._lines.append(encode(event).decode())
