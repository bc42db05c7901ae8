"""A latch: an event that a signal handler may set while its own thread waits for it, or sets it.

`threading.Event` has a lock, which its thread may hold when the handler comes: then the handler waits forever. Here a
token in a queue wakes the thread that waits, and a `SimpleQueue` may be interrupted at any step.
"""

from __future__ import annotations

import contextlib
import queue


class Latch:
    """Is set once, or again after `clear`. One thread waits at a time."""

    def __init__(self) -> None:
        self._is_set = False
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the thread that waits."""
        self._is_set = True
        self._tokens.put(None)

    def clear(self) -> None:
        """Take it back. Whoever clears it looks afterwards at what there is to do."""
        self._is_set = False
        with contextlib.suppress(queue.Empty):
            while True:
                self._tokens.get_nowait()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, for so long at most, and return whether it is."""
        with contextlib.suppress(queue.Empty):
            while not self._is_set:
                self._tokens.get(timeout=seconds)
        return self._is_set
