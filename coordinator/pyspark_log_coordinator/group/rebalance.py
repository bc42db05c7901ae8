"""Rebalances: how members gather for the next generation, and its leader assigns the work.

    command                                 events
    EndWait, in PreparingRebalance       -> MembersRemoved (those that did not rejoin), GenerationStarted
             in CompletingRebalance      -> RebalanceStarted, MembersRemoved or LeaderPassedOver (a leader that
                                            assigned nothing)
    SyncGroup of the leader              -> WorkAssigned
              of another member          -> none: it waits until the group is Stable, and reads its assignment

The first rebalance of an empty group waits group.initial.rebalance.delay.ms for more members. Each one that joins
extends the wait, up to the rebalance time-out. A later rebalance ends as soon as all members have rejoined, or when
somebody has waited for the rebalance time-out, the longest of all members.

Then the members vote: each for the protocol it prefers among those that all support, and the one with most votes is the
protocol of the generation. The leader stays if it has rejoined; otherwise the first member that has joined leads. As in
Kafka, a static member that has not rejoined remains a member until its session expires. Here that also holds for a
leader that assigned nothing: it is passed over, and leads again only if none of the others rejoins. Kafka removes it,
and a process that is killed in this moment would lose what is kept for its restart.

Assignments are opaque bytes: only the members' assignor knows what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.group.fencing import check_generation, check_member
from pyspark_log_coordinator.group.state import Barrier, Group, GroupState, MemberId, act, without
from pyspark_log_storage.errors import RebalanceInProgress
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.group.state import MemberDetails


class EndWait(msgspec.Struct, frozen=True):
    """End a wait for members that have not rejoined, or for a leader that assigned nothing: go on without them.

    The caller has waited for the barrier's time.
    """

    barrier: int


class SyncGroup(msgspec.Struct, frozen=True):
    """Assign the work, if the member is the leader. Members that `assignments` leaves out get an empty assignment."""

    member_id: MemberId
    generation: int
    assignments: dict[MemberId, bytes]
    instance_id: str = ""


class RebalanceStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """All members have to rejoin."""

    wait_ms: Count
    extendable_until_ms: Int64 | None = None


class RebalanceExtended(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The rebalance waits for this long, from now on."""

    wait_ms: Count


class MembersRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Members are no longer in the group: they `left`, `expired`, or were too `late` to rejoin or to assign."""

    member_ids: tuple[MemberId, ...]
    reason: str


class LeaderPassedOver(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A static leader has assigned nothing in time. It stays a member, and others are asked first to lead."""

    member_id: MemberId


class GenerationStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The next generation begins, with these members. Protocol and leader are empty if there is no member."""

    protocol: str
    leader: MemberId
    wait_ms: Count
    """How long the leader may take to assign the work."""


class WorkAssigned(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The leader has assigned the work: the group is Stable."""

    assignments: dict[MemberId, bytes]


Event = RebalanceStarted | RebalanceExtended | MembersRemoved | LeaderPassedOver | GenerationStarted | WorkAssigned


def decide_end(group: Group, command: EndWait) -> list[Any]:
    """Return the events that end a wait, none if another barrier has taken its place."""
    if group.barrier is None or group.barrier.number != command.barrier:
        return []
    if group.state is GroupState.PREPARING_REBALANCE:
        return _complete(group)
    is_static = bool(group.members[group.leader].details.instance_id)
    late = LeaderPassedOver(group.leader) if is_static else MembersRemoved((group.leader,), "late")
    return [RebalanceStarted(_timeout(group)), late]


def decide_sync(group: Group, command: SyncGroup) -> list[WorkAssigned]:
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


