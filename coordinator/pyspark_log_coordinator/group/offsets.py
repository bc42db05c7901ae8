"""Committed offsets: commits, deletions and rewinds.

    command         events
    OffsetCommit -> OffsetsCommitted     none if these offsets are committed already
    OffsetDelete -> OffsetsDeleted       of an empty group
    ResetOffsets -> OffsetsReset         of an empty group

**Safety depends on the commit.** A member commits for the generation whose assignment it has taken, and is refused in
any other. In PreparingRebalance nobody has been assigned anything since, so the members of the generation may still
commit; in CompletingRebalance they have to wait for their assignments. A simple consumer, without member id and
generation, may commit only to an empty group.

A rewind is a reset with a number. A simple consumer, such as a streaming query, follows it while it runs: its commit
names the newest rewind that it has followed, and is refused if a partition was rewound later. A member has joined since
the last rewind, and has read from the committed offsets.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.group.fencing import check_generation, check_member
from pyspark_log_coordinator.group.state import (
    NO_EPOCH,
    NO_GENERATION,
    CommittedOffset,
    Group,
    GroupState,
    LeaderEpoch,
    MemberId,
    Offsets,
    TopicId,
    act,
)
from pyspark_log_storage.errors import (
    GroupNotEmpty,
    InvalidInput,
    InvalidOption,
    RebalanceInProgress,
    RewindPending,
    UnknownMember,
)
from pyspark_log_storage.stored_fields import INT64_MAX, Count, Int64


class Offset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An offset to commit: the next row to read, and what Kafka keeps beside it."""

    offset: Count
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""


NewOffsets = dict[TopicId, dict[Count, Offset]]
Partitions = dict[TopicId, tuple[Count, ...]]


class OffsetCommit(msgspec.Struct, frozen=True):
    """Commit offsets, as a member or as a simple consumer."""

    offsets: NewOffsets
    member_id: MemberId = ""
    generation: int = NO_GENERATION
    """The generation whose assignment the member has taken: not that which it has only joined."""
    instance_id: str = ""
    rewinds: int = 0
    """The newest rewind that a simple consumer has followed: the group's number when it read its committed offsets."""


class OffsetDelete(msgspec.Struct, frozen=True):
    """Delete the committed offsets of partitions."""

    partitions: Partitions


class ResetOffsets(msgspec.Struct, frozen=True):
    """Rewind partitions to these offsets, or move them forward."""

    offsets: NewOffsets


class OffsetsCommitted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Offsets were committed, by a member unless `member_id` is empty."""

    offsets: NewOffsets
    member_id: MemberId
    at_ms: Int64


class OffsetsDeleted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The committed offsets of these partitions were deleted."""

    partitions: Partitions


