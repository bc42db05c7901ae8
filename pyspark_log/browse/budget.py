"""What the page may cost an object store: one request a second, for all viewers and everything that they have open.

Requests are counted where they are made, so whatever a page reads is paid for by pauses of the looks that follow.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_log_storage.stores.request_counts import all_counts

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS_PER_SECOND = 1.0
DEBT_MAX = 60.0
"""So many requests at most are paid back, also after a topic had a thousand new entries."""


def requests_made() -> int:
    """Return how many requests this process has made to stores that count them."""
    return sum(each.total().number for each in all_counts().values())


class Budget:
    """The requests that may be made now. Used by any number of threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
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
            self._left = max(-DEBT_MAX, min(1.0, self._left + earned - (made - self._made)))
            self._counted, self._made = now, made
            return self._left
