"""The assignors of consumers, and the leader's call of the one that its group's members voted for.

range               per topic: consecutive partitions for each member; the first members have one more
roundrobin          all partitions in order, dealt out to the members in turn
sticky              balanced, and members keep what they can (KIP-54)
cooperative-sticky  the same, but nothing that is owned moves in one step (KIP-429)

All are Kafka's. Members are taken in the order of `Subscriber.order`. A topic that does not exist has no partitions.
range and roundrobin do not know who owned what before.

The result of sticky is balanced: no partition can move to another member that wants its topic and has at least two
partitions fewer. If all members want the same topics, their numbers of partitions differ by at most one.

1. Each member keeps what it owns. If several claim a partition, the one of the newest generation owns it; if these are
   of one generation, nobody does.
2. Partitions without an owner go to the member that has fewest, those that few members want first.
3. While it improves the balance, a partition moves from a member that has more to one that has less.

cooperative-sticky assigns a partition that moves to nobody while another member claims it. Its owner revokes it, as it
is not in its assignment, and rejoins; then the new owner gets it. So members keep working during a rebalance, and no
partition has two owners. A consumer that is away has missed a join, so it can commit nothing of what it had: what moves
from it has its new owner at once. If it is dead, nobody would revoke that.
"""

from __future__ import annotations

import heapq
from bisect import insort
from typing import TYPE_CHECKING

from pyspark_log_coordinator.assignors.subscription import (
    Assignment,
    Subscriber,
    TopicPartition,
    by_topic,
    decode_assignment,
    decode_topics,
    encode_assignment,
    flat,
)
from pyspark_log_storage.errors import InconsistentProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_log_coordinator.group.state import JoinedMember

PROTOCOL_TYPE = "consumer"

Shares = dict[str, list[TopicPartition]]
"""The partitions of each member."""
Claims = dict[TopicPartition, list[Subscriber]]
LARGEST_DIFFERENCE = 1
"""Between the numbers of partitions of two members, where a partition could move from one to the other."""


