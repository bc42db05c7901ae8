"""Stand-ins for `StoreThreads`: calls to several stores, in an order that a test chooses."""

import random
from collections.abc import Callable

from pyspark_log_storage.stores.store_threads import Answer


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
