"""Looks for new rows: how a consumer that polls finds them at little cost.

A look asks the store for the next entry of a topic's journal by name: on a local disk some microseconds. The pauses
between looks are short after new rows, and grow with the time without new rows. So the next row is seen within an
eighth of the time since the last one, at least 0.5 ms and at most `fetch.max.wait.ms`.

In an object store each look is a request. There the pauses grow further, and an idle consumer keeps them however often
it is polled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import Log, TopicHandle

SHORTEST_PAUSE = 0.0005
QUIET_SHARE = 8
"""A pause is this part of the time since the last rows."""
LONGEST_PAUSE, LONGEST_PAUSE_REMOTE = 0.1, 2.5
"""The default of fetch.max.wait.ms; in an object store for each topic."""
MEMBER_SECONDS = 6.0
"""How much longer the default is in an object store for a member of a group, whose heartbeats are requests too."""
IDLE_SECONDS = 10.0
"""After so long without rows a consumer of an object store looks no more often because it is polled."""
OPEN_SECONDS, OPEN_SECONDS_REMOTE = 5.0, 60.0
"""How old the knowledge of the cluster's nodes may be (Kafka's metadata.max.age.ms)."""


class Looks:
    """The looks of one consumer."""

    def __init__(self, log: Log, longest_pause: float | None) -> None:
        """`longest_pause` is fetch.max.wait.ms in seconds, None if it was not given."""
        self._log = log
        self._given_pause = longest_pause
        self.is_member = False
        """Whether the consumer is a member of a group, which costs requests too."""
        self._topics = 1
        self._monotonic = log.environment.monotonic
        self._opened = self._looked = -float("inf")
        """When the log was opened, and when topics were looked at."""
        self._rows = self._monotonic()
        """When there were rows, or the consumer began."""

    def open(self) -> None:
        """Open the log, unless that was done lately. Raises `NoCluster`, `StoreError`."""
        if self._monotonic() - self._opened >= (OPEN_SECONDS_REMOTE if self._log.is_remote else OPEN_SECONDS):
            self._log.open(create=False)
            self._opened = self._monotonic()

    def topic(self, name: str, *, polls: bool = False) -> TopicHandle:
        """Return the handle of a topic, refreshed; `polls` as in `Log.topic`.

        Raises `UnknownTopic`, `NoCluster`, `StoreError`.
        """
        self.open()
        return self._log.topic(name, polls=polls)

    def topic_names(self) -> set[str]:
        """Return the names of all topics."""
        self.open()
        return set(self._log.topics(polls=True))

    def groups(self) -> set[str]:
        """Return the names of all groups."""
        self.open()
        return set(self._log.groups())

    def look(self, handles: Iterable[TopicHandle]) -> None:
        """Refresh the topics that have new entries. Raises `UnknownTopic` for a deleted one, `StoreError`.

        Does nothing if the consumer is idle and the pause after the last look is not over, in an object store.
        """
        now = self._monotonic()
        if self._is_resting and now - self._looked < self._longest():
            return
        self.open()
        found = list(handles)
        for handle in found:
            handle.refresh(polls=True)
        self._topics = max(1, len(found))
        self._looked = now

    def found(self) -> None:
        """Note that there were rows."""
        self._rows = self._monotonic()

    def pause(self) -> float:
        """Return how many seconds to wait before the next look."""
        now, longest = self._monotonic(), self._longest()
        pause = min((now - self._rows) / QUIET_SHARE, longest)
        if self._is_resting:
            pause = min(pause, self._looked + longest - now)
        return max(pause, SHORTEST_PAUSE)

    @property
    def _is_resting(self) -> bool:
        """Whether the consumer looks only after its pauses, however often it is polled."""
        return self._log.is_remote and self._monotonic() - self._rows >= IDLE_SECONDS

    def _longest(self) -> float:
        if self._given_pause is not None:
            return self._given_pause
        if not self._log.is_remote:
            return LONGEST_PAUSE
        return LONGEST_PAUSE_REMOTE * self._topics + MEMBER_SECONDS * self.is_member
