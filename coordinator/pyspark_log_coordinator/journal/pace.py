"""The pace of a journal: how fast its store is, and whether other processes compete for its entries.

Both affect only the cost of a commit, never its result.
"""

from __future__ import annotations

SLOW_SECONDS = 0.0002
"""A store is slow if it takes so long for a request: every one that flushes to a disk, or is reached by a network."""
FRESH_SECONDS, FRESH_SECONDS_REMOTE = 1.0, 10.0
"""For so long a process proposes the next entry on a slow store without looking first: a look costs as much as to lose
an entry. It is longer in an object store, where each look is a request. Safety does not depend on it: it is only much
shorter than the time in which the next slot could be trimmed.
"""
REFRESH_SECONDS, REFRESH_SECONDS_REMOTE = 1.0, 60.0
"""How often a process that polls refreshes a journal although its looks found nothing: they miss what was trimmed while
the process slept. Less often in an object store, where a refresh costs several requests.
"""
LOOK_EVERY = 8
"""A process that meets no other looks into the inbox at every 8th entry, so that a fast one lets the others in."""
_REQUESTS_OF_A_PROPOSAL = 3
_FORGETTING = 1.02


class Pace:
    """What one process has seen of the pace of its store, and of other processes."""

    def __init__(self) -> None:
        self._request_seconds = float("inf")
        """How long a request takes at least, which a busy processor does not disturb; infinite if unknown."""
        self.is_contended = False
        """Whether another process has written an entry since the last one of this process."""
        self.has_lost = False
        """Whether the last command met another process, at its entry or in the inbox."""

    def measure(self, seconds: float) -> None:
        """Take note how long a proposal took. Shorter ones are forgotten with time: the store may become slower."""
        self._request_seconds = min(self._request_seconds * _FORGETTING, seconds / _REQUESTS_OF_A_PROPOSAL)

    @property
    def is_slow(self) -> bool:
        """Whether requests are what a commit costs. On a fast store that is processor time."""
        return SLOW_SECONDS <= self._request_seconds < float("inf")

    def wants_a_look(self, number: int) -> bool:
        """Return whether to look into the inbox before entry `number` is proposed."""
        return self.is_slow and (self.is_contended or self.has_lost or number % LOOK_EVERY == 0)
