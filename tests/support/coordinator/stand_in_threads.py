"""Stand-ins for `StoreThreads`: calls to several stores, in an order that a test chooses."""

import random
from collections.abc import Callable

from pyspark_log_storage.stores.store_threads import Answer
from tests.simulator.clock import Clock, Task
from tests.simulator.store import Crashed


class ShuffledThreads:
    """Makes one waiting call at a time, at the store that chance says and there the first; some stores may hang."""

    def __init__(self, seed: int = 0) -> None:
        self.hanging: set[int] = set()
        self._chance = random.Random(seed)
        self._waiting: list[tuple[int, Callable[[], Answer]]] = []

    def start(self, store: int, function: Callable[[], object], tag: object = None) -> None:
        self._waiting.append((store, lambda: Answer.of(store, function, tag)))

    def pending(self, store: int) -> int:
        return 0

    def next(self, seconds: float) -> Answer | None:
        first = {each[0]: each for each in reversed(self._waiting) if each[0] not in self.hanging}
        if not first:
            return None
        chosen = self._chance.choice(list(first.values()))
        self._waiting.remove(chosen)
        return chosen[1]()

    def finish(self) -> None:
        """Make the calls for whose answers nobody waits any more."""
        while self.next(0) is not None:
            pass

    end = finish


class SimulatedThreads:
    """Makes each call in a task of its own on simulated time, in which the calls of other processes go on, too.

    A process that crashes in one call is gone: its calls elsewhere were begun, and may be done or not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: list[Answer] = []
        self._crashed = False
        self._waiter: Task | None = None

    def start(self, store: int, function: Callable[[], object], tag: object = None) -> None:
        self._clock.spawn("call", lambda: self._make(lambda: Answer.of(store, function, tag)))

    def pending(self, store: int) -> int:
        return 0

    def next(self, seconds: float) -> Answer | None:
        until = self._clock.now + seconds
        while not self._answers:
            if self._crashed:
                raise Crashed
            if self._clock.now >= until:
                return None
            self._waiter = self._clock.current
            self._clock.pause(until - self._clock.now)
            self._waiter = None
        return self._answers.pop(0)

    def _make(self, call: Callable[[], Answer]) -> None:
        try:
            self._answers.append(call())
        except Crashed:
            self._crashed = True
        finally:
            if self._waiter is not None:
                self._clock.wake(self._waiter)
