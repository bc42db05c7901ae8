"""Leaving: LeaveGroup, by a member or an administrator, and ExpireMember, by a process that saw no heartbeat.

    LeaveGroup   -> MembersRemoved, after RebalanceStarted unless a rebalance waits already
    ExpireMember -> the same

A process expires a member whose heartbeat has not changed for the member's session time-out on that process's own
monotonic clock. It names the newest action of the member that it knew during all that time. If the member has acted
since, the observer was late, and the command does nothing.

Safety does not depend on it: a member that is removed although it lives notices at its next commit.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pyspark_log_coordinator.group import rebalance
from pyspark_log_coordinator.group.fencing import check_member
from pyspark_log_coordinator.group.rebalance import MembersRemoved
from pyspark_log_coordinator.group.state import Group, MemberId
from pyspark_log_storage.errors import UnknownMember


class LeaveGroup(msgspec.Struct, frozen=True):
    """Remove a member: by its member id, by both ids, or, for an administrator, by its `group.instance.id` alone."""

    member_id: MemberId = ""
    instance_id: str = ""


class ExpireMember(msgspec.Struct, frozen=True):
    """Remove a member that was silent for its session time-out."""

    member_id: MemberId
    acted: int
    """The number of the member's newest action that the caller knows."""


Command = LeaveGroup | ExpireMember


def decide(group: Group, command: Command, now: int) -> list[Any]:
    """Return the events that remove a member, none if an expiry is outdated."""
    if isinstance(command, ExpireMember):
        member = group.members.get(command.member_id)
        if member is None or member.acted != command.acted:
            return []
        return _remove(group, command.member_id, "expired", now)
    return _remove(group, _leaving(group, command), "left", now)


def _leaving(group: Group, command: LeaveGroup) -> MemberId:
    if command.member_id:
        return check_member(group, command.member_id, command.instance_id).details.member_id
    holder = group.instance(command.instance_id)
    if holder is None:
        raise UnknownMember(
            group.group_id,
            "",
            f"group {group.group_id!r} has no member with group.instance.id {command.instance_id!r} in generation "
            f"{group.generation}; look at the group's members",
        )
    return holder.details.member_id


def _remove(group: Group, member_id: MemberId, reason: str, now: int) -> list[Any]:
    return [*rebalance.start(group, now), MembersRemoved((member_id,), reason)]
