"""Simulated time, and who runs: one thread at a time, handed on at every pause.

Production code is synchronous, so each actor has a thread of its own; but only the one that holds the baton runs, and
the baton goes to whoever wakes first. A pause is the only place where it changes hands. With one seed for all chance
the whole run is thus a function of the seed, whatever the operating system does with the threads.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

_THREAD_ENDS_SECONDS = 30


class Stopped(BaseException):
    """The run is over; what a thread was at is given up."""


class Task:
    """One thread, and the lock that it waits at while others run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None
        self.turn = 0
        """The number of its newest wait: `wake` makes the earlier ones void."""


class Clock:
    """The time in seconds, and the tasks that wait for theirs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self._waiting: list[tuple[float, int, Task]] = []
        self._order = 0
        self._stopping = False
        self._finished = threading.Lock()

    def spawn(self, name: str, work: Callable[[], object], delay: float = 0.0) -> Task:
        """Begin a task after a delay. What it raises ends the run, and is kept in `failure`."""
        task = Task(name)

        def run() -> None:
            task.baton.acquire()
            try:
                if not self._stopping:
                    work()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 -- a failed assertion of the product is a finding, too
                if self.failure is None:
                    self.failure = error
            self._hand_on(None)

        task.thread = threading.Thread(target=run, name=name, daemon=True)
        task.thread.start()
        self._wait(task, delay)
        return task

    def pause(self, seconds: float) -> None:
        """Let others run for some seconds. Raises `Stopped` where the run has ended meanwhile."""
        me = self.current
        assert me is not None
        self._check()
        self._wait(me, seconds)
        self._hand_on(me)
        self._check()

    def wake(self, task: Task) -> None:
        """End the pause of a task now, after the tasks that already wake at this time."""
        if not self._stopping:
            self._wait(task, 0)

    def run(self) -> None:
        """Run all tasks to their ends, or until one fails; then end the others where they are."""
        self._finished.acquire()
        self._hand_on(None)
        self._finished.acquire()
        self._finished.release()
        if self.failure is None:
            return
        self._stopping = True
        for _, turn, task in sorted(self._waiting):
            if turn != task.turn:
                continue
            task.baton.release()
            assert task.thread is not None
            task.thread.join(_THREAD_ENDS_SECONDS)
        self._waiting.clear()

    def _check(self) -> None:
        if self._stopping:
            raise Stopped

    def _wait(self, task: Task, seconds: float) -> None:
        self._order += 1
        task.turn = self._order
        heapq.heappush(self._waiting, (self.now + seconds, self._order, task))

    def _hand_on(self, me: Task | None) -> None:
        """Give the baton to whoever wakes first; `me` waits for it to come back."""
        if self._stopping:
            return
        while self._waiting and self._waiting[0][1] != self._waiting[0][2].turn:
            heapq.heappop(self._waiting)
        if not self._waiting or self.failure is not None:
            self._finished.release()
            return
        wakes, _, task = heapq.heappop(self._waiting)
        self.now = max(self.now, wakes)
        self.current = task
        if task is me:
            return
        task.baton.release()
        if me is not None:
            me.baton.acquire()
