"""Timed reads: a store of which there is another that has the same is not waited for without end.

A network file system whose server is gone does not fail: it hangs, and so does who reads it. So a thread reads, one for
each store, and who waits for it may stop. A store that hangs is not asked again until it has answered, so that it costs
one thread; who asks meanwhile is told at once.
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
"""How long a process reads from other nodes first, after one did not answer or refused."""


class Lane:
    """The thread that reads from a store, and what this process has found out about the store. Used by one thread."""

    def __init__(self) -> None:
        self._begin()
        self._avoided_until = -float("inf")

    def _begin(self) -> None:
        self._process = os.getpid()
        self._questions: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[object]] | None] | None = None
        self._late: queue.SimpleQueue[object] | None = None
        """Where the answer will be that nobody waits for any more."""

    @property
    def avoided(self) -> bool:
        """Whether the store failed a short time ago."""
        return time.monotonic() < self._avoided_until

    def avoid(self) -> None:
        """Remember that the store failed."""
        self._avoided_until = time.monotonic() + AVOID_SECONDS

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """Return what the function returns, or raise what it does. Raises `TimeoutError` where it takes too long."""
        if self._process != os.getpid():
            self._begin()  # a forked process has no threads
        if self._late is not None:
            if self._late.empty():
                raise TimeoutError
            self._late = None
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
            self._late = answer
            raise TimeoutError from None
        if isinstance(result, _Raised):
            raise result.error
        return result  # type: ignore[return-value]  # of the function


class _Raised:
    """That a function raised."""

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
        del question, function, answer  # they refer to the store, which could not go while they are kept here


class TimedReads:
    """A store's reads, each of which fails where it takes longer than some seconds."""

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
    """Return the lane of a store, the same in all of the process."""
    found = _lanes.get(store)
    if found is None:
        found = _lanes[store] = Lane()
    return found
