"""The assignors range and roundrobin, which do not know who owned what before.

range        per topic: consecutive partitions for each member; the first members have one more
roundrobin   all partitions in order, dealt out to the members in turn

Both are Kafka's. Members are taken in the order of `Subscriber.order`. A topic that does not exist has no partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.assignors.subscription import Subscriber, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Shares = dict[str, list[TopicPartition]]
"""The partitions of each member."""


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
