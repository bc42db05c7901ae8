"""Who leaves an ISR, or leads no longer, and when: one that lags not before its time is over, nor one that is gone.

What really happened is known here: until when a follower had every row of its leader, and since when it is suspected.
No observer may put it out earlier than that allows, whatever it saw and when it looked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark_log_coordinator.model.partition import NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.replication.node_changes import NodeChanged
from pyspark_log_coordinator.replication.reassignment import ReplicasAltered
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from tests.simulator.invariants import require

_CONSEQUENCES = SegmentsSwapped | ReplicasAltered
"""What may follow from an entry that puts members out, in the same entry."""
_OTHER_REASONS = BatchSequenced | NodeChanged | ReplicasAltered
"""What else may cost a leader its place: it missed a batch, lost rows, was fenced or wiped, or is to leave."""
_MS = 0.001
"""Observers count whole milliseconds."""


class Departures:
    """Watches the ISRs of a topic, entry by entry. Times in seconds, by the world's clock."""

    def __init__(self, now: Callable[[], float], session_timeout_ms: int, counts: Counter[str]) -> None:
        self._now = now
        self._session_timeout = session_timeout_ms / 1000
        self._counts = counts
        self._level: dict[tuple[int, NodeId], float] = {}
        """Until when a member of an ISR had every row of its leader."""
        self._lost_rows: set[tuple[int, NodeId]] = set()
        """Members that have lost rows since. A detector that did not see them level counts the lag before, too."""
        self._suspected: dict[NodeId, tuple[int, float]] = {}
        """The newest suspicion of a node, and since when it stands."""

    def decided(self, events: list[Any], before: Topic, after: Topic) -> None:
        """Hold one entry against what really happened."""
        now = self._now()
        for p, partition in enumerate(before.partitions):
            for node in partition.isr:
                if not _is_behind(partition, node):
                    self._level[p, node] = now
                    self._lost_rows.discard((p, node))
        self._hold(events, before, now)
        for p, partition in enumerate(after.partitions):
            old = before.partitions[p] if p < len(before.partitions) else None
            for node in partition.isr:
                if old is None or old.leader_epoch != partition.leader_epoch:
                    self._level[p, node] = now  # a new leader gives everybody its time again
                self._level.setdefault((p, node), now)
                if old is not None and partition.log_end_offsets[node] < old.log_end_offsets.get(node, 0):
                    self._lost_rows.add((p, node))
        for node, number in after.suspects.items():
            if self._suspected.get(node, (0, 0))[0] != number:
                self._suspected[node] = number, now

    def _hold(self, events: list[Any], before: Topic, now: float) -> None:
        is_shrink = all(isinstance(each, IsrShrunk | _CONSEQUENCES) for each in events)
        has_other_reason = any(isinstance(each, _OTHER_REASONS) for each in events)
        for event in events:
            if isinstance(event, IsrShrunk) and is_shrink:
                self._left(event, before, now)
            elif isinstance(event, LeaderElected) and not has_other_reason:
                self._deposed(event, before, now)

    def _left(self, event: IsrShrunk, before: Topic, now: float) -> None:
        lag_max = before.config.replica_lag_time_max_ms / 1000
        for node in set(before.partitions[event.partition].isr) - set(event.isr):
            behind = now - self._level[event.partition, node]
            away = now - self._suspected[node][1] if node in before.suspects else 0.0
            is_gone = away >= self._session_timeout - _MS
            self._counts["left an ISR as gone" if is_gone else "left an ISR as lagging"] += 1
            what = f"partition {event.partition}: {node} left the ISR after it was behind for {behind:.3f} s"
            may_leave = is_gone or behind > lag_max or (event.partition, node) in self._lost_rows
            require(may_leave, f"{what} of {lag_max}, and away for {away:.3f} s")

    def _deposed(self, event: LeaderElected, before: Topic, now: float) -> None:
        """Hold that a leader that is replaced, clean or not, was under one suspicion for long enough, or stays."""
        leader = before.partitions[event.partition].leader
        if leader is None or leader in before.fenced or (leader in event.isr and event.leader is not None):
            return
        away = now - self._suspected[leader][1] if leader in before.suspects else 0.0
        self._counts["leaders deposed as gone"] += 1
        what = f"partition {event.partition}: {event.leader} leads in the place of {leader}, away for {away:.3f} s"
        require(away >= self._session_timeout - _MS, what)


def _is_behind(partition: Partition, node: NodeId) -> bool:
    return partition.leader is not None and partition.log_end_offsets[node] < partition.leader_end