class OffsetsReset(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The partitions continue at these offsets. This is the group's next rewind."""

    offsets: NewOffsets
    at_ms: Int64


Command = OffsetCommit | OffsetDelete | ResetOffsets
Event = OffsetsCommitted | OffsetsDeleted | OffsetsReset


def decide(group: Group, command: Command, now: int) -> list[Event]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    match command:
        case OffsetCommit():
            _check_committer(group, command)
            _check_offsets(group, command.offsets)
            if not command.member_id:
                _check_rewinds(group, command)
            is_known = all(_is_committed(group, *new) for new in _flat(command.offsets))
            return [] if is_known else [OffsetsCommitted(command.offsets, command.member_id, now)]
        case OffsetDelete():
            _check_empty(group, "offsets can be deleted")
            committed = {
                topic_id: tuple(number for number in numbers if group.committed(topic_id, number))
                for topic_id, numbers in command.partitions.items()
            }
            committed = {topic_id: numbers for topic_id, numbers in committed.items() if numbers}
            return [OffsetsDeleted(committed)] if committed else []
        case ResetOffsets():
            _check_empty(group, "offsets can be reset")
            _check_offsets(group, command.offsets)
            return [OffsetsReset(command.offsets, now)] if any(command.offsets.values()) else []


def evolve(group: Group, event: Event) -> Group:
    match event:
        case OffsetsCommitted():
            committed = msgspec.structs.replace(group, offsets=_with(group, event.offsets, event.at_ms))
            return act(committed, group.members[event.member_id]) if event.member_id else committed
        case OffsetsReset():
            rewind = group.rewinds + 1
            offsets = _with(group, event.offsets, event.at_ms, rewind)
            return msgspec.structs.replace(group, offsets=offsets, rewinds=rewind)
        case OffsetsDeleted():
            offsets = dict(group.offsets)
            for topic_id, numbers in event.partitions.items():
                of_topic = dict(offsets[topic_id])
                for number in numbers:
                    del of_topic[number]
                offsets[topic_id] = of_topic
            return msgspec.structs.replace(
                group, offsets={name: of_topic for name, of_topic in offsets.items() if of_topic}
            )


def _check_committer(group: Group, command: OffsetCommit) -> None:
    if command.generation == NO_GENERATION and not command.member_id:
        if group.members:
            raise UnknownMember(
                group.group_id,
                "",
                f"group {group.group_id!r} has members (generation {group.generation}), so a consumer that is not one "
                "cannot commit offsets to it; choose another group.id, or stop the members",
            )
        return
    member = check_member(group, command.member_id, command.instance_id)
    check_generation(group, member, command.generation)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise RebalanceInProgress(
            group.group_id,
            command.member_id,
            f"group {group.group_id!r} has not assigned the work of generation {group.generation} yet, so member "
            f"{command.member_id!r} cannot commit; wait for the assignment, and commit if that has the partitions",
        )


def _check_empty(group: Group, what: str) -> None:
    if group.members:
        raise GroupNotEmpty(
            group.group_id,
            f"group {group.group_id!r} has {len(group.members)} members (generation {group.generation}); stop them, "
            f"so that {what}",
        )


def _check_offsets(group: Group, offsets: NewOffsets) -> None:
    for topic_id, number, new in _flat(offsets):
        where = f"group {group.group_id!r}: partition {number} of topic id {topic_id!r}"
        if number < 0 or not 0 <= new.offset <= INT64_MAX:
            raise InvalidInput(f"{where} cannot continue at offset {new.offset}; both must be 0 or more")
        if not NO_EPOCH <= new.leader_epoch <= INT64_MAX:
            raise InvalidInput(f"{where} cannot have leader epoch {new.leader_epoch}; give -1 if it is unknown")
        size = len(new.metadata.encode())
        if size > group.config.offset_metadata_max_bytes:
            raise InvalidOption(
                "offset.metadata.max.bytes",
                f"{where} is committed with {size} bytes of metadata, more than "
                f"offset.metadata.max.bytes={group.config.offset_metadata_max_bytes} of the group; commit less",
            )


def _check_rewinds(group: Group, command: OffsetCommit) -> None:
    if command.rewinds >= group.rewinds:
        return
    for topic_id, number, _ in _flat(command.offsets):
        known = group.committed(topic_id, number)
        if known is not None and known.rewind > command.rewinds:
            raise RewindPending(
                group.group_id,
                f"group {group.group_id!r}: rewind {known.rewind} set partition {number} of topic id {topic_id!r} to "
                f"offset {known.offset}, and this commit knows rewinds up to {command.rewinds} (generation "
                f"{group.generation}); continue from there, and drop what was read since the last commit",
            )


def _is_committed(group: Group, topic_id: TopicId, number: int, new: Offset) -> bool:
    known = group.committed(topic_id, number)
    wanted = new.offset, new.leader_epoch, new.metadata
    return known is not None and (known.offset, known.leader_epoch, known.metadata) == wanted


def _with(group: Group, new: NewOffsets, at_ms: int, rewind: int | None = None) -> Offsets:
    offsets = dict(group.offsets)
    for topic_id, of_topic in new.items():
        if not of_topic:
            continue
        merged = dict(offsets.get(topic_id, ()))
        for number, offset in of_topic.items():
            known = merged.get(number)
            newest = rewind or (known.rewind if known else 0)
            merged[number] = CommittedOffset(offset.offset, offset.leader_epoch, offset.metadata, at_ms, newest)
        offsets[topic_id] = merged
    return offsets


def _flat(offsets: NewOffsets) -> list[tuple[TopicId, int, Offset]]:
    return [(topic_id, number, offset) for topic_id, of_topic in offsets.items() for number, offset in of_topic.items()]
