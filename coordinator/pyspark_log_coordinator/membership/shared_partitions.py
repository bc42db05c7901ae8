"""The partitions that a consumer shares with the others of its group: the participant of type `consumer`.

A consumer gives partitions up when it joins, or when it takes an assignment:

    eager                it gives up all its partitions before it joins
    cooperative          it keeps them (KIP-429). Those that are not in its next assignment it gives up then, and
                         rejoins, so that others get them. It works in the meantime

It is cooperative if all its assignors are. As in Kafka, `range,cooperative-sticky` is eager, so that a group can be
moved from one to the other by two rolling restarts.

Source: Kafka's `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from pyspark_log_coordinator.assignors import consumer
from pyspark_log_coordinator.assignors.subscription import (
    Assignment,
    TopicPartition,
    by_topic,
    decode_assignment,
    decode_topics,
    encode_assignment,
    encode_topics,
    flat,
)
from pyspark_log_coordinator.group.state import Protocol, joined_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_log_coordinator.group.state import Group, JoinedMember, MemberId

COOPERATIVE = "cooperative-sticky"
STICKY = "sticky"


class Reader(Interface):
    """What reads the partitions. All methods are called by the thread that calls `GroupMember.poll`."""

    def topics(self) -> tuple[str, ...]:
        """Return the topics that are wanted now, in any order."""

    def partitions(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return how many partitions each of these topics has, without those that do not exist."""

    def assigned(self, added: Sequence[TopicPartition], group: Group) -> None:
        """Begin to read partitions, each at its committed offset in `group`. There may be none.

        If this fails, it reads none of them, and is called again.
        """

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what was read of these partitions, and stop reading them. If this fails, it is called again."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading partitions that others may have by now: nothing can be committed.

        If this fails, it is called again.
        """


class SharedPartitions:
    protocol_type = consumer.PROTOCOL_TYPE

    def __init__(self, strategies: Sequence[str], reader: Reader) -> None:
        """`strategies` are assignors by the names of partition.assignment.strategy, the preferred one first."""
        self._strategies = tuple(strategies)
        self._reader = reader
        self._wanted: tuple[str, ...] = ()
        """The topics with which the member joined."""
        self._shared: Mapping[str, int] | None = None
        """How many partitions the topics of all members had when this member assigned them."""
        self.is_cooperative = set(strategies) == {COOPERATIVE}
        self.owned: set[TopicPartition] = set()
        """What the member may commit."""
        self._last: set[TopicPartition] = set()
        """What it was assigned last: the assignor `sticky` gives it back."""

    def protocols(self, generation: int) -> tuple[Protocol, ...]:
        self._wanted = tuple(sorted(self._reader.topics()))
        return tuple(Protocol(each, *self._subscription(each, generation)) for each in self._strategies)

    def prepare(self) -> None:
        wanted = set(self._reader.topics())
        kept = {each for each in self.owned if self.is_cooperative and each.topic in wanted}
        self._give_up(self.owned - kept)

    def take(self, group: Group, member_id: MemberId) -> bool:
        assigned = set(flat(decode_assignment(group.members[member_id].assignment, member_id).partitions))
        revoked, added = self.owned - assigned, assigned - self.owned
        self._last = assigned
        self._give_up(revoked)
        self._reader.assigned(sorted(added), group)
        self.owned |= added
        return bool(revoked)

    def assign(self, group: Group, members: tuple[JoinedMember, ...]) -> Mapping[MemberId, bytes]:
        self._shared = dict(self._reader.partitions(_topics_of(members)))
        return consumer.assign(group.protocol, group.generation, members, self._shared)

    def wants_rebalance(self, group: Group, member_id: MemberId, now: float) -> bool:
        if tuple(sorted(self._reader.topics())) != self._wanted:
            return True
        if group.leader != member_id:
            self._shared = None
            return False
        if self._shared is None:  # it leads by what another process has assigned
            self._shared = _assigned_in(group)
        members = joined_members(group)
        found = self._reader.partitions(_topics_of(members))
        return any(
            found.get(topic, 0) != self._shared.get(topic, 0) for topic in {*found, *self._shared}
        ) or _is_any_forgotten(found, group, members)

    def lose(self) -> None:
        if self.owned:
            self._reader.lost(sorted(self.owned))
        self.owned, self._last, self._shared = set(), set(), None

    def leave(self) -> None:
        """Give up everything, before the member leaves."""
        self._give_up(self.owned)

    def _subscription(self, strategy: str, generation: int) -> tuple[bytes, bytes]:
        """Return the metadata and the state of a protocol."""
        # `sticky` needs to know what an eager member has given up, so that it can give it back.
        owned = {COOPERATIVE: self.owned, STICKY: self._last}.get(strategy, set())
        state = encode_assignment(Assignment(by_topic(list(owned)), generation)) if owned else b""
        return encode_topics(self._wanted), state

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        gone = sorted(partitions)
        if gone:
            self._reader.revoked(gone)
            self.owned -= set(gone)


def _topics_of(members: Iterable[JoinedMember]) -> set[str]:
    """Return the topics that some member wants."""
    return {topic for each in members for topic in decode_topics(each.metadata, each.member_id)}


def _assigned_in(group: Group) -> Counter[str]:
    """Return how many partitions of each topic the members have."""
    return Counter(each.topic for each in _partitions_in(group))


def _is_any_forgotten(counts: Mapping[str, int], group: Group, members: Iterable[JoinedMember]) -> bool:
    """Return whether nobody has a partition, or is about to give it up: its owner was restarted before it did."""
    assigned = _assigned_in(group)
    if all(assigned[topic] >= counts[topic] for topic in counts):
        return False  # fast, and so nearly always
    claimed = {one for each in members for one in flat(decode_assignment(each.state, each.member_id).partitions)}
    known = claimed.union(_partitions_in(group))
    return any(TopicPartition(topic, number) not in known for topic in counts for number in range(counts[topic]))


def _partitions_in(group: Group) -> list[TopicPartition]:
    """Return the partitions that the members have."""
    return [
        each
        for name, member in group.members.items()
        for each in flat(decode_assignment(member.assignment, name).partitions)
    ]
