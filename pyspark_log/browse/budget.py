"""What the page may cost an object store: one request a second, for all viewers and everything that they have open.

Requests are counted where they are made, so whatever a page reads is paid for by pauses of the looks that follow. Only
the past is read ahead: its requests are paid back by half of what is earned later, so looks go on meanwhile.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_log_storage.stores.request_counts import all_counts

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS_PER_SECOND = 1.0
DEBT_MAX = 60.0
"""So many requests of looks at most are paid back, also after a topic had a thousand new entries."""


def requests_made() -> int:
    """Return how many requests this process has made to stores that count them."""
    return sum(each.total().number for each in all_counts().values())


class Budget:
    """The requests that may be made now. Used by any number of threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._lent = 0.0
        self.clear()

    def clear(self) -> None:
        """Begin anew: what was read before is not paid back."""
        with self._lock:
            self._left, self._counted, self._made = 1.0, self._monotonic(), requests_made()

    def left(self) -> float:
        """Return how many requests may be made now: 1 at most, below 0 if too many were made."""
        with self._lock:
            now, made = self._monotonic(), requests_made()
            earned = (now - self._counted) * REQUESTS_PER_SECOND
            paid = min(self._lent, earned / 2)
            self._lent -= paid
            self._left = max(-DEBT_MAX, min(1.0, self._left + earned - paid - (made - self._made)))
            self._counted, self._made = now, made
            return self._left

    def lend(self, requests: int) -> None:
        """Let requests that were made for the past be paid back later."""
        with self._lock:
            self._made += requests
            self._lent += requests

    def lent(self) -> float:
        """Return how many requests are not paid back yet."""
        self.left()
        return self._lent
