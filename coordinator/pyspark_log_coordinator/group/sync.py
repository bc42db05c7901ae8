"""SyncGroup: the leader assigns the work of a generation.

    SyncGroup of the leader     -> WorkAssigned
    SyncGroup of another member -> none: it waits until the group is Stable, and reads its assignment in the state

Assignments are opaque bytes: only the members' assignor knows what is in them.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.group.fencing import check_generation, check_member
from pyspark_log_coordinator.group.state import Group, GroupState, MemberId, act
from pyspark_log_storage.errors import RebalanceInProgress


class SyncGroup(msgspec.Struct, frozen=True):
    """Assign the work, if the member is the leader. Members that `assignments` leaves out get an empty assignment."""

    member_id: MemberId
    generation: int
    assignments: dict[MemberId, bytes]
    instance_id: str = ""


class WorkAssigned(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The leader has assigned the work: the group is Stable."""

    assignments: dict[MemberId, bytes]


def decide(group: Group, command: SyncGroup) -> list[WorkAssigned]:
    """Return the event of the leader's assignment, none for another member or if it is made."""
    member = check_member(group, command.member_id, command.instance_id)
    check_generation(group, member, command.generation)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress(
            group.group_id,
            command.member_id,
            f"group {group.group_id!r} rebalances after generation {group.generation}, so member "
            f"{command.member_id!r} has no assignment to wait for; rejoin",
        )
    if group.state is GroupState.STABLE or group.leader != command.member_id:
        return []
    # A static member may have been replaced, or a member removed, only by a rebalance: these are all members.
    given = command.assignments
    return [WorkAssigned({name: given[name] for name in group.members if given.get(name)})]


def evolve(group: Group, event: WorkAssigned) -> Group:
    """Return the stable group."""
    if not group.members.keys() >= event.assignments.keys():
        raise ValueError("work is assigned to somebody who is not a member")
    members = {
        name: msgspec.structs.replace(member, assignment=event.assignments.get(name, b""))
        for name, member in group.members.items()
    }
    stable = msgspec.structs.replace(group, state=GroupState.STABLE, members=members, barrier=None)
    return act(stable, members[group.leader])
