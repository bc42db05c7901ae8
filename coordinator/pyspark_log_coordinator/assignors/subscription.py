"""What a consumer tells its group's leader, and what the leader sends back: Kafka's subscription and assignment.

    metadata of a member   msgpack [version, [topics]]
    assignment             msgpack [version, [partitions by topic, generation]]
    state of a member      the assignment that it has, with its generation; nothing if it has none

The version only grows when fields are added at the end. A reader ignores fields that it does not know, so members of
different versions can share a group, as in Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pyspark_log_storage.decoding import decode
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.stored_fields import Count

VERSION = 1
NO_GENERATION = -1

TopicPartitions = dict[str, tuple[Count, ...]]
"""Partitions by topic. Topics and partitions are in ascending order."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Subscription(msgspec.Struct, frozen=True):
    """The topics that a member wants, and the partitions that it owns as it joins (KIP-429)."""

    topics: tuple[str, ...]
    owned: TopicPartitions = {}
    generation: int = NO_GENERATION
    """The generation in which the member was assigned what it owns."""


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of a member. The leader need not say the generation, which members know."""

    partitions: TopicPartitions = {}
    generation: int = NO_GENERATION


class Subscriber(msgspec.Struct, frozen=True):
    """A member as an assignor sees it."""

    member_id: str
    subscription: Subscription
    instance_id: str = ""
    is_lost: bool = False
    """Whether it has not rejoined: it has lost what it had, and need not revoke it first."""

    @property
    def order(self) -> tuple[bool, str]:
        """Sort static members by their lasting ids, before dynamic members."""
        return (not self.instance_id, self.instance_id or self.member_id)


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    topics: tuple[str, ...]


_wanted = msgspec.msgpack.Decoder(tuple[int, _Wanted]).decode
_assignment = msgspec.msgpack.Decoder(tuple[int, Assignment]).decode


def encode_subscription(subscription: Subscription) -> tuple[bytes, bytes]:
    """Return the metadata and the state with which a member joins."""
    owned = encode_assignment(Assignment(subscription.owned, subscription.generation)) if subscription.owned else b""
    return msgspec.msgpack.encode((VERSION, _Wanted(subscription.topics))), owned


def decode_subscription(metadata: bytes, state: bytes, member_id: str) -> Subscription:
    """Return the subscription of a member. Raise `CorruptObject` if it is none."""
    wanted = decode(_wanted, metadata, f"the subscription of member {member_id!r}", CorruptObject)[1]
    owned = decode_assignment(state, member_id)
    return Subscription(wanted.topics, owned.partitions, owned.generation)


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes that the leader stores for a member."""
    return msgspec.msgpack.encode((VERSION, assignment))


def decode_assignment(data: bytes, member_id: str) -> Assignment:
    """Return the assignment of a member, an empty one for no bytes. Raise `CorruptObject` if it is none."""
    if not data:
        return Assignment()
    return decode(_assignment, data, f"the assignment of member {member_id!r}", CorruptObject)[1]


def flat(partitions: TopicPartitions) -> list[TopicPartition]:
    """Return the partitions one by one."""
    return [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]


def by_topic(partitions: list[TopicPartition]) -> TopicPartitions:
    """Return the partitions by topic, in ascending order."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in grouped.items()}
