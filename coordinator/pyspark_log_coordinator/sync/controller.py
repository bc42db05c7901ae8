"""Watching: what a process that runs for long does about nodes that go, and about leaders when they are back.

Every topic is looked at by its observer: every half `replica.lag.time.max.ms`, the shortest of all topics; also when
the time of a follower that is behind is over, and every few seconds while a node is away or under suspicion, or while
changes of an ISR wait to be published. Now and then preferred leaders get the lead back, as far as they have every row.
Any number of processes may watch; on one node there is nothing to watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.topic_config import REPLICA_LAG_TIME_MAX_MS
from pyspark_log_coordinator.replication import leader_balance
from pyspark_log_coordinator.replication.election import ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.isr import PUBLISH_CHECK_MS
from pyspark_log_coordinator.sync import replica_probe
from pyspark_log_coordinator.sync.failure_detector import SESSION_TIMEOUT_MS, failure_detector_of
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

SUSPICION_SECONDS = 2.0
"""How often one looks while a node is away or under suspicion."""


class ControllerSettings(msgspec.Struct, frozen=True):
    """Kafka's settings of these names, and its defaults."""

    session_timeout_ms: int = SESSION_TIMEOUT_MS
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: float = leader_balance.CHECK_INTERVAL_SECONDS
    leader_imbalance_per_broker_percentage: float = leader_balance.IMBALANCE_PERCENTAGE


class LeadershipMoved(msgspec.Struct, frozen=True):
    """A leader that was given the lead back."""

    topic: str
    partition: int
    leader: NodeId


class Controller:
    """Watches all topics for one process."""

    def __init__(self, log: Log, settings: ControllerSettings | None = None) -> None:
        """Take an opened log. The first look is due at once, the first balance after an interval."""
        self._log = log
        self._settings = settings or ControllerSettings()
        self._looked: float | None = None
        self._is_suspicious = False
        self._lag_interval_ms = REPLICA_LAG_TIME_MAX_MS / 2
        """How long it is to the next look, so that no follower that falls behind is noticed late."""
        self._balanced = log.environment.monotonic()

    def watch(self, failed: Callable[[str, LogError], object]) -> tuple[LeadershipMoved, ...]:
        """Do what is due, often nothing; return the leaders that were given the lead back.

        `failed` is told of a topic that cannot be looked at, by its name: the others are. Raises what reading the
        cluster's journal raises.
        """
        log, settings, now = self._log, self._settings, self._log.environment.monotonic()
        if len(log.cluster.state.nodes) == 1:
            return ()
        if self._looked is None or now - self._looked >= self._interval():
            self._looked = now
            self._look(failed)
        due = self._balanced + settings.leader_imbalance_check_interval_seconds
        if not settings.auto_leader_rebalance_enable or now < due:
            return ()
        self._balanced = now
        return self._balance(failed)

    def _interval(self) -> float:
        """Return how long it is from one look to the next, in seconds."""
        if self._log.missing_nodes or self._is_suspicious:
            return min(SUSPICION_SECONDS, self._settings.session_timeout_ms / 2000, self._lag_interval_ms / 1000)
        return self._lag_interval_ms / 1000

    def _look(self, failed: Callable[[str, LogError], object]) -> None:
        settings = self._settings
        self._log.cluster.refresh()
        self._log.probe_nodes()
        self._is_suspicious = False
        intervals_ms: list[float] = []

        def look(handle: TopicHandle) -> None:
            seen = failure_detector_of(handle, settings.session_timeout_ms)
            seen.consider(handle)
            state = handle.journal.state
            self._is_suspicious |= bool(state.suspects)
            intervals_ms.append(state.config.replica_lag_time_max_ms / 2)
            if seen.has_unpublished:
                intervals_ms.append(PUBLISH_CHECK_MS)
            if seen.next_lag_ms is not None:
                intervals_ms.append(seen.next_lag_ms)

        self._each(look, failed)
        self._lag_interval_ms = min(intervals_ms, default=REPLICA_LAG_TIME_MAX_MS / 2)

    def _balance(self, failed: Callable[[str, LogError], object]) -> tuple[LeadershipMoved, ...]:
        partitions: dict[str, tuple[Partition, ...]] = {}

        def note(handle: TopicHandle) -> None:
            partitions[handle.name] = handle.journal.state.partitions

        self._each(note, failed)
        found = leader_balance.imbalanced(partitions, self._settings.leader_imbalance_per_broker_percentage)
        led: list[LeadershipMoved] = []

        def give_back(handle: TopicHandle) -> None:
            done = handle.submit(ElectPreferred(replica_probe.live(handle), found[handle.name]))
            led.extend(
                LeadershipMoved(handle.name, each.partition, each.leader)
                for each in done.events
                if isinstance(each, LeaderElected) and each.leader is not None
            )

        if found:
            self._each(give_back, failed, sorted(found))
        return tuple(led)

    def _each(
        self,
        act: Callable[[TopicHandle], object],
        failed: Callable[[str, LogError], object],
        names: Iterable[str] | None = None,
    ) -> None:
        """Do something with the topics, all unless some are named, each refreshed."""
        for name in sorted(self._log.topics()) if names is None else names:
            try:
                act(self._log.topic(name))
            except UnknownTopic:
                continue  # deleted meanwhile
            except LogError as error:
                failed(name, error)
