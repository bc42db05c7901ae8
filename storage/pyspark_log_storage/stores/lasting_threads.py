"""The threads of an event loop that still serves after the main thread has ended.

That is when a program that wrote through a `Producer` and ended still sends its last rows. New connections need
threads, for the server's address and for TLS, and those of `ThreadPoolExecutor` refuse work by then.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class LastingThreads(ThreadPoolExecutor):
    """Runs each call in a thread of its own."""

    def submit(self, function: Callable[..., T], /, *arguments: object, **named: object) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*arguments, **named)
            except BaseException as error:  # noqa: BLE001 -- told by the future, as by other executors
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="pyspark_log request", daemon=True).start()
        return future
