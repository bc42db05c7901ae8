"""The state of a group, after the entries of its journal.

A group has the five states of Kafka's coordinator:

    Empty                no members; it may have committed offsets
    PreparingRebalance   waits until its members have joined again, or the barrier's time is over
    CompletingRebalance  a generation has begun, and its leader has not assigned the work yet
    Stable               each member has its assignment
    Dead                 deleted; a group of the same id may start again in the same journal

Numbers that only ever grow (generation, barriers, actions, rewinds) are what commands name, so that `decide` can refuse
a command that is based on an older state.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import msgspec

from pyspark_log_coordinator.group.config import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS, GroupConfig
from pyspark_log_storage.stored_fields import Count, Int64, MemberName

if TYPE_CHECKING:
    from collections.abc import Iterable

MemberId = str
TopicId = str
NO_GENERATION = -1
"""The generation of a simple consumer, which commits offsets and is no member."""
NO_EPOCH = -1
"""The leader epoch of an offset for which none is known."""

Timeout = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
LeaderEpoch = Annotated[int, msgspec.Meta(ge=NO_EPOCH, le=2**63 - 1)]


class GroupState(enum.Enum):
    """A state of Kafka's coordinator."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Protocol(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A way of assigning work that a member supports, and what it tells the leader, in two parts."""

    name: str
    metadata: bytes = b""
    """What the member wants: its subscription. A static member that restarts without changing it needs no rebalance."""
    state: bytes = b""
    """What the member has as it joins: the partitions that it owns. A process that restarts has nothing."""


class MemberDetails(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a member says about itself when it joins."""

    member_id: MemberName
    """Made by the client, different for each start of a process."""
    protocols: tuple[Protocol, ...]
    """The preferred one first."""
    instance_id: str = ""
    """`group.instance.id` of a static member (KIP-345), empty for a dynamic one."""
    session_timeout_ms: Timeout = SESSION_TIMEOUT_MS
    rebalance_timeout_ms: Timeout = MAX_POLL_INTERVAL_MS
    client_id: str = ""
    host: str = ""

    def protocol(self, name: str) -> Protocol:
        """Return a protocol that the member supports, as it does."""
        return next(protocol for protocol in self.protocols if protocol.name == name)

    def wants_the_same_as(self, other: MemberDetails) -> bool:
        """Return whether two processes, one of which replaces the other, differ only in what they have."""
        mine, others = (
            [(protocol.name, protocol.metadata) for protocol in details.protocols] for details in (self, other)
        )
        return mine == others


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    details: MemberDetails
    acted: Count
    """The number of its newest action. A command that expires the member names it."""
    first_generation: Count
    """The first generation in which it takes part. An earlier one belongs to a former member of the same id."""
    joined: bool = True
    """Whether it has joined the newest rebalance. A static member that has not is still a member."""
    assignment: bytes = b""
    """Its newest one; in a rebalance, that of the generation before."""


class Barrier(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a rebalance waits for.

    A process that has seen this barrier for `wait_ms`, on its own monotonic clock, may submit the command that ends the
    wait. The command names the barrier, so it is refused if another has taken its place. Times of different processes
    are not compared.
    """

    number: Count
    wait_ms: Count
    extendable_until_ms: Int64 | None = None
    """In the first rebalance of an empty group: members that join extend the wait up to this time. None later."""


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A committed offset of a partition: the next row to read."""

    offset: Count
    leader_epoch: LeaderEpoch
    metadata: str
    at_ms: Int64
    """When it was committed, by the clock of the process that committed it."""
    rewind: Count = 0
    """The newest rewind of this partition, 0 if there was none. Commits that do not know it are refused."""

    def epoch_or(self, now: int) -> int:
        """Return the leader epoch of the row before; `now`, the partition's newest, if none is known."""
        return now if self.leader_epoch == NO_EPOCH else self.leader_epoch


Offsets = dict[TopicId, dict[Count, CommittedOffset]]
"""By topic id and partition. Both levels are copied on a change, so a commit costs no more than its topics have."""


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group_id: str = ""
    """Kafka's `group.id`: the group's name. Empty before the journal's first entry."""
    config: GroupConfig = GroupConfig()
    state: GroupState = GroupState.EMPTY
    generation: Count = 0
    protocol_type: str = ""
    """What the group shares: `consumer`, `connect`, or a name of the user's own."""
    protocol: str = ""
    """The protocol that the members voted for, empty before the first generation."""
    leader: MemberId = ""
    """The member that assigns the work. It is nothing more: it decides nothing in the journal."""
    members: dict[MemberId, Member] = {}
    """In the order in which they joined; a leader that is passed over becomes the last one."""
    barrier: Barrier | None = None
    barriers: Count = 0
    """Number of barriers so far."""
    actions: Count = 0
    """Number of the members' actions so far."""
    offsets: Offsets = {}
    rewinds: Count = 0
    """Number of rewinds so far."""
    journal_generation: Count = 1
    """The generation of the journals' stores in which the group's journal goes on after it has ended in another."""
    deleted_ms: Int64 | None = None
    """When a dead group was deleted, by the clock of the process that deleted it."""

    @property
    def started(self) -> bool:
        """Whether the journal has its first entry."""
        return bool(self.group_id)

    def committed(self, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        return self.offsets.get(topic_id, {}).get(partition)

    def rewound(self, topic_id: TopicId, partition: int, since: int) -> CommittedOffset | None:
        """Return the committed offset of a partition if it is of a later rewind than number `since`, else None."""
        at = self.committed(topic_id, partition)
        return at if at is not None and at.rewind > since else None

    def instance(self, instance_id: str) -> Member | None:
        """Return the static member with this `group.instance.id`, or None."""
        if not instance_id:
            return None
        return next((member for member in self.members.values() if member.details.instance_id == instance_id), None)


class JoinedMember(msgspec.Struct, frozen=True):
    """A member as the leader sees it when it assigns the work."""

    member_id: MemberId
    instance_id: str
    metadata: bytes
    state: bytes = b""
    away: bytes | None = None
    """The newest assignment of a static member that has not rejoined; None if it has.

    Its `state` may be older than that, and newer if the generation that it joined was never assigned.
    """


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    """Return the members of the generation, for its leader."""
    assert group.protocol, "no generation has begun"
    members = []
    for name, member in group.members.items():
        protocol = member.details.protocol(group.protocol)
        away = None if member.joined else member.assignment
        members.append(JoinedMember(name, member.details.instance_id, protocol.metadata, protocol.state, away))
    return tuple(members)


def act(group: Group, member: Member) -> Group:
    """Return the group after an action of a member, which is new or takes its own former place."""
    actions = group.actions + 1
    acted = msgspec.structs.replace(member, acted=actions)
    members = {**group.members, member.details.member_id: acted}
    return msgspec.structs.replace(group, members=members, actions=actions)


def without(group: Group, member_ids: Iterable[MemberId]) -> Group:
    """Return the group without some members. Raise `KeyError` for one that it does not have."""
    members = dict(group.members)
    for member_id in member_ids:
        del members[member_id]
    return msgspec.structs.replace(group, members=members)
