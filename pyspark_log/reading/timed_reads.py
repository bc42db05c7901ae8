"""Reads with a time limit, for files that another store has too.

A network file system whose server is gone hangs instead of failing. So each store is read by a thread of its own, and
the caller stops waiting after some seconds. A store that hangs is not read again until it has answered: it costs one
thread, and calls in the meantime fail at once.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, TypeVar

from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.stores.store_threads import StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.stores.store import Readable, Store

T = TypeVar("T")

AVOID_SECONDS = 30.0
"""How long a process prefers other nodes after a node did not answer or refused."""
_STORE = "store"


class Lane:
    """The thread that reads from a store, and whether the store failed lately. For one calling thread."""

    def __init__(self) -> None:
        self._threads = StoreThreads("reads of a")
        self._avoided_until = -float("inf")

    @property
    def avoided(self) -> bool:
        """Whether the store failed within the last `AVOID_SECONDS`."""
        return time.monotonic() < self._avoided_until

    def avoid(self) -> None:
        """Remember that the store failed."""
        self._avoided_until = time.monotonic() + AVOID_SECONDS

    @property
    def hangs(self) -> bool:
        """Whether a call took too long and has not ended yet."""
        return self._threads.pending(_STORE) > 0 and self._threads.next(0) is None

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """Call the function in the store's thread. Raises what it raises, or `TimeoutError` if it takes too long."""
        if self.hangs:
            raise TimeoutError
        self._threads.start(_STORE, function)
        answer = self._threads.next(seconds)
        if answer is None:
            raise TimeoutError
        if answer.error is not None:
            raise answer.error
        result: T = answer.result
        return result


class TimedReads:
    """A store's reads, each of which fails if it takes longer than `seconds`."""

    def __init__(self, store: Readable, lane: Lane, seconds: float) -> None:
        self.url = store.url
        self._store = store
        self._lane = lane
        self._seconds = seconds

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._ask(key, lambda: self._store.read(key, start, length))

    def size(self, key: str) -> int:
        return self._ask(key, lambda: self._store.size(key))

    def _ask(self, key: str, function: Callable[[], T]) -> T:
        try:
            return self._lane.call(function, self._seconds)
        except TimeoutError:
            message = f"{self.url} does not answer when {key} is read; check its disk, mount or network"
            raise StoreUnavailable(self.url, key, message) from None


_lanes: weakref.WeakKeyDictionary[Store, Lane] = weakref.WeakKeyDictionary()


def lane_of(store: Store) -> Lane:
    """Return the lane of a store. There is one in each process."""
    found = _lanes.get(store)
    if found is None:
        found = _lanes[store] = Lane()
    return found
