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
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    _Call = partial["Answer"]

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
        if store not in self._calls:
            self._calls[store], self._pending[store] = queue.SimpleQueue(), 0
            given = self._calls[store], self._answers
            threading.Thread(target=_serve, args=given, name=f"{self._purpose} {store}", daemon=True).start()
        self._pending[store] += 1
        call = partial(Answer.of, store, function, tag)
        _unended.add(call)
        self._calls[store].put(call)

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
        self._calls: dict[Hashable, queue.SimpleQueue[_Call | None]] = {}
        self._pending: dict[Hashable, int] = {}
        self._end = weakref.finalize(self, _end, self._calls)


_unended: set[_Call] = set()
"""The calls in this process that have not ended."""
os.register_at_fork(after_in_child=_unended.clear)


def _serve(calls: queue.SimpleQueue[_Call | None], answers: queue.SimpleQueue[Answer]) -> None:
    """Make the calls to one store, in order."""
    while (call := calls.get()) is not None:
        try:
            answers.put(call())
        finally:
            _unended.discard(call)
        del call  # it refers to its caller, which could not be collected while this thread waits


def finish_calls(seconds: float) -> None:
    """Wait until all calls in this process have ended, at most `seconds`.

    For the end of a program, which ends daemon threads: those that write would leave temporary files behind.
    """
    deadline = time.monotonic() + seconds
    while _unended and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _end(calls: dict[Hashable, queue.SimpleQueue[_Call | None]]) -> None:
    for each in calls.values():
        each.put(None)
