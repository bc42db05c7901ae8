"""Calls at several stores at once, and what comes of them."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG_MAX = 256
"""How many calls may wait for one store: a store that hangs is not asked for more."""


class Answer(msgspec.Struct, frozen=True):
    """What came of a call at a store: its result, or an error."""

    asker: bytes
    """Who asked: answers may come when nobody waits for them any more."""
    store: int
    call: object
    """What was asked, as the asker calls it."""
    result: Any
    error: Exception | None


class Calls(Protocol):
    """Makes calls at several stores at once. Used by one thread."""

    def start(self, store: int, call: Callable[[], Answer]) -> bool:
        """Begin a call at the store of this number. False where too many wait there already."""

    def next(self, seconds: float) -> Answer | None:
        """Return the next answer, None where none came in so many seconds."""


class ThreadCalls:
    """Calls in threads, one for each store: one that hangs holds up no other. They end with this object."""

    def __init__(self) -> None:
        """Begin a thread for a store with its first call."""
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._waiting: dict[int, queue.SimpleQueue[Callable[[], Answer] | None]] = {}
        self._open: dict[int, int] = {}
        """How many calls of each store have not been answered, or the answer not been taken."""
        weakref.finalize(self, _end, self._waiting)

    def start(self, store: int, call: Callable[[], Answer]) -> bool:
        if self._process != os.getpid():
            self._begin()  # a forked process has no threads
        if store not in self._waiting:
            waiting: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
            self._waiting[store] = waiting
            name = f"journal store {store}"
            # A daemon: a store that hangs must not keep the process from ending.
            threading.Thread(target=_work, args=(waiting, self._answers), name=name, daemon=True).start()
        if self._open.get(store, 0) >= BACKLOG_MAX:
            return False
        self._open[store] = self._open.get(store, 0) + 1
        self._waiting[store].put(call)
        return True

    def next(self, seconds: float) -> Answer | None:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        self._open[answer.store] -= 1
        return answer


def _work(
    waiting: queue.SimpleQueue[Callable[[], Answer] | None],
    answers: queue.SimpleQueue[Answer],
) -> None:
    while (call := waiting.get()) is not None:
        answers.put(call())
        del call  # it refers to whoever made it, who could not go while it is kept here


def _end(waiting: dict[int, queue.SimpleQueue[Callable[[], Answer] | None]]) -> None:
    for each in waiting.values():
        each.put(None)
