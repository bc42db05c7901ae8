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
    topic: str
    partition: int


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of a member, and the generation in which it got them. The leader need not say that."""

    partitions: TopicPartitions = {}
    generation: int = NO_GENERATION


class Subscriber(msgspec.Struct, frozen=True):
    """A member as an assignor sees it: the topics that it wants, and what it has as it joins (KIP-429)."""

    member_id: str
    topics: tuple[str, ...]
    has: Assignment = Assignment()
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


def encode_topics(topics: tuple[str, ...]) -> bytes:
    """Return the metadata with which a member joins."""
    return msgspec.msgpack.encode((VERSION, _Wanted(topics)))


def decode_topics(metadata: bytes, member_id: str) -> tuple[str, ...]:
    """Return the topics that a member wants. Raise `CorruptObject` if its metadata are none."""
    return decode(_wanted, metadata, f"the subscription of member {member_id!r}", CorruptObject)[1].topics


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes that the leader stores for a member."""
    return msgspec.msgpack.encode((VERSION, assignment))


def decode_assignment(data: bytes, member_id: str) -> Assignment:
    """Return the assignment of a member, an empty one for no bytes. Raise `CorruptObject` if it is none."""
    if not data:
        return Assignment()
    return decode(_assignment, data, f"the assignment of member {member_id!r}", CorruptObject)[1]


def flat(partitions: TopicPartitions) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]


def by_topic(partitions: list[TopicPartition]) -> TopicPartitions:
    """Return the partitions by topic, in ascending order."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in grouped.items()}
