"""Joining and leaving: which members a group has.

    the member that joins is                             events
    new                                               -> RebalanceStarted or RebalanceExtended, MemberJoined
    known, while a rebalance waits                    -> MemberJoined
    known, with other metadata or state, or the leader -> RebalanceStarted, MemberJoined
    known, with the same                              -> none: it uses the current generation
    a static member with a new member id, Stable, same metadata -> StaticMemberReplaced: it has the old assignment
    a static member with a new member id, otherwise   -> RebalanceStarted, StaticMemberReplaced

    LeaveGroup, ExpireMember -> MembersRemoved, after RebalanceStarted unless a rebalance waits already

The leader may force a rebalance with unchanged metadata, because only the leader watches the topics' partitions.

Source: Kafka's group protocol, KIP-345. Member ids are made by the clients, so that KIP-394 is not needed: a JoinGroup
that is submitted twice adds one member.

A process expires a member whose heartbeat has not changed for the member's session time-out on that process's own
monotonic clock. It names the newest action of the member that it knew during all that time. If the member has acted
since, the observer was late, and the command does nothing. Safety does not depend on it: a member that is removed
although it lives notices at its next commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.group import rebalance
from pyspark_log_coordinator.group.fencing import check_member
from pyspark_log_coordinator.group.rebalance import MembersRemoved
from pyspark_log_coordinator.group.state import Group, GroupState, Member, MemberDetails, MemberId, act
from pyspark_log_storage.errors import InconsistentProtocol, InvalidOption, UnknownMember
from pyspark_log_storage.names import check_member as check_name

if TYPE_CHECKING:
    from pyspark_log_coordinator.group.rebalance import RebalanceStarted


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Join the group, or rejoin it."""

    member: MemberDetails
    protocol_type: str
    is_rejoin: bool = False
    """Whether the member has been in a generation of the group: it is refused if it was removed since."""


class LeaveGroup(msgspec.Struct, frozen=True):
    """Remove a member: by its member id, by both ids, or, for an administrator, by its `group.instance.id` alone."""

    member_id: MemberId = ""
    instance_id: str = ""


class ExpireMember(msgspec.Struct, frozen=True):
    """Remove a member that was silent for its session time-out."""

    member_id: MemberId
    acted: int
    """The number of the member's newest action that the caller knows."""


class MemberJoined(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A member takes part in the rebalance. It is new, or tells something new about itself."""

    member: MemberDetails
    protocol_type: str


class StaticMemberReplaced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A process with the `group.instance.id` of a member has taken its place, with its assignment."""

    former: MemberId
    member: MemberDetails


Event = MemberJoined | StaticMemberReplaced


def decide(group: Group, command: JoinGroup, now: int) -> list[Any]:
    """Return the events of a join, none if the member is in the group and need not rejoin."""
    member = command.member
    _check(group, command)
    if command.is_rejoin or member.member_id in group.members:
        known = check_member(group, member.member_id, member.instance_id)
        if known.details.instance_id != member.instance_id:
            raise InvalidOption(
                "group.instance.id",
                f"group {group.group_id!r}: member {member.member_id!r} has group.instance.id "
                f"{known.details.instance_id!r}, and rejoins without it; a member keeps its ids for its life",
            )
        return _rejoin(group, command, known, now)
    former = group.instance(member.instance_id)
    if former is not None:
        return _replace(group, member, former, now)
    joined = MemberJoined(member, command.protocol_type)
    return [*rebalance.start(group, now, member), *rebalance.extend(group, now), joined]


def decide_leaving(group: Group, command: LeaveGroup | ExpireMember, now: int) -> list[Any]:
    """Return the events that remove a member, none if an expiry is outdated."""
    if isinstance(command, ExpireMember):
        member = group.members.get(command.member_id)
        if member is None or member.acted != command.acted:
            return []
        return _remove(group, command.member_id, "expired", now)
    return _remove(group, _leaving(group, command), "left", now)


def evolve(group: Group, event: Event) -> Group:
    if isinstance(event, MemberJoined):
        known = group.members.get(event.member.member_id)
        if known is None:
            member = Member(event.member, 0, group.generation + 1)
        else:
            member = msgspec.structs.replace(known, details=event.member, joined=True)
        return msgspec.structs.replace(act(group, member), protocol_type=event.protocol_type)
    former = group.members[event.former]
    joined = former.joined or group.state is GroupState.PREPARING_REBALANCE
    new = msgspec.structs.replace(former, details=event.member, joined=joined)
    # The new member has the place of the former one: the order decides who leads.
    members = {
        (event.member.member_id if name == event.former else name): member for name, member in group.members.items()
    }
    leader = event.member.member_id if group.leader == event.former else group.leader
    return act(msgspec.structs.replace(group, members=members, leader=leader), new)


def _rejoin(group: Group, command: JoinGroup, known: Member, now: int) -> list[Any]:
    needed = command.member.protocols != known.details.protocols
    if group.state is GroupState.PREPARING_REBALANCE:
        needed = needed or not known.joined
    elif group.state is GroupState.STABLE:
        needed = needed or group.leader == command.member.member_id
    if not needed:
        return []
    return [*rebalance.start(group, now, command.member), MemberJoined(command.member, command.protocol_type)]


def _replace(group: Group, member: MemberDetails, former: Member, now: int) -> list[Any]:
    replaced = StaticMemberReplaced(former.details.member_id, member)
    if group.state is GroupState.STABLE and member.wants_the_same_as(former.details):
        return [replaced]
    # In CompletingRebalance the leader may be assigning work to the former member id, which would get lost.
    started: list[RebalanceStarted] = rebalance.start(group, now, member)
    return [*started, replaced]


def _check(group: Group, command: JoinGroup) -> None:
    member = command.member
    check_name(member.member_id)
    if member.instance_id:
        check_name(member.instance_id)
    low, high = group.config.min_session_timeout_ms, group.config.max_session_timeout_ms
    if not low <= member.session_timeout_ms <= high:
        raise InvalidOption(
            "session.timeout.ms",
            f"group {group.group_id!r}: session.timeout.ms={member.session_timeout_ms} of member {member.member_id!r} "
            f"is not from {low} to {high}; choose another, or change group.min.session.timeout.ms or "
            "group.max.session.timeout.ms of the group",
        )
    names = rebalance.names_of(member)
    if not command.protocol_type or not names or len(set(names)) < len(names):
        raise InconsistentProtocol(
            f"group {group.group_id!r}: member {member.member_id!r} joins with protocol type "
            f"{command.protocol_type!r} and protocols {', '.join(names) or 'none'}; give a type, and at least one "
            "protocol, each once"
        )
    if not group.members:
        return
    if command.protocol_type != group.protocol_type:
        raise InconsistentProtocol(
            f"group {group.group_id!r} has members of protocol type {group.protocol_type!r}, and member "
            f"{member.member_id!r} is of type {command.protocol_type!r}; choose another group.id"
        )
    others = [rebalance.names_of(other.details) for other in group.members.values()]
    common = rebalance.supported_by_all(others)
    if not common.intersection(names):
        raise InconsistentProtocol(
            f"group {group.group_id!r}: member {member.member_id!r} supports {', '.join(names)}, and the protocols "
            f"that all members support are {', '.join(sorted(common))}; add one of these (consumers: to "
            "partition.assignment.strategy)"
        )


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
