"""Counters of the requests to stores: how many of each operation, and the bytes that they sent and received.

Any store may count its requests, and one whose requests cost money or take long should:

    self._counts = counts_of(self.url)
    ...
    self._counts.add("get_object", received=len(data))

The counters belong to the process: all stores at one address share them, whichever thread opened them. A local store
counts nothing, so that it pays nothing. `pyspark-log metrics` shows the counters of its process.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple


class Requests(NamedTuple):
    number: int = 0
    sent: int = 0
    received: int = 0


class RequestCounts:
    """The requests to one store. Used by any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Requests] = {}

    def add(self, operation: str, *, sent: int = 0, received: int = 0) -> None:
        """Count a request; an attempt that failed is one too. Sizes of the bodies are in bytes."""
        with self._lock:
            before = self._found.get(operation, Requests())
            self._found[operation] = Requests(before.number + 1, before.sent + sent, before.received + received)

    def by_operation(self) -> dict[str, Requests]:
        with self._lock:
            return dict(self._found)

    def total(self) -> Requests:
        found = self.by_operation().values()
        return Requests(*(sum(numbers) for numbers in zip(*found, strict=True)))

    def clear(self) -> None:
        with self._lock:
            self._found.clear()


_counts: dict[str, RequestCounts] = {}
_lock = threading.Lock()


def counts_of(url: str) -> RequestCounts:
    """Return the process's counters for the store at a canonical address, which has no login in it."""
    with _lock:
        return _counts.setdefault(url, RequestCounts())


def all_counts() -> dict[str, RequestCounts]:
    """Return the counters of all stores that count their requests, by address."""
    with _lock:
        return dict(_counts)


def _start_afresh() -> None:
    """Count from nothing in a forked process, whose locks may be held by threads that it does not have."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    for each in _counts.values():
        each.__init__()  # type: ignore[misc]  # stores refer to it


os.register_at_fork(after_in_child=_start_afresh)
