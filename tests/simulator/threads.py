"""Threads, locks and queues of simulated processes, in place of `threading` and `queue`.

Each thread is a task of the clock, so only one runs at a time, and others run only while it waits for a store, a lock,
a queue or another thread. With some probability it also waits before it takes a lock. All threads of a process end when
it crashes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tests.simulator.store import Crashed

if TYPE_CHECKING:
    from tests.simulator.clock import Task
    from tests.simulator.world import World

T = TypeVar("T")

_YIELDS, _YIELD_SECONDS = 0.05, 0.002
"""How often, and for how long, others run before a thread takes a lock."""


class Threads:
    """What the clients of a world use of `threading` and `queue`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.Lock = lambda: Lock(world)
        self.RLock = lambda: Lock(world, is_reentrant=True)
        self.Condition = lambda lock=None: Condition(world, lock or Lock(world, is_reentrant=True))
        self.Semaphore = lambda value=1: Semaphore(world, value)
        self.Event = lambda: Event(world)

        class Queue(SimpleQueue[T]):
            def __init__(self) -> None:
                super().__init__(world)

        self.SimpleQueue, self.Empty = Queue, Empty
        numbers = itertools.count()
        self._threads: dict[Task, Thread] = {}

        def thread(target: Callable[..., object], name: str, **given: Any) -> Thread:
            return Thread(world, self._threads, target, f"{name} {next(numbers)}", **given)

        self.Thread = thread

    def current_thread(self) -> object:
        """Return the thread that runs."""
        task = self._world.clock.current
        assert task is not None
        return self._threads.get(task, task)

    def get_ident(self) -> int:
        """Return the number of the thread that runs."""
        return id(self._world.clock.current)


class Waiters:
    """The threads that wait for one thing, in the order in which they came."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._tasks: list[Task] = []

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until somebody wakes this thread, and return whether that happened in time."""
        task, process = self.world.clock.current, self.world.process
        assert task is not None
        process.store.live()
        self._tasks.append(task)
        process.blocked.append(task)
        try:
            self.world.clock.pause(float("inf") if seconds is None else max(0.0, seconds))
        finally:
            process.blocked.remove(task)
            was_woken = task not in self._tasks
            if not was_woken:
                self._tasks.remove(task)
        process.store.live()
        return was_woken

    def wake(self, count: int = 1) -> None:
        """Wake the first of them."""
        woken, self._tasks = self._tasks[:count], self._tasks[count:]
        for each in woken:
            self.world.clock.wake(each)


class Lock:
    """A lock, which its owner may take again if it is reentrant."""

    def __init__(self, world: World, *, is_reentrant: bool = False) -> None:
        self._world = world
        self._is_reentrant = is_reentrant
        self._waiters = Waiters(world)
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        clock, chance, store = self._world.clock, self._world.chance, self._world.process.store
        store.live()
        if blocking and chance.random() < _YIELDS:
            store.wait(chance.uniform(0, _YIELD_SECONDS))
        if self._is_reentrant and self._owner is clock.current:
            self._count += 1
            return True
        end = float("inf") if timeout < 0 else clock.now + timeout
        while self._owner is not None:
            if not blocking or clock.now >= end:
                return False
            self._waiters.wait(end - clock.now)
        self._owner, self._count = clock.current, 1
        return True

    def release(self) -> None:
        """Release it; nothing if a crash kept the thread from taking it back (`Condition.wait`)."""
        if self._owner is not self._world.clock.current:
            return
        self._count -= 1
        if self._count == 0:
            self._owner = None
            self._waiters.wake()

    def _is_owned(self) -> bool:
        return self._owner is self._world.clock.current

    def leave(self) -> int:
        """Release it however often it was taken; return how often."""
        count, self._count = self._count, 1
        self.release()
        return count

    def take_back(self, count: int) -> None:
        """Take it so many times."""
        self.acquire()
        self._count = count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """A condition."""

    def __init__(self, world: World, lock: Lock) -> None:
        self._lock = lock
        self._waiters = Waiters(world)
        self.acquire, self.release = lock.acquire, lock.release

    def wait(self, timeout: float | None = None) -> bool:
        count = self._lock.leave()
        was_woken = self._waiters.wait(timeout)
        self._lock.take_back(count)
        return was_woken

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def notify_all(self) -> None:
        self._waiters.wake(10**6)

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Event:
    """An event."""

    def __init__(self, world: World) -> None:
        self._is_set = False
        self._waiters = Waiters(world)

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiters.wake(10**6)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiters.wait(timeout)
        return self._is_set


class SimpleQueue(Generic[T]):
    """A queue."""

    def __init__(self, world: World) -> None:
        self._items: deque[T] = deque()
        self._waiters = Waiters(world)

    def put(self, item: T) -> None:
        self._items.append(item)
        self._waiters.wake()

    def get(self, timeout: float | None = None) -> T:
        while not self._items:
            if not self._waiters.wait(timeout) and not self._items and timeout is not None:
                raise Empty
        return self._items.popleft()

    def get_nowait(self) -> T:
        if not self._items:
            raise Empty
        return self._items.popleft()


class Semaphore(SimpleQueue[None]):
    """A semaphore: a queue of what may be acquired."""

    def __init__(self, world: World, value: int) -> None:
        super().__init__(world)
        self._items.extend([None] * value)

    def acquire(self) -> bool:
        self.get()
        return True

    def release(self) -> None:
        self.put(None)


class Thread:
    """A thread of the process that makes it."""

    def __init__(
        self,
        world: World,
        threads: dict[Task, Thread],
        target: Callable[..., object],
        name: str,
        args: tuple[Any, ...] = (),
        daemon: bool = True,
    ) -> None:
        self.daemon = daemon
        self._world = world
        self._threads = threads
        self._process = world.process
        self.name = f"{self._process.name} {name}"
        self._work = lambda: target(*args)
        self._ended = Event(world)

    def start(self) -> None:
        def run() -> None:
            try:
                self._process.store.live()
                self._work()
            except Crashed:
                self._process.end()
            finally:
                self._ended.set()

        task = self._world.clock.spawn(self.name, run)
        self._threads[task] = self
        self._world.process_of[self.name] = self._process

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()
