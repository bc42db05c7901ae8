"""Swapping: one event puts a new segment in the place of the chunks or segments of its range.

The rows keep their offsets, so readers, writers and replayed batches are not affected. The job that made the segment
knew an older state. A swap is stale if its range no longer begins and ends at the bounds of chunks or segments, or is
that of a segment of the same level; it is ignored, and never fails a batch.

A compaction makes several segments, which have only some of the rows of their ranges, and are swapped in together, by
the events of one entry. It must be made of the segments that are there: a partition's head and what follows it. A
partition counts how often such a segment was swapped in.

A swap is also ignored unless every member of the ISR holds the segment, and the ISR has at least min.insync.replicas
members: who proposes it has copied it to them. So each member of the ISR always holds the whole log and may lead. With
replication.mode=quorum, a majority that has all committed rows must hold the segment, too. The LEO of a replica outside
the ISR may go back to the segment's base offset. The files of a segment that was ignored are orphans.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import PendingDeletion, Topic, TopicCommand, with_partition
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import layout
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_config import TopicConfig


class SwapSegments(msgspec.Struct, frozen=True):
    """Put the segments in the place of their ranges. `based_on` is the leader epoch that the job knew."""

    partition: int
    based_on: int
    segments: tuple[SegmentRef, ...]
    """In the order of their offsets; only a compaction makes more than one."""
    replaces: tuple[str, ...] = ()
    """Of a compaction: the names of all segments that it has read, also of those that stay as they are."""


class MaintainSegments(TopicCommand, frozen=True):
    """Swap in segments without a batch."""

    swaps: tuple[SwapSegments, ...]


class SegmentsSwapped(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment has replaced the chunks and segments of its range."""

    partition: Count
    segment: SegmentRef
    at_ms: Int64


def decide(topic: Topic, swaps: Sequence[SwapSegments], now: int) -> list[SegmentsSwapped]:
    """Return the events of those swaps that are not stale, and whose segments the whole ISR holds, in order."""
    events: list[SegmentsSwapped] = []
    for swap in swaps:
        if not _fits(topic, swap):
            continue
        number, partition = swap.partition, topic.partitions[swap.partition]
        segments = [
            msgspec.structs.replace(each, holders=replicas.of_current_incarnations(topic, each.holders))
            for each in swap.segments
        ]
        if _all_hold(topic, partition, segments):
            done = [_swapped(partition, number, each, now) for each in segments]
            topic = functools.reduce(evolve, done, topic)  # replicas that lack one lag from now on
            events += done
    return events


def takes_segments(partition: Partition, config: TopicConfig, away: Collection[NodeId] = ()) -> bool:
    """Return whether a new segment could be swapped in now, if the nodes that are `away` cannot get it."""
    enough = max(1, replicas.required_acks(partition, config))
    return len(partition.isr) >= enough and not set(partition.isr).intersection(away)


def _swapped(partition: Partition, number: int, segment: SegmentRef, now: int) -> SegmentsSwapped:
    """Return the event that swaps a segment in.

    Rows that had not been compacted count as compacted now, not when that was planned.
    """
    if segment.keyed is not None and segment.end_offset > partition.compacted_end:
        segment = msgspec.structs.replace(segment, cleaned_ms=max(segment.cleaned_ms, now))
    return SegmentsSwapped(number, segment, now)


def evolve(topic: Topic, event: SegmentsSwapped) -> Topic:
    """Return the topic with the segment in the place of its range."""
    partition, new = topic.partitions[event.partition], event.segment
    replaced = partition.segments_between(new.base_offset, new.end_offset)
    first = bisect_left(partition.segments, new.base_offset, key=lambda each: each.base_offset)
    before, after = partition.segments[:first], partition.segments[first + len(replaced) :]
    rolled = len(partition.chunks_between(new.base_offset, new.end_offset))
    changed = msgspec.structs.replace(
        partition,
        segments=(*before, new, *after),
        chunks=partition.chunks[rolled:],
        compactions=partition.compactions + (new.keyed is not None),
    )
    changed = _with_ends(topic, changed, new)
    gone = [f"{event.partition}/{each.name}" for each in replaced]
    return schedule_deletion(with_partition(topic, event.partition, changed), gone, event.at_ms)


