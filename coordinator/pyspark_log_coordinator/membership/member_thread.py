"""The thread that keeps a process a member of its group while the program works.

It sends heartbeats, and takes no part in rebalances, which `poll` does.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from pyspark_log_coordinator.membership.latch import Latch
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_PAUSE = 0.005
AGAIN_SECONDS = 1.0
"""How soon it works again after an error."""
_FAILURE = "a member of a group could not send a heartbeat"


class MemberThread:
    """Calls a method of its owner again and again. It does not keep the owner alive, and ends with it."""

    def __init__(self, work: Callable[[], float | None]) -> None:
        """`work` is a method that returns after how many seconds it has more to do; None: when it is woken.

        No error that it raises ends the thread.
        """
        self._failures = logs.Failures()
        self._is_stopped = False
        self._work = weakref.WeakMethod(work)  # without a callback, which would run at any moment
        self._woken = Latch()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, unless that was done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyspark_log member", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Work at once."""
        self._woken.set()
        self.start()

    def stop(self) -> None:
        """End soon. A member that was not left is expired after its session time-out."""
        self._is_stopped = True
        self._woken.set()

    def _run(self) -> None:
        while not self._is_stopped and (work := self._work()) is not None:
            self._woken.clear()
            pause: float | None = AGAIN_SECONDS
            try:
                pause = work()
                self._failures.end(None, "this is over: %(what)s", what=_FAILURE)
            except LogError as error:
                self._failures.note(None, error, "%(what)s, and tries again: %(error)s", what=_FAILURE)
            except BaseException:  # the thread must live for the next heartbeat
                logs.exception(_FAILURE)
            del work
            if not self._is_stopped:
                self._woken.wait(None if pause is None else max(pause, SHORTEST_PAUSE))
