"""Reads with a time limit, for files that another store has too.

A network file system whose server is gone hangs instead of failing. So each store is read by a thread of its own, and
the caller stops waiting after some seconds. A store that hangs is not read again until it has answered: it costs one
thread, and calls in the meantime fail at once.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, TypeVar

from pyspark_log_storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.store import Readable, Store

T = TypeVar("T")

AVOID_SECONDS = 30.0
"""How long a process prefers other nodes after a node did not answer or refused."""


class Lane:
    """The thread that reads from a store, and whether the store failed lately. For one calling thread."""

    def __init__(self) -> None:
        self._begin()
        self._avoided_until = -float("inf")

    def _begin(self) -> None:
        self._process = os.getpid()
        self._questions: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[object]] | None] | None = None
        self._overdue: queue.SimpleQueue[object] | None = None
        """Receives the answer to the call that timed out."""

    @property
    def avoided(self) -> bool:
        """Whether the store failed within the last `AVOID_SECONDS`."""
        return time.monotonic() < self._avoided_until

    def avoid(self) -> None:
        """Remember that the store failed."""
        self._avoided_until = time.monotonic() + AVOID_SECONDS

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """Call the function in the store's thread. Raises what it raises, or `TimeoutError` if it takes too long."""
        if self._process != os.getpid():
            self._begin()  # a forked process has no threads
        if self._overdue is not None:
            if self._overdue.empty():
                raise TimeoutError
            self._overdue = None
        if self._questions is None:
            self._questions = queue.SimpleQueue()
            # A daemon: a store that hangs must not keep the process from ending.
            threading.Thread(target=_work, args=(self._questions,), name="reads of a store", daemon=True).start()
            weakref.finalize(self, self._questions.put, None)
        answer: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._questions.put((function, answer))
        try:
            result = answer.get(timeout=seconds)
        except queue.Empty:
            self._overdue = answer
            raise TimeoutError from None
        if isinstance(result, _Raised):
            raise result.error
        return result  # type: ignore[return-value]  # of the function


class _Raised:
    """The error of a function."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _work(
    questions: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[object]] | None],
) -> None:
    while (question := questions.get()) is not None:
        function, answer = question
        try:
            answer.put(function())
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            answer.put(_Raised(error))
        del question, function, answer  # they refer to the store, and would keep it alive


class TimedReads:
    """A store's reads, each of which fails if it takes longer than `seconds`."""

    def __init__(self, store: Readable, lane: Lane, seconds: float) -> None:
        self.url = store.url
        self._store = store
        self._lane = lane
        self._seconds = seconds

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._ask(key, lambda: self._store.read(key, start, length))

    def size(self, key: str) -> int:
        return self._ask(key, lambda: self._store.size(key))

    def _ask(self, key: str, function: Callable[[], T]) -> T:
        try:
            return self._lane.call(function, self._seconds)
        except TimeoutError:
            message = f"{self.url} does not answer when {key} is read; check its disk, mount or network"
            raise StoreUnavailable(self.url, key, message) from None


_lanes: weakref.WeakKeyDictionary[Store, Lane] = weakref.WeakKeyDictionary()


def lane_of(store: Store) -> Lane:
    """Return the lane of a store. There is one in each process."""
    found = _lanes.get(store)
    if found is None:
        found = _lanes[store] = Lane()
    return found
