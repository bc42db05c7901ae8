"""Polling: when consumers and queries look for new rows, and how a consumer finds them at little cost.

A look asks the store for the next entry of a topic's journal by name: on a local disk some microseconds. The pause
between two looks is an eighth of the time since the last rows, up to `fetch.max.wait.ms`. So the next row is seen
within an eighth of the time since the last one. In an object store a look is a request for each journal, so the default
is longer there, and an idle consumer keeps its pauses however often it is polled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import Log, TopicHandle

QUIET_SHARE = 8
"""A pause is this part of the time since the last rows."""
LONGEST_PAUSE, LONGEST_PAUSE_REMOTE = 0.1, 2.5
"""The default of fetch.max.wait.ms in seconds; in an object store for each journal."""
SHORTEST_PAUSE = 0.0005
MEMBER_SECONDS = 6.0
"""How much longer a pause is by default in an object store for a member of a group: its heartbeats are requests too."""
IDLE_SECONDS = 10.0
"""After so long without rows a consumer of an object store looks no more often because it is polled."""
OPEN_SECONDS, OPEN_SECONDS_REMOTE = 5.0, 60.0
"""How old the knowledge of the cluster's nodes may be (Kafka's metadata.max.age.ms)."""


def longest_pause(given: float | None, journals: int, more: float = 0.0, *, is_remote: bool) -> float:
    """Return the longest pause in seconds between two looks at so many journals: the one `given`, or the default.

    In an object store the default is longer by `more` seconds.
    """
    if given is not None:
        return given
    return LONGEST_PAUSE_REMOTE * max(1, journals) + more if is_remote else LONGEST_PAUSE


def pause_after(quiet: float, longest: float) -> float:
    """Return the pause after `quiet` seconds without rows."""
    return min(quiet / QUIET_SHARE, longest)


class Poller:
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
        self.open()
        return set(self._log.topics(polls=True))

    def groups(self) -> set[str]:
        self.open()
        return set(self._log.groups())

    def poll(self, handles: Iterable[TopicHandle]) -> None:
        """Refresh the topics that have new entries. Raises `UnknownTopic` for a deleted one, `StoreError`.

        Does nothing if the consumer is idle and the pause after the last look is not over, in an object store.
        """
        now = self._monotonic()
        if self._is_resting and now - self._looked < self._longest():
            return
        self.open()
        topics = list(handles)
        for handle in topics:
            handle.refresh(polls=True)
        self._topics = len(topics)
        self._looked = now

    def note_rows(self) -> None:
        self._rows = self._monotonic()

    def pause(self) -> float:
        """Return how many seconds to wait before the next look."""
        now, longest = self._monotonic(), self._longest()
        pause = pause_after(now - self._rows, longest)
        if self._is_resting:
            pause = min(pause, self._looked + longest - now)
        return max(pause, SHORTEST_PAUSE)

    @property
    def _is_resting(self) -> bool:
        """Whether the consumer looks only after its pauses, however often it is polled."""
        return self._log.is_remote and self._monotonic() - self._rows >= IDLE_SECONDS

    def _longest(self) -> float:
        more = MEMBER_SECONDS if self.is_member else 0.0
        return longest_pause(self._given_pause, self._topics, more, is_remote=self._log.is_remote)
