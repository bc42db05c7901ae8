"""Calls to stores, made in daemon threads: one thread for each store.

A network file system whose server is down hangs instead of failing. With a thread of its own such a store delays no
other one, its caller can stop waiting, and the process can still exit.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    _Calls: TypeAlias = queue.SimpleQueue[Callable[[], "Answer"] | None]


class Answer(msgspec.Struct, frozen=True):
    """The result of a call to a store, or the error that it raised."""

    store: Any
    tag: Any
    """What the caller gave to `start`. Answers may arrive after their callers have stopped waiting."""
    result: Any
    error: Exception | None

    @classmethod
    def of(cls, store: Hashable, function: Callable[[], object], tag: Any) -> Answer:
        """Make the call and return its answer."""
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
            calls: _Calls = queue.SimpleQueue()
            self._calls[store], self._pending[store] = calls, 0
            threading.Thread(
                target=_run, args=(calls, self._answers), name=f"{self._purpose} {store}", daemon=True
            ).start()
        self._pending[store] += 1
        self._calls[store].put(lambda: Answer.of(store, function, tag))

    def pending(self, store: Hashable) -> int:
        """Return the number of calls to a store of which `next` has not returned the answer."""
        self._check_process()
        return self._pending.get(store, 0)

    def next(self, seconds: float | None) -> Answer | None:
        """Return the next answer of any store, or None if none arrives within `seconds` (None: wait without limit)."""
        self._check_process()
        try:
            answer = self._answers.get(timeout=seconds)
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
        self._calls: dict[Hashable, _Calls] = {}
        self._pending: dict[Hashable, int] = {}
        self._end = weakref.finalize(self, _end, self._calls)


def _run(calls: _Calls, answers: queue.SimpleQueue[Answer]) -> None:
    while (call := calls.get()) is not None:
        answers.put(call())
        del call  # it refers to its caller, which could not be collected while this thread waits


def _end(calls: dict[Hashable, _Calls]) -> None:
    for each in calls.values():
        each.put(None)
