"""The controller runs the failure detectors of all topics in a long-running process, and rebalances leaders.

It looks at every topic at half of the shortest `replica.lag.time.max.ms`; earlier when a follower's lag time is over;
and every few seconds while a node is missing or suspected. Now and then it elects preferred leaders that have every
row. Many controllers may run at once. On one node there is nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.settings import (
    AUTO_LEADER_REBALANCE_ENABLE,
    BROKER_SESSION_TIMEOUT_MS,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
)
from pyspark_log_coordinator.model.topic_config import REPLICA_LAG_TIME_MAX_MS
from pyspark_log_coordinator.replication import election
from pyspark_log_coordinator.replication.election import ElectPreferred, LeaderElected
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

SUSPICION_SECONDS = 2.0
"""The interval between looks while a node is missing or suspected."""

ALONE_SECONDS = 60.0
"""The interval in which a process looks for a second node, where that is not done all the time."""


class ControllerSettings(msgspec.Struct, frozen=True):
    """Kafka's settings of these names, with its defaults."""

    session_timeout_ms: int = BROKER_SESSION_TIMEOUT_MS.default
    auto_leader_rebalance_enable: bool = AUTO_LEADER_REBALANCE_ENABLE.default
    leader_imbalance_check_interval_seconds: float = LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS.default
    leader_imbalance_per_broker_percentage: float = LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default


Elections = list[tuple[str, LeaderElected]]
"""What was elected, with the name of the topic."""


class Controller:
    """Looks after all topics for one process."""

    def __init__(self, log: Log, settings: ControllerSettings | None = None) -> None:
        """Take an opened log. The first look is due at once, the first rebalance after an interval."""
        self._log = log
        self._settings = settings or ControllerSettings()
        self._looked: float | None = None
        self._is_suspicious = False
        self._lag_interval_ms = REPLICA_LAG_TIME_MAX_MS / 2
        """The time to the next look that notices every lagging follower in time."""
        self._balanced = log.environment.monotonic()

    def round(self, failed: Callable[[str, LogError], object]) -> Elections:
        """Do what is due, often nothing; return the elections that were carried out.

        `failed` gets the name of each topic that cannot be looked at; the others continue. Raises what reading the
        cluster's journal raises.
        """
        now = self._log.environment.monotonic()
        if len(self._log.cluster.state.nodes) == 1:
            self._looked = now
            return []
        elected: Elections = []
        if self._is_look_due():
            self._looked = now
            elected += self._look(failed)
        if self._is_balance_due():
            self._balanced = now
            elected += self._balance(failed)
        return elected

    @property
    def is_due(self) -> bool:
        """Whether `round` has something to do."""
        return self._is_look_due() or self._is_balance_due()

    def _is_look_due(self) -> bool:
        return self._looked is None or self._log.environment.monotonic() - self._looked >= self._interval()

    def _is_balance_due(self) -> bool:
        due = self._balanced + self._settings.leader_imbalance_check_interval_seconds
        return self._settings.auto_leader_rebalance_enable and self._log.environment.monotonic() >= due

    def _interval(self) -> float:
        """Return the seconds from one look to the next."""
        if len(self._log.cluster.state.nodes) == 1:
            return ALONE_SECONDS
        if self._log.missing_nodes or self._is_suspicious:
            return min(SUSPICION_SECONDS, self._settings.session_timeout_ms / 2000, self._lag_interval_ms / 1000)
        return self._lag_interval_ms / 1000

    def _look(self, failed: Callable[[str, LogError], object]) -> Elections:
        settings = self._settings
        self._log.cluster.refresh()
        self._log.probe_nodes()
        self._is_suspicious = False
        intervals_ms: list[float] = []
        elected: Elections = []

        def look(handle: TopicHandle) -> None:
            detector = failure_detector_of(handle, settings.session_timeout_ms)
            elected.extend((handle.name, each) for each in detector.consider(handle))
            state = handle.journal.state
            # The suspicion of a node that was removed stands forever, that of a fenced one until it is unfenced.
            awaited = (node for node in state.suspects if node not in state.fenced)
            self._is_suspicious |= any(node in self._log.cluster.state.nodes for node in awaited)
            intervals_ms.append(state.config.replica_lag_time_max_ms / 2)
            if detector.next_lag_ms is not None:
                intervals_ms.append(detector.next_lag_ms)

        self._each(look, failed)
        self._lag_interval_ms = min(intervals_ms, default=REPLICA_LAG_TIME_MAX_MS / 2)
        return elected

    def _balance(self, failed: Callable[[str, LogError], object]) -> Elections:
        partitions: dict[str, Sequence[Partition]] = {}

        def note(handle: TopicHandle) -> None:
            partitions[handle.name] = handle.journal.state.partitions

        self._each(note, failed)
        found = election.imbalanced(partitions, self._settings.leader_imbalance_per_broker_percentage)
        elected: Elections = []

        def elect(handle: TopicHandle) -> None:
            done = handle.submit(ElectPreferred(replica_file.live(handle), found[handle.name]))
            elected.extend((handle.name, each) for each in done.events if isinstance(each, LeaderElected))

        if found:
            self._each(elect, failed, sorted(found))
        return elected

    def _each(
        self,
        act: Callable[[TopicHandle], object],
        failed: Callable[[str, LogError], object],
        names: Iterable[str] | None = None,
    ) -> None:
        """Call `act` with the handle of each topic, refreshed; of those in `names` if given."""
        for name in sorted(self._log.topics(polls=True)) if names is None else names:
            try:
                act(self._log.topic(name, polls=True))
            except UnknownTopic:
                continue  # deleted meanwhile
            except LogError as error:
                failed(name, error)
