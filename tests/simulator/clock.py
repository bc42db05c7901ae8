"""Simulated time, and who runs: one task at a time, until it pauses.

Production code is synchronous, so each actor is a coroutine with a stack of its own (a greenlet), and all of them are
in one thread. A pause is the only place where others run, and the next is whoever wakes first. With one seed for all
chance the whole run is thus a function of the seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from greenlet import getcurrent, greenlet

BEGIN_MS = 1_700_000_000_000
"""When it begins, in milliseconds since 1970."""


class Stopped(BaseException):
    """The run is over; what a task was at is given up."""


class Task:
    """What an actor does, and where it is at that."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.stack = greenlet(work)


class Clock:
    """The time in seconds, and the tasks that wait for theirs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self._waiting: list[tuple[float, int, Task]] = []
        self._order = 0
        self._stopping = False
        self._runner = getcurrent()

    def spawn(self, name: str, work: Callable[[], object], delay: float = 0.0) -> Task:
        """Begin a task after a delay. What it raises ends the run, and is kept in `failure`."""

        def run() -> None:
            try:
                work()
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 -- a failed assertion of the product is a finding, too
                self.fail(error)

        task = Task(name, run)
        self._wait(task, delay)
        return task

    def pause(self, seconds: float) -> None:
        """Let others run for some seconds. Raises `Stopped` where the run has ended meanwhile."""
        me = self.current
        assert me is not None
        self._check()
        self._wait(me, seconds)
        self._runner.switch()
        self._check()

    def fail(self, error: BaseException) -> None:
        """End the run with this error, at the next pause. The product must not catch it and continue."""
        if self.failure is None:
            self.failure = error

    def run(self) -> None:
        """Run all tasks to their ends, or until one fails; then end the others where they are.

        Raises `KeyboardInterrupt` where the user interrupted one: that says nothing about the world.
        """
        self._runner = getcurrent()
        while self._waiting and self.failure is None:
            wakes, _, task = heapq.heappop(self._waiting)
            self.now = max(self.now, wakes)
            self._resume(task)
        self._stopping = self.failure is not None
        for _, _, task in sorted(self._waiting):
            if task.stack:  # it has begun
                self._resume(task)
        self._waiting.clear()
        if isinstance(self.failure, KeyboardInterrupt):
            raise self.failure

    def _resume(self, task: Task) -> None:
        """Run a task until it pauses or ends."""
        self.current = task
        task.stack.parent = self._runner
        task.stack.switch()

    def _check(self) -> None:
        if self._stopping:
            raise Stopped

    def _wait(self, task: Task, seconds: float) -> None:
        self._order += 1
        heapq.heappush(self._waiting, (self.now + seconds, self._order, task))
