"""A failure detector that looks at a topic now and then, and what it must have made of that.

It may only report what really was so by its own clock: a follower that lags for longer than `replica.lag.time.max.ms`
under one leader, and a suspicion that has stood for a full period. And it must report that.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import isr_shrink, suspicion
from pyspark_log_coordinator.replication.isr_shrink import FollowerId, FollowerLag
from pyspark_log_coordinator.replication.suspicion import ObservedSuspicion, Suspicion
from tests.simulator.invariants import require

_PERIOD_MS = 1000
"""How long a suspicion must stand."""


class _Follower(NamedTuple):
    """What was seen of a follower at one look. Times are in ms."""

    leader_epoch: int
    log_end: int
    behind_ms: int | None
    """Since when every look found it behind its leader; None if it was level."""
    stuck_ms: int
    """Since when its LEO is the same, under the same leader."""


class Watch:
    """The failure detector, and beside it what its looks have shown."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now = 0
        self._lags: dict[FollowerId, FollowerLag] = {}
        self._standing: dict[NodeId, ObservedSuspicion] = {}
        self._seen: dict[FollowerId, _Follower] = {}
        self._since: dict[Suspicion, int] = {}

    def look(self, topic: Topic) -> None:
        """Look once more, and hold who is said to lag, and who to be gone."""
        lag_max = topic.config.replica_lag_time_max_ms
        self._now += self._chance.choice([0, 1, lag_max * 2 // 3, lag_max, lag_max + 1])
        self._hold_former(topic)
        self._lags = isr_shrink.observe_all(self._lags, topic, self._now)
        self._seen = self._looked(topic)
        self._hold_lagging(topic, lag_max)
        self._hold_suspicions(topic)

    def _looked(self, topic: Topic) -> dict[FollowerId, _Follower]:
        found = {}
        for p, partition in enumerate(topic.partitions):
            for node in partition.isr if partition.leader is not None else ():
                end, epoch = partition.log_end_offsets[node], partition.leader_epoch
                known = self._seen.get((p, node))
                is_behind = end < partition.leader_end
                goes_on = known is not None and known.leader_epoch == epoch and known.log_end <= end
                if known is None or not goes_on:
                    found[p, node] = _Follower(epoch, end, self._now if is_behind else None, self._now)
                    continue
                since = self._now if known.behind_ms is None else known.behind_ms
                stuck = known.stuck_ms if known.log_end == end and known.behind_ms is not None else self._now
                found[p, node] = _Follower(epoch, end, since if is_behind else None, stuck)
        return found

    def _hold_lagging(self, topic: Topic, lag_max: int) -> None:
        """Hold that who was level at a look since is in sync, and that who is stuck for too long is not."""
        reported = {(each.partition, node): each for each in self._report(topic) for node in each.nodes}
        for (p, node), seen in self._seen.items():
            partition = topic.partitions[p]
            if node == partition.leader:
                continue
            what = f"partition {p}: {node} at {self._now}: {seen}, of {lag_max} ms"
            if (p, node) in reported:
                has_lagged = seen.behind_ms is not None and self._now - seen.behind_ms > lag_max
                require(has_lagged, f"{what}: it is said to lag")
                ends = reported[p, node].leader_epoch, reported[p, node].leader_end
                require(ends == (partition.leader_epoch, partition.leader_end), f"{what}: {ends} is said of the leader")
            else:
                is_stuck = seen.behind_ms is not None and self._now - seen.stuck_ms > lag_max
                require(not is_stuck, f"{what}: it is not said to lag")

    def _hold_former(self, topic: Topic) -> None:
        """Hold that what was seen under another leader says nothing of a follower, and that one that is level is."""
        for each in self._report(topic):
            partition = topic.partitions[each.partition]
            for node in each.nodes:
                seen = self._seen[each.partition, node]
                is_so = seen.leader_epoch == partition.leader_epoch
                is_so = is_so and partition.log_end_offsets[node] < partition.leader_end
                require(is_so, f"partition {each.partition}: {node} is said to lag, and was seen as {seen}")

    def _report(self, topic: Topic) -> tuple[isr_shrink.Lagging, ...]:
        return isr_shrink.lagging(self._lags, topic, self._now)

    def _hold_suspicions(self, topic: Topic) -> None:
        """Hold that a suspicion is confirmed when it has stood for a period, whatever was suspected before it."""
        self._standing = suspicion.observe(self._standing, topic, self._now)
        current = [Suspicion(node, number) for node, number in topic.suspects.items()]
        self._since = {each: self._since.get(each, self._now) for each in current}
        due = {each for each, since in self._since.items() if self._now - since >= _PERIOD_MS}
        found = set(suspicion.confirmed(self._standing, self._now, _PERIOD_MS))
        require(found == due, f"{found} are confirmed at {self._now}, since {self._since}")