def start(group: Group, now: int, joining: MemberDetails | None = None) -> list[RebalanceStarted]:
    """Return the event that starts a rebalance, unless one waits for members already."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return []
    timeout = _timeout(group, joining)
    if group.state is not GroupState.EMPTY:
        return [RebalanceStarted(timeout)]
    return [RebalanceStarted(min(group.config.initial_rebalance_delay_ms, timeout), now + timeout)]


def extend(group: Group, now: int) -> list[RebalanceExtended]:
    """Return the event with which a new member extends the first rebalance of a group, none in a later one."""
    if group.barrier is None or group.barrier.extendable_until_ms is None:
        return []
    left = max(0, group.barrier.extendable_until_ms - now)
    return [RebalanceExtended(min(group.config.initial_rebalance_delay_ms, left))]


def decide_completion(group: Group) -> list[Any]:
    """Return the events of a rebalance that has nothing to wait for, after a member joined or was removed."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return []
    assert group.barrier is not None
    if group.barrier.extendable_until_ms is not None and group.barrier.wait_ms and group.members:
        return []
    return _complete(group) if all(member.joined for member in group.members.values()) else []


def evolve(group: Group, event: Event) -> Group:
    match event:
        case RebalanceStarted():
            members = {name: msgspec.structs.replace(member, joined=False) for name, member in group.members.items()}
            waiting = _with_barrier(group, event.wait_ms, event.extendable_until_ms)
            return msgspec.structs.replace(waiting, state=GroupState.PREPARING_REBALANCE, members=members)
        case RebalanceExtended():
            assert group.barrier is not None
            return _with_barrier(group, event.wait_ms, group.barrier.extendable_until_ms)
        case MembersRemoved():
            return without(group, event.member_ids)
        case LeaderPassedOver():
            others = without(group, [event.member_id]).members
            members = {**others, event.member_id: group.members[event.member_id]}
            return msgspec.structs.replace(group, members=members, leader="")
        case GenerationStarted():
            return _begin(group, event)
        case WorkAssigned():
            if not group.members.keys() >= event.assignments.keys():
                raise ValueError("work is assigned to somebody who is not a member")
            members = {
                name: msgspec.structs.replace(member, assignment=event.assignments.get(name, b""))
                for name, member in group.members.items()
            }
            stable = msgspec.structs.replace(group, state=GroupState.STABLE, members=members, barrier=None)
            return act(stable, members[group.leader])


def _begin(group: Group, event: GenerationStarted) -> Group:
    begun = msgspec.structs.replace(
        group,
        state=GroupState.COMPLETING_REBALANCE if group.members else GroupState.EMPTY,
        generation=group.generation + 1,
        protocol=event.protocol,
        leader=event.leader,
        barrier=None,
    )
    return _with_barrier(begun, event.wait_ms, None) if group.members else begun


def _complete(group: Group) -> list[Any]:
    late = tuple(name for name, member in group.members.items() if not member.joined and not member.details.instance_id)
    removed = [MembersRemoved(late, "late")] if late else []
    left = without(group, late)
    if not left.members:
        return [*removed, GenerationStarted("", "", 0)]
    joined = [name for name, member in left.members.items() if member.joined]
    if not joined:
        # Static members that are all away: wait until one returns, or their sessions expire.
        return [*removed, RebalanceExtended(_timeout(left))]
    leader = group.leader if group.leader in joined else joined[0]
    return [*removed, GenerationStarted(_vote(left), leader, _timeout(left))]


def supported_by_all(protocols: Iterable[Iterable[str]]) -> set[str]:
    """Return the names of the protocols that every member supports, given those of each. There must be a member."""
    return set.intersection(*map(set, protocols))


def names_of(details: MemberDetails) -> list[str]:
    """Return the names of the protocols that a member supports."""
    return [protocol.name for protocol in details.protocols]


def _vote(group: Group) -> str:
    """Return the protocol with most votes; of equals, the one that the earliest member voted for."""
    named = [names_of(member.details) for member in group.members.values()]
    candidates = supported_by_all(named)
    votes: dict[str, int] = {}
    for names in named:
        choice = next(name for name in names if name in candidates)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=votes.__getitem__)


def _timeout(group: Group, joining: MemberDetails | None = None) -> int:
    known = [member.details.rebalance_timeout_ms for member in group.members.values()]
    return max([*known, joining.rebalance_timeout_ms] if joining else known)


def _with_barrier(group: Group, wait_ms: int, extendable_until_ms: int | None) -> Group:
    number = group.barriers + 1
    return msgspec.structs.replace(group, barriers=number, barrier=Barrier(number, wait_ms, extendable_until_ms))
