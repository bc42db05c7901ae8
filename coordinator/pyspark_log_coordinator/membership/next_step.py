"""What a member has to do next, given the newest state of its group and what it knows of itself.

    the group                 the member                                  next step
    does not exist            was no member of it                      -> START
    any                       is not in the group, and was not         -> JOIN
    any                       is not in the group any more             -> LOST: continue as a new member
    any                       another process has its instance id      -> FENCED: stop
    PreparingRebalance        has not joined yet, or has news          -> JOIN
    CompletingRebalance       leads                                    -> ASSIGN
    Stable                    has not taken the assignment             -> TAKE
    Stable                    wants a rebalance                        -> JOIN
    Stable                    otherwise                                -> WORK
    any                       otherwise                                -> WAIT

A member takes its assignment only in a Stable group, and commits for that generation and no other: a generation that it
has only joined may give its partitions to somebody else.

Source: Kafka's `AbstractCoordinator` and `ConsumerCoordinator`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.group.state import NO_GENERATION, GroupState

if TYPE_CHECKING:
    from pyspark_log_coordinator.group.offsets import OffsetCommit
    from pyspark_log_coordinator.group.state import Group, MemberId


class Step(enum.Enum):
    """What a member does next."""

    START = "start the group"
    JOIN = "join"
    ASSIGN = "assign the work of all"
    TAKE = "take the assignment"
    LOST = "everything is lost: join as a new member"
    FENCED = "stop: another process has taken the member's place"
    WAIT = "wait for others"
    WORK = "work"


class Standing(msgspec.Struct, frozen=True):
    """What a member knows of itself."""

    member_id: MemberId
    instance_id: str = ""
    is_member: bool = False
    """Whether it has joined under this id."""
    generation: int = NO_GENERATION
    """The newest generation whose assignment it has taken, the one for which it commits."""
    reported: int = NO_GENERATION
    """The newest generation up to which it has joined all, so that their leaders know what it has."""


def next_step(group: Group, standing: Standing, *, has_news: bool = False) -> Step:
    """Return the next step.

    `has_news`: the member wants a rebalance. It has given something up, wants something else than when it joined, or
    leads and there is more or less work to share.
    """
    member = group.members.get(standing.member_id)
    if member is None:
        return _outside(group, standing)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            return Step.JOIN if has_news or not member.joined else Step.WAIT
        case GroupState.COMPLETING_REBALANCE:
            return Step.ASSIGN if group.leader == standing.member_id else Step.WAIT
        case _:
            if standing.generation != group.generation:
                return Step.TAKE
            return Step.JOIN if has_news else Step.WORK


def _outside(group: Group, standing: Standing) -> Step:
    if standing.is_member:
        return Step.LOST if group.instance(standing.instance_id) is None else Step.FENCED
    return Step.JOIN if group.started and group.state is not GroupState.DEAD else Step.START


def after_join(group: Group, standing: Standing) -> Standing:
    """Return what a member knows of itself after it has joined, given the group after that.

    If the group has nothing to share anew, the member takes its assignment again: it may have given it up to join.
    """
    if group.state is GroupState.STABLE:
        return msgspec.structs.replace(after_loss(standing), is_member=True)
    generation = group.generation + (group.state is GroupState.PREPARING_REBALANCE)
    follows = generation <= standing.reported + 1 or standing.generation == NO_GENERATION
    return msgspec.structs.replace(standing, is_member=True, reported=generation if follows else standing.reported)


def after_take(group: Group, standing: Standing) -> Standing:
    """Return what a member knows of itself when it has taken its assignment."""
    return msgspec.structs.replace(standing, generation=group.generation, reported=group.generation)


def after_loss(standing: Standing) -> Standing:
    """Return what a member knows of itself when it has dropped everything, and is still a member."""
    return msgspec.structs.replace(standing, generation=NO_GENERATION, reported=NO_GENERATION)


def has_missed_a_join(group: Group, standing: Standing) -> bool:
    """Return whether others may have had what the member had, since it took its newest assignment.

    That is so if there was a generation that it has not joined, so that its leader did not hear what it has. Only a
    static member can miss one and still be a member.
    """
    has_something = standing.generation != NO_GENERATION and bool(standing.instance_id)
    return has_something and standing.reported < group.generation


def has_joined_newer(group: Group, standing: Standing, commit: OffsetCommit) -> bool:
    """Return whether the group knows what the member had, and has assigned to nobody else what it keeps.

    `commit` is one for an older generation.
    """
    return standing.member_id == commit.member_id and commit.generation < group.generation <= standing.reported
