"""The assignors of consumers and queries, and the leader's call of the one that its group's members voted for.

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
3. While it improves the balance, a partition moves from a member that has more to one that has less, unless its owner
   keeps its partitions.

cooperative-sticky assigns a partition that moves to nobody while another member claims it. Its owner revokes it, as it
is not in its assignment, and rejoins; then the new owner gets it. So members keep working during a rebalance, and no
partition has two owners. A consumer that is away has missed a join, so it can commit nothing of what it had: what moves
from it has its new owner at once. If it is dead, nobody would revoke that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.assignors.subscription import (
    KEEPING_QUERY,
    QUERY,
    Assignment,
    Subscriber,
    Subscription,
    TopicPartition,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    flat,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log_coordinator.group.state import JoinedMember

PROTOCOL_TYPE = "consumer"
QUERY_PROTOCOL_TYPE = "spark"
"""That of Spark queries, which follow rewinds while they run. They share no group with Python consumers."""

Shares = dict[str, list[TopicPartition]]
"""The partitions of each member."""
Claims = dict[TopicPartition, list[Subscriber]]
LARGEST_DIFFERENCE = 1
"""Between the numbers of partitions of two members, where a partition could move from one to the other."""


def assign_range(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Share the `partitions` (how many each topic has) out as ranges.

    >>> members = [Subscriber(name, Subscription(("t",))) for name in ("a", "b")]
    >>> {name: [each.partition for each in share] for name, share in assign_range({"t": 3}, members).items()}
    {'a': [0, 1], 'b': [2]}
    """
    shares: Shares = {each.member_id: [] for each in members}
    for topic in sorted(partitions):
        takers = _takers(members, topic)
        start = 0
        for index, taker in enumerate(takers):
            count = partitions[topic] // len(takers) + (index < partitions[topic] % len(takers))
            shares[taker.member_id] += [TopicPartition(topic, number) for number in range(start, start + count)]
            start += count
    return shares


def assign_roundrobin(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Deal the `partitions` (how many each topic has) out in turn, past members that do not want the topic.

    >>> members = [Subscriber(name, Subscription(("t",))) for name in ("a", "b")]
    >>> {name: [each.partition for each in share] for name, share in assign_roundrobin({"t": 3}, members).items()}
    {'a': [0, 2], 'b': [1]}
    """
    shares: Shares = {each.member_id: [] for each in members}
    turn = sorted(members, key=lambda each: each.order)
    position = 0
    for topic in sorted(partitions):
        if not _takers(members, topic):
            continue
        for number in range(partitions[topic]):
            while topic not in turn[position % len(turn)].subscription.topics:
                position += 1
            shares[turn[position % len(turn)].member_id].append(TopicPartition(topic, number))
            position += 1
    return shares


def _takers(members: Sequence[Subscriber], topic: str) -> list[Subscriber]:
    wanting = [each for each in members if topic in each.subscription.topics]
    return sorted(wanting, key=lambda each: each.order)


def assign_sticky(partitions: Mapping[str, int], members: Sequence[Subscriber]) -> Shares:
    """Share the `partitions` (how many each topic has) out, and move as few as balance allows."""
    ordered = sorted(members, key=lambda each: each.order)
    wanting = {
        topic: [each.member_id for each in ordered if topic in each.subscription.topics] for topic in sorted(partitions)
    }
    claims = claims_on(ordered)
    shares: Shares = {each.member_id: [] for each in ordered}
    free: list[TopicPartition] = []
    for topic, takers in wanting.items():
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            owner = owner_of(claims.get(partition, []))
            if owner in takers:
                shares[owner].append(partition)
            elif takers:
                free.append(partition)
    for partition in sorted(free, key=lambda each: (len(wanting[each.topic]), each)):
        taker = min(wanting[partition.topic], key=lambda each: len(shares[each]))
        shares[taker].append(partition)
    kept = {
        each
        for name in (each.member_id for each in ordered if each.keeps)
        for each in shares[name]
        if owner_of(claims.get(each, [])) == name
    }
    while _move_one(shares, wanting, claims, kept):
        pass
    return {name: sorted(share) for name, share in shares.items()}


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
        for partition in flat(member.subscription.owned):
            claims.setdefault(partition, []).append(member)
    return claims


def owner_of(claimants: Sequence[Subscriber]) -> str | None:
    """Return the member whose claim counts: the only one of the newest generation."""
    if not claimants:
        return None
    newest = max(each.subscription.generation for each in claimants)
    owners = {each.member_id for each in claimants if each.subscription.generation == newest}
    return owners.pop() if len(owners) == 1 else None


def _move_one(
    shares: Shares, wanting: Mapping[str, Sequence[str]], claims: Claims, kept: Collection[TopicPartition]
) -> bool:
    """Move a partition that is not `kept` to a member that has at least two fewer. Return whether there was one."""
    sizes = sorted(len(share) for share in shares.values())
    if not sizes or sizes[-1] - sizes[0] <= LARGEST_DIFFERENCE:
        return False
    least = {topic: min(takers, key=lambda each: len(shares[each])) for topic, takers in wanting.items() if takers}
    for giver in sorted(shares, key=lambda each: -len(shares[each])):
        topics = {each.topic for each in shares[giver] if each not in kept}
        movable = [each for each in topics if len(shares[giver]) - len(shares[least[each]]) > LARGEST_DIFFERENCE]
        if movable:
            topic = min(movable, key=lambda each: (len(shares[least[each]]), each))
            partition = max(
                (each for each in shares[giver] if each.topic == topic and each not in kept),
                key=lambda each: (owner_of(claims.get(each, [])) != giver, each),
            )
            shares[giver].remove(partition)
            shares[least[topic]].append(partition)
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
    """Return the assignments of a generation. `partitions` says how many each topic has."""
    shares = ASSIGNORS[protocol](partitions, [_subscriber(each, generation) for each in members])
    return {name: encode_assignment(Assignment(by_topic(share))) for name, share in shares.items()}


def _subscriber(member: JoinedMember, generation: int) -> Subscriber:
    """Return the member for an assignor.

    One that is away owns what it was assigned last, whatever it said before. A query that is away also owns what it
    said, and keeps all of that: it can give up nothing.
    """
    subscription: Subscription = decode_subscription(member.metadata, member.state, member.member_id)
    is_query = subscription.user_data in {QUERY, KEEPING_QUERY}
    if member.away is not None:
        owned = decode_assignment(member.away, member.member_id).partitions
        if is_query:
            owned = by_topic(list({*flat(owned), *flat(subscription.owned)}))
            subscription = msgspec.structs.replace(subscription, user_data=KEEPING_QUERY)
        subscription = msgspec.structs.replace(subscription, owned=owned, generation=generation - 1)
    is_lost = member.away is not None and not is_query
    return Subscriber(member.member_id, subscription, member.instance_id, is_lost)