def assign_range(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Share the `partitions` (how many each topic has) out as ranges.

    >>> members = [Subscriber(name, ("t",)) for name in ("a", "b")]
    >>> {name: [each.partition for each in share] for name, share in assign_range({"t": 3}, members).items()}
    {'a': [0, 1], 'b': [2]}
    """
    shares: Shares = {each.member_id: [] for each in members}
    for topic, takers in _takers(members, partitions).items():
        start = 0
        for index, taker in enumerate(takers):
            count = partitions[topic] // len(takers) + (index < partitions[topic] % len(takers))
            shares[taker] += [TopicPartition(topic, number) for number in range(start, start + count)]
            start += count
    return shares


def assign_roundrobin(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Deal the `partitions` (how many each topic has) out in turn, past members that do not want the topic.

    >>> members = [Subscriber(name, ("t",)) for name in ("a", "b")]
    >>> {name: [each.partition for each in share] for name, share in assign_roundrobin({"t": 3}, members).items()}
    {'a': [0, 2], 'b': [1]}
    """
    shares: Shares = {each.member_id: [] for each in members}
    turn = sorted(members, key=lambda each: each.order)
    position = 0
    for topic, takers in _takers(members, partitions).items():
        if not takers:
            continue
        for number in range(partitions[topic]):
            while topic not in turn[position % len(turn)].topics:
                position += 1
            shares[turn[position % len(turn)].member_id].append(TopicPartition(topic, number))
            position += 1
    return shares


def _takers(members: Sequence[Subscriber], topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the members that want each topic, in order; topics are in ascending order."""
    takers: dict[str, list[str]] = {topic: [] for topic in sorted(topics)}
    for member in sorted(members, key=lambda each: each.order):
        for topic in takers.keys() & set(member.topics):
            takers[topic].append(member.member_id)
    return {topic: tuple(names) for topic, names in takers.items()}


def assign_sticky(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Share the `partitions` (how many each topic has) out, and move as few as balance allows."""
    takers = _takers(members, partitions)
    owners = {partition: owner_of(claimants) for partition, claimants in claims_on(members).items()}
    sharing = _Sharing(members, takers, owners)
    free: list[TopicPartition] = []
    for topic, names in takers.items():
        able = set(names)
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner in able:
                sharing.give(owner, partition)
            elif able:
                free.append(partition)
    for partition in sorted(free, key=lambda each: (len(takers[each.topic]), each)):
        sharing.give(sharing.least(partition.topic), partition)
    while sharing.move_one():
        pass
    return {name: sorted(share) for name, share in sharing.shares.items()}


def assign_cooperative_sticky(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Share the `partitions` out as `assign_sticky` does, but leave out those that another member has to revoke."""
    claims = claims_on(members)

    def is_free_for(member_id: str, partition: TopicPartition) -> bool:
        claimants = claims.get(partition, [])
        return owner_of(claimants) == member_id or all(
            each.is_lost or each.member_id == member_id for each in claimants
        )

    return {
        name: [each for each in share if is_free_for(name, each)]
        for name, share in assign_sticky(partitions, members).items()
    }


def claims_on(members: Sequence[Subscriber]) -> Claims:
    """Return the members that say they own a partition, by partition."""
    claims: Claims = {}
    for member in members:
        for partition in flat(member.has.partitions):
            claims.setdefault(partition, []).append(member)
    return claims


def owner_of(claimants: Sequence[Subscriber]) -> str | None:
    """Return the member whose claim counts: the only one of the newest generation."""
    if not claimants:
        return None
    newest = max(each.has.generation for each in claimants)
    owners = {each.member_id for each in claimants if each.has.generation == newest}
    return owners.pop() if len(owners) == 1 else None


class _Sharing:
    """The shares so far, who has fewest partitions of those that want a topic, and which partitions may move."""

    def __init__(
        self,
        members: Sequence[Subscriber],
        takers: Mapping[str, tuple[str, ...]],
        owners: Mapping[TopicPartition, str | None],
    ) -> None:
        """Nobody has anything yet. `takers` are the members that want each topic."""
        ordered = sorted(members, key=lambda each: each.order)
        self.shares: dict[str, set[TopicPartition]] = {each.member_id: set() for each in ordered}
        self._owners = owners
        self._movable: dict[str, dict[str, list[tuple[bool, TopicPartition]]]] = {name: {} for name in self.shares}
        """What a member may give up, by topic, in ascending order: the last one moves first."""
        self._places = {name: place for place, name in enumerate(self.shares)}
        queues = {names: [(0, self._places[name], name) for name in names] for names in set(takers.values())}
        self._queues = {topic: queues[names] for topic, names in takers.items()}
        """For each topic a heap of the members that want it, by how many partitions they have, or had before more."""
        self._queues_of: dict[str, list[list[tuple[int, int, str]]]] = {name: [] for name in self.shares}
        for names, queue in queues.items():
            for name in names:
                self._queues_of[name].append(queue)

    def give(self, name: str, partition: TopicPartition) -> None:
        """Give a member a partition, which it may give up again."""
        self.shares[name].add(partition)
        is_owner = self._owners.get(partition) == name
        insort(self._movable[name].setdefault(partition.topic, []), (not is_owner, partition))

    def least(self, topic: str) -> str:
        """Return the first of the members with fewest partitions that want a topic."""
        queue = self._queues[topic]
        while queue[0][0] != len(self.shares[queue[0][2]]):  # it has got more since
            _, place, name = queue[0]
            heapq.heapreplace(queue, (len(self.shares[name]), place, name))
        return queue[0][2]

    def move_one(self) -> bool:
        """Move a partition to a member that has at least two fewer. Return whether there was one."""
        for giver in sorted(self.shares, key=lambda each: -len(self.shares[each])):
            share, movable = self.shares[giver], self._movable[giver]
            counts = {topic: len(self.shares[self.least(topic)]) for topic, some in movable.items() if some}
            topics = [topic for topic, count in counts.items() if len(share) - count > LARGEST_DIFFERENCE]
            if topics:
                topic = min(topics, key=lambda each: (counts[each], each))
                taker, (_, partition) = self.least(topic), movable[topic].pop()
                share.remove(partition)
                for queue in self._queues_of[giver]:
                    heapq.heappush(queue, (len(share), self._places[giver], giver))
                self.give(taker, partition)
                return True
        return False


ASSIGNORS = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""By the names that `partition.assignment.strategy` takes."""


def assign(
    protocol: str, generation: int, members: Sequence[JoinedMember], partitions: Mapping[str, int]
) -> dict[str, bytes]:
    """Return the assignments of a generation. `partitions` says how many each topic has.

    Raises `InconsistentProtocol` if the members have chosen an assignor that there is not.
    """
    if protocol not in ASSIGNORS:
        raise InconsistentProtocol(
            f"the members of the group have chosen the assignor {protocol!r}, and this version has "
            f"{', '.join(ASSIGNORS)}; give all members the same partition.assignment.strategy"
        )
    shares = ASSIGNORS[protocol](partitions, [_subscriber(each, generation) for each in members])
    return {name: encode_assignment(Assignment(by_topic(share))) for name, share in shares.items()}


def _subscriber(member: JoinedMember, generation: int) -> Subscriber:
    """Return the member for an assignor. One that is away owns what it was assigned last, whatever it said before."""
    has = decode_assignment(member.state if member.away is None else member.away, member.member_id)
    if member.away is not None:
        has = Assignment(has.partitions, generation - 1)
    topics = decode_topics(member.metadata, member.member_id)
    return Subscriber(member.member_id, topics, has, member.instance_id, is_lost=member.away is not None)
