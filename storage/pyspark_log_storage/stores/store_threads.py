"""Calls to stores, made in daemon threads: one thread for each store.

A network file system whose server is down hangs instead of failing. With a thread of its own such a store delays no
other one, its caller can stop waiting, and the process can still exit.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_LOOK_SECONDS = 0.005


class Answer(msgspec.Struct, frozen=True):
    """The result of a call to a store, or the error that it raised."""

    store: Any
    tag: Any
    """What the caller gave to `start`. Answers may arrive after their callers have stopped waiting."""
    result: Any
    error: Exception | None

    @classmethod
    def of(cls, store: Hashable, function: Callable[[], object], tag: Any) -> Answer:
        try:
            return cls(store, tag, function(), None)
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            return cls(store, tag, None, error)


class StoreThreads:
    """Makes calls to several stores at once, and those to one store in order.

    Used by one thread. A store's thread starts with the first call to it, and ends with this object.
    """

    def __init__(self, purpose: str) -> None:
        """`purpose` is the first part of the threads' names; the second is the name of the store."""
        self._purpose = purpose
        self._start_afresh()

    def start(self, store: Hashable, function: Callable[[], object], tag: object = None) -> None:
        """Queue a call for the thread of a store, which has any name."""
        self._check_process()
        if store not in self._threads:
            self._threads[store], self._pending[store] = _StoreThread(f"{self._purpose} {store}", self._answers), 0
            self._threads[store].start()
        self._pending[store] += 1
        self._threads[store].call(lambda: Answer.of(store, function, tag))

    def pending(self, store: Hashable) -> int:
        """Return the number of calls to a store of which `next` has not returned the answer."""
        self._check_process()
        return self._pending.get(store, 0)

    def next(self, seconds: float | None) -> Answer | None:
        """Return the next answer of any store, or None if none arrives within `seconds` (None: wait without limit)."""
        self._check_process()
        try:
            block = seconds != 0  # or Python 3.10 may wait without limit for a timeout of 0
            answer = self._answers.get(block, seconds)
        except queue.Empty:
            return None
        self._pending[answer.store] -= 1
        return answer

    def end(self) -> None:
        """End each thread after the calls that were started."""
        self._end()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._start_afresh()  # a forked process has no threads

    def _start_afresh(self) -> None:
        self._process = os.getpid()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._threads: dict[Hashable, _StoreThread] = {}
        self._pending: dict[Hashable, int] = {}
        self._end = weakref.finalize(self, _end, self._threads)


class _StoreThread(threading.Thread):
    """Makes the calls to one store, in order."""

    def __init__(self, name: str, answers: queue.SimpleQueue[Answer]) -> None:
        super().__init__(name=name, daemon=True)
        self._answers = answers
        self._calls: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
        self._calls_started = 0
        self._calls_ended = 0

    @property
    def is_busy(self) -> bool:
        return self._calls_ended < self._calls_started

    def call(self, function: Callable[[], Answer]) -> None:
        self._calls_started += 1
        self._calls.put(function)

    def end(self) -> None:
        """End the thread after the calls that are queued."""
        self._calls.put(None)

    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answers.put(call())
            self._calls_ended += 1
            del call  # it refers to its caller, which could not be collected while this thread waits


def finish_calls(seconds: float) -> None:
    """Wait until all calls in this process have ended, at most `seconds`.

    For the end of a program, which ends daemon threads: those that write would leave temporary files behind.
    """
    deadline = time.monotonic() + seconds
    while any(isinstance(each, _StoreThread) and each.is_busy for each in threading.enumerate()):
        if time.monotonic() >= deadline:
            return
        time.sleep(_LOOK_SECONDS)


def _end(threads: dict[Hashable, _StoreThread]) -> None:
    for each in threads.values():
        each.end()
