"""The pace of a process that maintains topics again and again, in an object store, where each look is a request.

A topic is settled after a round that found nothing to do. Until its journal has a new entry it needs no round, unless
time brings something: rows that expire, chunks to roll, files to delete. The known state tells that without a request.
So a settled topic costs one look at its journal, and the pauses between these looks grow. A round for all files follows
every hour, for what no entry tells: files that a slow writer adds below the orphan floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.maintenance.topic_cleanup import is_clean
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log, TopicHandle

LOOK_SECONDS_MAX = 60.0
"""The longest pause between two looks at a settled topic."""
CLUSTER_SECONDS, CLUSTER_SECONDS_MAX = 60.0, 600.0
"""The first and the longest pause between two rounds for the cluster: deleted topics, killed writers, groups."""
ROUND_SECONDS_MAX = 3600.0
"""How often a settled topic has a round."""


class _Settled(msgspec.Struct):
    handle: TopicHandle
    number: int
    missing: frozenset[str]
    """The nodes that could not be reached."""
    pause: float
    look_at: float
    round_at: float


class WatchPace:
    """What one process knows to be settled. Times are in seconds of its monotonic clock."""

    def __init__(self, log: Log, interval: float) -> None:
        """`interval` is the time between two rounds."""
        self._log = log
        self._interval = interval
        self._settled: dict[str, _Settled] = {}
        self._begun: dict[str, tuple[TopicHandle, int]] = {}
        """The topics whose rounds have begun, and their newest entries at that time."""
        self._cluster = 0
        """The newest entry of the cluster's journal at the last round for the cluster."""
        self._cluster_seconds = max(CLUSTER_SECONDS, interval)
        self._cluster_pause, self._cluster_at = self._cluster_seconds, -float("inf")

    def topic_is_due(self, name: str) -> bool:
        """Return whether a topic needs a round, which then begins. A topic that cannot be looked at needs one."""
        try:
            settled = self._settled.get(name)
            if settled is not None and not self._has_changed(name, settled):
                return False
            self._settled.pop(name, None)
            handle = self._log.topic(name, polls=True)
        except LogError:
            self._settled.pop(name, None)
            return True
        self._begun[name] = handle, handle.version
        return True

    def note(self, name: str) -> None:
        """Note that the round of a topic has ended, without a failure."""
        handle, number = self._begun.pop(name, (None, 0))
        if handle is not None and handle.version == number:
            now = self._log.environment.monotonic()
            self._settled[name] = _Settled(
                handle,
                number,
                frozenset(self._log.missing_nodes),
                self._interval,
                now + self._interval,
                now + max(ROUND_SECONDS_MAX, self._interval),
            )

    def cluster_is_due(self) -> bool:
        """Return whether the cluster needs a round, which then begins."""
        now, number = self._log.environment.monotonic(), self._log.cluster.number
        if number != self._cluster:
            self._cluster, self._cluster_pause = number, self._cluster_seconds
        elif now < self._cluster_at:
            return False
        self._cluster_at = now + self._cluster_pause
        self._cluster_pause = min(2 * self._cluster_pause, max(CLUSTER_SECONDS_MAX, self._interval))
        return True

    def cluster_is_busy(self) -> None:
        """Note that the round for the cluster has done something or failed, so that the next one is soon."""
        self._cluster_pause = self._cluster_seconds
        self._cluster_at = self._log.environment.monotonic() + self._cluster_seconds

    def _has_changed(self, name: str, settled: _Settled) -> bool:
        """Return whether a settled topic needs a round. Raises `LogError`."""
        now = self._log.environment.monotonic()
        if now >= settled.round_at or settled.missing != self._log.missing_nodes.keys():
            return True
        if now >= settled.look_at:
            handle = self._log.topic(name, polls=True)
            if handle is not settled.handle or handle.version != settled.number:
                return True
            settled.pause = min(2 * settled.pause, max(LOOK_SECONDS_MAX, self._interval))
            settled.look_at = now + settled.pause
        return self._has_work(settled.handle)

    def _has_work(self, handle: TopicHandle) -> bool:
        """Return whether there is something to do, by what is known."""
        if not is_clean(handle, handle.now_ms()) or topic_roll.jobs_due(handle):
            return True
        nodes = self._log.live_nodes
        return len(nodes) > 1 and any(
            replica_file.missing(handle, each) for each in nodes if each not in self._log.missing_nodes
        )
