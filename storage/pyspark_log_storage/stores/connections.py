"""Connections to object stores: shared by the stores of a process, also after its main thread has ended.

Their libraries do not log what pyspark_log raises.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Connections by what they are for. Used by any number of threads; lives as long as the process.

    A forked process makes its own: sockets and threads of its parent are of no use to it.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}
        self._former: list[dict[Hashable, T]] = []
        """Those of the parent process. They are kept, because to collect them would end its connections."""
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        """Held while a connection is made, which may take long: those of other stores do not wait for it."""
        os.register_at_fork(after_in_child=self._start_afresh)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def _start_afresh(self) -> None:
        self._former.append(self._made)
        self._made, self._lock, self._locks = {}, threading.Lock(), {}


class LastingThreads(ThreadPoolExecutor):
    """Runs each call in a thread of its own, for an event loop that still serves after the main thread has ended.

    That is when a program that wrote through a `Producer` and ended still sends its last rows. New connections need
    threads, for the server's address and for TLS, and those of `ThreadPoolExecutor` refuse work by then.
    """

    def submit(self, function: Callable[..., T], /, *arguments: object, **named: object) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments, **named))
                except BaseException as error:  # noqa: BLE001 -- told by the future, as by other executors
                    future.set_exception(error)

        threading.Thread(target=run, name="pyspark_log request", daemon=True).start()
        return future


def silence(*names: str) -> None:
    """Leave out what these loggers say, unless somebody looks for their faults and has set them to DEBUG.

    They log errors that pyspark_log raises itself, with stacks and with texts of servers.
    """
    for name in names:
        logger = logging.getLogger(name)
        if _is_wanted not in logger.filters:
            logger.addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