def _with_ends(topic: Topic, partition: Partition, new: SegmentRef) -> Partition:
    """Return the partition with the LEOs that follow from the holders of the segment."""
    ends = dict(partition.log_end_offsets)
    for node, end in ends.items():
        if not replicas.is_held(new.holders, node):
            ends[node] = min(end, max(new.base_offset, partition.log_start))
        elif new.base_offset <= end < new.end_offset:
            ends[node] = replicas.log_end_offset(topic, partition, node, end)
    return partition if ends == partition.log_end_offsets else msgspec.structs.replace(partition, log_end_offsets=ends)


def schedule_deletion(topic: Topic, keys: Sequence[str], at_ms: int) -> Topic:
    """Return the topic with `keys` and the append files that are rolled in all partitions scheduled for deletion."""
    needed = min((each.chunks[0].file for each in topic.partitions if each.chunks), default=topic.next_file)
    rolled = topic.files[: needed - topic.first_file]
    pending = tuple(PendingDeletion(key, at_ms) for key in (*keys, *(f"append/{file.name}" for file in rolled)))
    if not pending:
        return topic
    return msgspec.structs.replace(
        topic,
        first_file=needed,
        files=topic.files[len(rolled) :],
        pending_deletions=(*topic.pending_deletions, *pending),
    )


def _fits(topic: Topic, swap: SwapSegments) -> bool:
    if not 0 <= swap.partition < len(topic.partitions):
        return False
    partition, new = topic.partitions[swap.partition], swap.segments[0]
    if any(
        layout.born_of(each.name) < topic.orphan_floor or each.end_offset > partition.high_watermark
        for each in swap.segments
    ):
        return False
    if swap.based_on != partition.leader_epoch:
        return False
    begin, end = new.base_offset, swap.segments[-1].end_offset
    if new.keyed is not None:
        return _fits_keyed(topic, partition, swap)
    present = partition.segments_between(begin, end)
    if any(each.keyed is not None for each in present):
        return False
    is_one = len(present) == 1 and present[0].end_offset == new.end_offset
    if is_one and present[0].level >= new.level:
        return False  # already done, by another process or by an attempt whose answer was lost
    # Chunks are rolled in order, because segments come before chunks.
    if new.end_offset > partition.rolled_end and new.base_offset > partition.rolled_end:
        return False
    return _is_whole(partition, new)


def _fits_keyed(topic: Topic, partition: Partition, swap: SwapSegments) -> bool:
    """Return whether a compaction has read what is there: neighbours in the head, or all of it and what follows it.

    So no row is compacted twice or left out, and what a suspended process made of an older state is refused.
    """
    end = swap.segments[-1].end_offset
    is_cleaning = end > partition.compacted_end
    read = partition.segments_between(partition.log_start if is_cleaning else swap.segments[0].base_offset, end)
    return (
        topic.config.is_compacted
        and tuple(each.name for each in read) == swap.replaces
        and all(_is_whole(partition, each) for each in swap.segments)
        and all(before.end_offset <= after.base_offset for before, after in itertools.pairwise(swap.segments))
        and swap.segments[-1].base_offset <= partition.compacted_end
    )


def _all_hold(topic: Topic, partition: Partition, segments: Sequence[SegmentRef]) -> bool:
    """Return whether every member of the ISR holds all segments, and the ISR is large enough for acknowledged rows."""
    if not takes_segments(partition, topic.config):
        return False
    holding = [node for node in partition.replicas if all(replicas.is_held(each.holders, node) for each in segments)]
    if not replicas.keeps_committed(partition, holding, len(partition.replicas), topic.config):
        return False
    return set(partition.isr) <= set(holding)


def _is_whole(partition: Partition, segment: SegmentRef) -> bool:
    """Return whether the segment begins and ends at bounds of chunks or segments."""
    begin, end = segment.base_offset, segment.end_offset
    pieces = partition.pieces_between(begin, end)
    return bool(pieces) and (pieces[0].base_offset, pieces[-1].end_offset) == (begin, end)
