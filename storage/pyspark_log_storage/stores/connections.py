"""Connections to object stores: shared by the stores of a process, also after its main thread has ended.

Their libraries do not log what pyspark_log raises.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


_made: dict[tuple[int, Hashable], Any] = {}
_locks: dict[tuple[int, Hashable], threading.Lock] = {}
"""Held while a connection is made, which may take long: those of other stores do not wait for it."""


def connection(use: Hashable, make: Callable[[], T]) -> T:
    """Return the process's connection for a use; make it if there is none. It lives as long as the process.

    A forked process makes its own. Those of its parent are kept, because to collect them would end them.
    """
    key = os.getpid(), use
    with _locks.setdefault(key, threading.Lock()):
        if key not in _made:
            _made[key] = make()
        found: T = _made[key]
        return found


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
