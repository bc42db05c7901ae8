"""Liveness: which members have failed, and whether a rebalance has waited long enough, as one process sees it.

    what this process has seen                                                   command
    a member without a new heartbeat for its session time-out                 -> ExpireMember
    the same barrier for its time                                             -> EndWait

The member's actions in the journal count as heartbeats too. Time is that of this process's own monotonic clock, and
only time in which it looked: of a longer gap between two looks, `longest_gap` counts. So a process that was suspended,
or whose store did not answer, expires no member because of heartbeats that it has missed.

A mistake here costs a rebalance and never an offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.group.joining import ExpireMember
from pyspark_log_coordinator.group.rebalance import EndWait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.group.state import Group, MemberId

_MS = 1000


class _Silence(msgspec.Struct):
    acted: int
    count: int
    seconds: float = 0.0


class Liveness:
    """What one process has seen of the members of a group. Times are in seconds of its monotonic clock."""

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._silences: dict[MemberId, _Silence] = {}
        self._heard = 0.0
        """When members were looked at last."""
        self._barrier = 0
        self._waited = 0.0
        """For how long this barrier has been seen."""
        self._watched = 0.0

    def hear(self, group: Group, heartbeats: Mapping[MemberId, int], now: float) -> list[ExpireMember]:
        """Note the counters of the heartbeats that were found, and return who has to be expired."""
        passed, self._heard = min(now - self._heard, self._longest_gap), now
        silences = {}
        for name, member in group.members.items():
            known = self._silences.get(name)
            # A heartbeat that is not found any more was deleted: that is no sign of life. Nor is an older one that is
            # found again: the newest may be on a single journal node, and not every look reads that.
            count = heartbeats.get(name, known.count if known else 0)
            if known is None or known.acted != member.acted or count > known.count:
                known = _Silence(member.acted, count)
            else:
                known.seconds += passed
            silences[name] = known
        self._silences = silences
        return [
            ExpireMember(name, each.acted)
            for name, each in silences.items()
            if each.seconds * _MS >= group.members[name].details.session_timeout_ms
        ]

    def until_expiry(self, group: Group, own: MemberId) -> float:
        """Return in how many seconds the next member expires that stays silent, other than `own`; infinite if none."""
        left = (
            group.members[name].details.session_timeout_ms / _MS - each.seconds
            for name, each in self._silences.items()
            if name != own and name in group.members
        )
        return min((seconds for seconds in left if seconds > 0), default=float("inf"))

    def watch(self, group: Group, now: float, patience: float = 0.0) -> EndWait | None:
        """Return the command that ends the wait of the group if its time is over, and `patience` seconds more."""
        passed, self._watched = min(now - self._watched, self._longest_gap), now
        barrier = group.barrier
        if barrier is None:
            return None
        if barrier.number != self._barrier:
            self._barrier, self._waited = barrier.number, 0.0
        else:
            self._waited += passed
        is_over = self._waited * _MS >= barrier.wait_ms + patience * _MS
        return EndWait(barrier.number) if is_over else None
