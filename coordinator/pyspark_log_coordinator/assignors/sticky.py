"""The assignors sticky (KIP-54) and cooperative-sticky (KIP-429): balanced, and members keep what they can.

The result is balanced: no partition can move to another member that wants its topic and has at least two partitions
fewer. If all members want the same topics, their numbers of partitions differ by at most one.

1. Each member keeps what it owns. If several claim a partition, the one of the newest generation owns it; if these are
   of one generation, nobody does.
2. Partitions without an owner go to the member that has fewest, those that few members want first.
3. While it improves the balance, a partition moves from a member that has more to one that has less, unless its owner
   keeps its partitions.

cooperative-sticky does not let go of what is owned in one step. A partition that moves is assigned to nobody while
another member claims it. Its owner revokes it, as it is not in its assignment, and rejoins; then the new owner gets it.
So members keep working during a rebalance, and no partition has two owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.assignors.subscription import Subscriber, TopicPartition, flat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log_coordinator.assignors.basic import Shares

Claims = dict[TopicPartition, list[Subscriber]]
LARGEST_DIFFERENCE = 1
"""Between the numbers of partitions of two members, where a partition could move from one to the other."""


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
        return owner_of(claimants) == member_id or all(each.member_id == member_id for each in claimants)

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
