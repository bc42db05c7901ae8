"""Rolling: a range of a partition is put into other files, and one event swaps them in.

Unrolled chunks become a segment; small neighbouring segments become one. The rows and their offsets stay what
they are, so readers, writers and replayed batches never notice. The job was done by somebody who looked at an
older state: a swap whose range does not begin and end where pieces do now has gone stale and is dropped; it
never fails a batch.

One node makes the segment and the others copy it. Until every member of the ISR holds it, and these are at least
min.insync.replicas, it is staged: followers know
it and copy it, and the pieces that it replaces stay in the log. So at every moment each member of the ISR holds all
that the log consists of, and any of them may lead. With replication.mode=quorum a majority that has what is committed
must hold it, too. The LEO of a replica that is out of the ISR may go back to the
segment's base: what it lacks lies only there now.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import PendingDeletion, Topic, with_partition
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import layout
from pyspark_log_storage.ranges import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Sequence


class SwapSegments(msgspec.Struct, frozen=True):
    """Put the segment where the pieces of its range are. `based_on` is the leader epoch that the job knew."""

    partition: int
    based_on: int
    segment: SegmentRef


class SegmentsSwapped(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment replaces the pieces of its range."""

    partition: Count
    segment: SegmentRef
    at_ms: Int64


class SegmentStaged(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment is there, and replaces the pieces of its range as soon as every member of the ISR holds it."""

    partition: Count
    segment: SegmentRef


def decide(topic: Topic, swaps: Sequence[SwapSegments], now: int) -> list[SegmentsSwapped | SegmentStaged]:
    """Return the swaps that still fit, in order; the others have gone stale."""
    events: list[SegmentsSwapped | SegmentStaged] = []
    for swap in swaps:
        if not _fits(topic, swap):
            continue
        segment = msgspec.structs.replace(
            swap.segment, holders=replicas.of_current_incarnations(topic, swap.segment.holders)
        )
        event: SegmentsSwapped | SegmentStaged
        if _all_hold(topic, topic.partitions[swap.partition], segment):
            event = SegmentsSwapped(swap.partition, segment, now)
            topic = evolve(topic, event)
        elif segment.holders:
            event = SegmentStaged(swap.partition, segment)
            topic = evolve_staged(topic, event)
        else:
            continue
        events.append(event)
    return events


def decide_staged(topic: Topic, now: int) -> list[SegmentsSwapped]:
    """Return the swaps of staged segments that every member of the ISR holds by now."""
    return [
        SegmentsSwapped(number, segment, now)
        for number, partition in enumerate(topic.partitions)
        for segment in partition.staged
        if _all_hold(topic, partition, segment)
    ]


def evolve_staged(topic: Topic, event: SegmentStaged) -> Topic:
    """Return the topic with the segment waiting for the ISR to hold it."""
    partition = topic.partitions[event.partition]
    changed = msgspec.structs.replace(partition, staged=(*partition.staged, event.segment))
    return with_partition(topic, event.partition, changed)


def evolve(topic: Topic, event: SegmentsSwapped) -> Topic:
    """Return the topic with the segment in the place of what its range held."""
    partition, new = topic.partitions[event.partition], event.segment
    replaced = partition.segments_between(new.base_offset, new.end_offset)
    first = bisect_left(partition.segments, new.base_offset, key=lambda each: each.base_offset)
    before, after = partition.segments[:first], partition.segments[first + len(replaced) :]
    rolled = len(partition.chunks_between(new.base_offset, new.end_offset))
    changed = msgspec.structs.replace(
        partition,
        segments=(*before, new, *after),
        chunks=partition.chunks.drop(rolled),
        staged=tuple(each for each in partition.staged if each.name != new.name),
    )
    changed = _with_ends(topic, changed, new)
    gone = [segment_key(event.partition, each.name) for each in replaced]
    return schedule_deletion(with_partition(topic, event.partition, changed), gone, event.at_ms)


def _with_ends(topic: Topic, partition: Partition, new: SegmentRef) -> Partition:
    """Return the partition with the LEOs that follow from who holds the segment."""
    ends = dict(partition.log_end_offsets)
    for node, end in ends.items():
        if not replicas.is_held(new.holders, node):
            ends[node] = min(end, max(new.base_offset, partition.log_start))
        elif new.base_offset <= end < new.end_offset:
            ends[node] = replicas.log_end_offset(topic, partition, node, end)
    return partition if ends == partition.log_end_offsets else msgspec.structs.replace(partition, log_end_offsets=ends)


def unstage_stale(topic: Topic, number: int, at_ms: int) -> Topic:
    """Return the topic without the staged segments of a partition whose range is no longer one of whole pieces."""
    partition = topic.partitions[number]
    stale = [each for each in partition.staged if not _is_whole(partition, each)]
    if not stale:
        return topic
    changed = msgspec.structs.replace(partition, staged=tuple(each for each in partition.staged if each not in stale))
    keys = [segment_key(number, each.name) for each in stale]
    return schedule_deletion(with_partition(topic, number, changed), keys, at_ms)


def schedule_deletion(topic: Topic, keys: Sequence[str], at_ms: int) -> Topic:
    """Return the topic with files released: those given, and append files that no partition needs any more."""
    needed = min((each.chunks[0].file for each in topic.partitions if each.chunks), default=topic.next_file)
    rolled = topic.files[: needed - topic.first_file]
    released = [PendingDeletion(key, at_ms) for key in keys]
    released += [PendingDeletion(f"append/{file.name}", at_ms) for file in rolled]
    if not released:
        return topic
    return msgspec.structs.replace(
        topic, first_file=needed, files=topic.files.drop(len(rolled)), released=topic.released.append(released)
    )


def segment_key(partition: int, name: str) -> str:
    """Return a segment's key below the topic's folder, without its ending."""
    return f"{partition}/{name}"


def _fits(topic: Topic, swap: SwapSegments) -> bool:
    if not 0 <= swap.partition < len(topic.partitions):
        return False
    partition, new = topic.partitions[swap.partition], swap.segment
    if layout.born_of(new.name) < topic.orphan_floor or new.end_offset > partition.high_watermark:
        return False
    if swap.based_on != partition.leader_epoch:
        return False
    if any(each.base_offset < new.end_offset and new.base_offset < each.end_offset for each in partition.staged):
        return False  # another is on its way into this range
    there = partition.segments_between(new.base_offset, new.end_offset)
    if len(there) == 1 and there[0].end_offset == new.end_offset:
        return False  # done already, by another or by an attempt whose answer was lost
    # A range of unrolled chunks must be the first ones, for segments come before chunks.
    if new.end_offset > partition.rolled_end and new.base_offset > partition.rolled_end:
        return False
    return _is_whole(partition, new)


def _all_hold(topic: Topic, partition: Partition, segment: SegmentRef) -> bool:
    """Return whether every member of the ISR holds the segment, and these are enough.

    What it replaces may be on more nodes, for so many held it when it was acknowledged.
    """
    if len(partition.isr) < max(1, replicas.required_acks(partition, topic.config)):
        return False
    holding = [node for node in partition.replicas if replicas.is_held(segment.holders, node)]
    if not replicas.keeps_committed(partition, holding, len(partition.replicas), topic.config):
        return False
    return all(replicas.is_held(segment.holders, node) for node in partition.isr)


def _is_whole(partition: Partition, segment: SegmentRef) -> bool:
    """Return whether pieces begin and end where the segment does."""
    return _is_bound(partition, segment.base_offset, start=True) and _is_bound(
        partition, segment.end_offset, start=False
    )


def _is_bound(partition: Partition, offset: int, *, start: bool) -> bool:
    """Return whether a piece begins (or ends) exactly at `offset`."""
    span = (offset, offset + 1) if start else (offset - 1, offset)
    pieces: list[ChunkRef | SegmentRef] = [*partition.segments_between(*span), *partition.chunks_between(*span)]
    return any((piece.base_offset if start else piece.end_offset) == offset for piece in pieces)
