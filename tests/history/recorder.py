"""Writes down what a client sees. Each process has a file of its own, of which SIGKILL may tear the last line."""

from __future__ import annotations

import os
import time

from tests.history.events import Event, encode
from tests.processes.line_file import LineFile


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
