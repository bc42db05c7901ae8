"""Rolling: a range of a partition is put into other files, and one event swaps them in.

Unrolled chunks become a segment; small neighbouring segments become one. The rows and their offsets stay what
they are, so readers, writers and replayed batches never notice. The job was done by somebody who looked at an
older state: a swap whose range does not begin and end where pieces do now has gone stale and is dropped; it
never fails a batch.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.partition import ChunkRef, Partition, SegmentRef
from pyspark_log_coordinator.topic_state import Released, Topic
from pyspark_log_storage import layout

if TYPE_CHECKING:
    from collections.abc import Sequence


class SwapSegments(msgspec.Struct, frozen=True):
    """Put the segment where the pieces of its range are. `based_on` is the leader epoch that the job knew."""

    partition: int
    based_on: int
    segment: SegmentRef


class SegmentsSwapped(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment replaces the pieces of its range."""

    partition: int
    segment: SegmentRef
    at_ms: int


def decide(topic: Topic, swaps: Sequence[SwapSegments], now: int) -> list[SegmentsSwapped]:
    """Return the swaps that still fit, in order; the others have gone stale."""
    events = []
    for swap in swaps:
        event = SegmentsSwapped(swap.partition, swap.segment, now)
        if _fits(topic, swap):
            events.append(event)
            topic = evolve(topic, event)
    return events


def evolve(topic: Topic, event: SegmentsSwapped) -> Topic:
    """Return the topic with the segment in the place of what its range held."""
    partition, new = topic.partitions[event.partition], event.segment
    replaced = partition.segments_between(new.base_offset, new.end_offset)
    first = bisect_left(partition.segments, new.base_offset, key=lambda each: each.base_offset)
    before, after = partition.segments[:first], partition.segments[first + len(replaced) :]
    rolled = len(partition.chunks_between(new.base_offset, new.end_offset))
    changed = msgspec.structs.replace(partition, segments=(*before, new, *after), chunks=partition.chunks.drop(rolled))
    partitions = (*topic.partitions[: event.partition], changed, *topic.partitions[event.partition + 1 :])
    gone = [segment_key(event.partition, each.name) for each in replaced]
    return release(msgspec.structs.replace(topic, partitions=partitions), gone, event.at_ms)


def release(topic: Topic, keys: Sequence[str], at_ms: int) -> Topic:
    """Return the topic with files released: those given, and append files that no partition needs any more."""
    needed = min((each.chunks[0].file for each in topic.partitions if each.chunks), default=topic.next_file)
    rolled = topic.files[: needed - topic.first_file]
    released = [Released(key, at_ms) for key in keys]
    released += [Released(f"append/{file.name}", at_ms) for file in rolled]
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
    there = partition.segments_between(new.base_offset, new.end_offset)
    if len(there) == 1 and there[0].end_offset == new.end_offset:
        return False  # done already, by another or by an attempt whose answer was lost
    # A range of unrolled chunks must be the first ones, for segments come before chunks.
    if new.end_offset > partition.rolled_end and new.base_offset > partition.rolled_end:
        return False
    return _is_bound(partition, new.base_offset, start=True) and _is_bound(partition, new.end_offset, start=False)


def _is_bound(partition: Partition, offset: int, *, start: bool) -> bool:
    """Return whether a piece begins (or ends) exactly at `offset`."""
    span = (offset, offset + 1) if start else (offset - 1, offset)
    pieces: list[ChunkRef | SegmentRef] = [*partition.segments_between(*span), *partition.chunks_between(*span)]
    return any((piece.base_offset if start else piece.end_offset) == offset for piece in pieces)
