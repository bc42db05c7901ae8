"""Heartbeats of a group's members, without journal entries.

    groups/<journal id>/heartbeats/<member id>.<counter>      an empty object

A member creates the object with the next counter and deletes the one before. One listing finds those of all members.
They are not durable, and nothing but liveness depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.membership.member_objects import MemberObjects
from pyspark_log_storage import layout

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.group.state import MemberId
    from pyspark_log_coordinator.log.group_handle import GroupHandle


class Heartbeats:
    """The heartbeats of one group. Used by one thread."""

    def __init__(self, handle: GroupHandle, environment: Environment) -> None:
        self._objects = MemberObjects(handle, layout.heartbeats(handle.journal_id), environment)
        self._counts: dict[MemberId, int] = {}
        """The newest heartbeats of this process."""

    def beat(self, member_id: MemberId) -> bool:
        """Send a heartbeat. Return whether a store, or a majority, has taken it."""
        count = self._counts[member_id] = self._counts.get(member_id, 0) + 1
        return self._objects.create(member_id, count, b"")

    def end(self, member_id: MemberId) -> None:
        """Delete the heartbeat of a member of this process, which has left."""
        count = self._counts.pop(member_id, 0)
        if count:
            self._objects.delete([(member_id, count)])

    def listen(self) -> dict[MemberId, int] | None:
        """Return the newest counter of each member; None if no store answers, or too few."""
        found = self._objects.names()
        if found is None:
            return None
        newest: dict[MemberId, int] = {}
        for member_id, count in found:
            newest[member_id] = max(count, newest.get(member_id, 0))
        return newest

    def delete_left_over(self, members: Collection[MemberId]) -> int:
        """Delete the heartbeats of processes that are no members any more, and return how many."""
        gone = [each for each in self._objects.names() or () if each[0] not in members]
        self._objects.delete(gone)
        return len(gone)
