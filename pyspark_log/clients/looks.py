"""Looks for new rows: how a consumer that polls finds them at little cost.

A look asks the store for the next entry of a topic's journal by name: on a local disk some microseconds. The pauses
between looks are short after new rows, and grow with the time without new rows. So the next row is seen within an
eighth of the time since the last one, at least 1 ms and at most `fetch.max.wait.ms`.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import Log, TopicHandle

SHORTEST_PAUSE = 0.001
QUIET_SHARE = 8
"""A pause is this part of the time since the last rows."""
REFRESH_SECONDS = 1.0
"""How often a topic is refreshed although looks found nothing: a look misses an entry of which only a copy is left."""
OPEN_SECONDS = 5.0
"""How old the knowledge of the cluster's nodes may be (Kafka's metadata.max.age.ms)."""


class Looks:
    """The looks of one consumer."""

    def __init__(self, log: Log, longest_pause: float) -> None:
        self._log = log
        self._longest_pause = longest_pause
        self._opened = self._refreshed = self._rows = -float("inf")
        """When the log was opened, when topics were refreshed, and when there were rows."""

    def open(self) -> None:
        """Open the log, unless that was done lately. Raises `NoCluster`, `StoreError`."""
        if monotonic() - self._opened >= OPEN_SECONDS:
            self._log.open(create=False)
            self._opened = monotonic()

    def topic(self, name: str) -> TopicHandle:
        """Return the handle of a topic, refreshed. Raises `UnknownTopic`, `NoCluster`, `StoreError`."""
        self.open()
        return self._log.topic(name)

    def topic_names(self) -> set[str]:
        """Return the names of all topics."""
        self.open()
        return set(self._log.topics())

    def groups(self) -> set[str]:
        """Return the names of all groups."""
        self.open()
        return set(self._log.groups())

    def look(self, handles: Iterable[TopicHandle]) -> None:
        """Refresh the topics that have new entries. Raises `UnknownTopic` for a deleted one, `StoreError`."""
        self.open()
        is_due = monotonic() - self._refreshed >= REFRESH_SECONDS
        if is_due:
            self._refreshed = monotonic()
        for handle in handles:
            if is_due or handle.journal.may_have_more:
                handle.refresh()

    def found(self) -> None:
        """Note that there were rows."""
        self._rows = monotonic()

    def pause(self) -> float:
        """Return how many seconds to wait before the next look."""
        return min(max((monotonic() - self._rows) / QUIET_SHARE, SHORTEST_PAUSE), self._longest_pause)
