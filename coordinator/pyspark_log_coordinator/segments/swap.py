"""Swapping: one event puts a new segment in the place of the chunks or segments of its range.

The rows keep their offsets, so readers, writers and replayed batches are not affected. The job that made the segment
knew an older state. A swap is stale if its range no longer begins and ends at the bounds of chunks or segments, or is
that of a Parquet segment or of one of the same level; it is ignored, and never fails a batch. A keyed segment, which
compaction made and which has only some of the rows, must also be made of what is in its range; a partition counts how
often one was swapped in.

The segment is staged until every member of the ISR holds it, and the ISR has at least min.insync.replicas members.
Followers copy it meanwhile, and what it replaces stays in the log. One is dropped if no replica holds it any more, if
no whole copy of it is found, and, if it is keyed, when the topic is not compacted any more. So each member of the ISR
always holds the whole log and may lead.
With replication.mode=quorum, a majority that has all committed rows must hold the segment, too. The LEO of a replica
outside the ISR may go back to the segment's base offset.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Keyed, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import PendingDeletion, Topic, with_partition
from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import layout
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Sequence


class SwapSegments(msgspec.Struct, frozen=True):
    """Put the segment in the place of its range. `based_on` is the leader epoch that the job knew."""

    partition: int
    based_on: int
    segment: SegmentRef
    replaces: tuple[str, ...] = ()
    """Of a keyed segment: the names of the segments that it was made of."""
    version_column: str = ""
    """Of a keyed segment: the topic's compaction.version.column, by which its rows were compared."""
    log_start: int = 0
    """Of a keyed segment: the partition's log start then. A fold compared its rows with those from there on."""


class SegmentsSwapped(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment has replaced the chunks and segments of its range."""

    partition: Count
    segment: SegmentRef
    at_ms: Int64


class SegmentStaged(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment exists, and will be swapped in when every member of the ISR holds it."""

    partition: Count
    segment: SegmentRef


class DropStaged(msgspec.Struct, frozen=True):
    """Give up a staged segment of which no whole copy is left. Nothing is lost: its rows are in the log as before."""

    partition: int
    name: str


class StagedDropped(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The segment is not staged any more."""

    partition: Count
    name: str


def decide(topic: Topic, swaps: Sequence[SwapSegments], now: int) -> list[SegmentsSwapped | SegmentStaged]:
    """Return the events of those swaps that are not stale, in order."""
    events: list[SegmentsSwapped | SegmentStaged] = []
    for swap in swaps:
        if not _fits(topic, swap):
            continue
        segment = msgspec.structs.replace(
            swap.segment, holders=replicas.of_current_incarnations(topic, swap.segment.holders)
        )
        event: SegmentsSwapped | SegmentStaged
        if _all_hold(topic, topic.partitions[swap.partition], segment):
            event = _swapped(topic, swap.partition, segment, now)
            topic = evolve(topic, event)
        elif any(replicas.is_held(segment.holders, node) for node in topic.partitions[swap.partition].replicas):
            event = SegmentStaged(swap.partition, segment)
            topic = evolve_staged(topic, event)
        else:
            continue
        events.append(event)
    return events


def decide_drop(topic: Topic, command: DropStaged) -> list[StagedDropped]:
    """Return the event that the segment is given up, none if it is not staged."""
    if not 0 <= command.partition < len(topic.partitions):
        return []
    is_staged = any(each.name == command.name for each in topic.partitions[command.partition].staged)
    return [StagedDropped(command.partition, command.name)] if is_staged else []


def evolve_drop(topic: Topic, event: StagedDropped) -> Topic:
    """Return the topic without the staged segment."""
    partition = topic.partitions[event.partition]
    kept = tuple(each for each in partition.staged if each.name != event.name)
    return with_partition(topic, event.partition, msgspec.structs.replace(partition, staged=kept))


def decide_staged(topic: Topic, now: int) -> list[SegmentsSwapped]:
    """Return the swaps of the staged segments that every member of the ISR now holds."""
    events = []
    for number, partition in enumerate(topic.partitions):
        for segment in partition.staged:
            if _all_hold(topic, topic.partitions[number], segment):
                events.append(_swapped(topic, number, segment, now))
                topic = evolve(topic, events[-1])  # replicas that lack this one lag from now on
    return events


def _swapped(topic: Topic, number: int, segment: SegmentRef, now: int) -> SegmentsSwapped:
    """Return the event that swaps a segment in. The rows of a fold count as compacted now, not when it was planned."""
    keyed = segment.keyed
    if keyed is not None and _is_fold(topic.partitions[number], segment):
        keyed = msgspec.structs.replace(keyed, cleaned_ms=max(keyed.cleaned_ms, now))
        segment = msgspec.structs.replace(segment, keyed=keyed)
    return SegmentsSwapped(number, segment, now)


def evolve_staged(topic: Topic, event: SegmentStaged) -> Topic:
    """Return the topic with the segment staged."""
    partition = topic.partitions[event.partition]
    changed = msgspec.structs.replace(partition, staged=(*partition.staged, event.segment))
    return with_partition(topic, event.partition, changed)


def evolve(topic: Topic, event: SegmentsSwapped) -> Topic:
    """Return the topic with the segment in the place of its range."""
    partition, new = topic.partitions[event.partition], event.segment
    replaced = partition.segments_between(new.base_offset, new.end_offset)
    first = bisect_left(partition.segments, new.base_offset, key=lambda each: each.base_offset)
    before, after = partition.segments[:first], partition.segments[first + len(replaced) :]
    rolled = len(partition.chunks_between(new.base_offset, new.end_offset))
    if new.keyed is not None:
        before = _superseded(before, new.keyed)
        new = msgspec.structs.replace(new, keyed=msgspec.structs.replace(new.keyed, supersedes=()))
    changed = msgspec.structs.replace(
        partition,
        segments=(*before, new, *after),
        chunks=partition.chunks[rolled:],
        staged=tuple(each for each in partition.staged if each.name != new.name),
        compactions=partition.compactions + (new.keyed is not None),
    )
    changed = _with_ends(topic, changed, new)
    gone = [segment_key(event.partition, each.name) for each in replaced]
    return schedule_deletion(with_partition(topic, event.partition, changed), gone, event.at_ms)


def _superseded(segments: tuple[SegmentRef, ...], by: Keyed) -> tuple[SegmentRef, ...]:
    """Return keyed segments with the rows counted that a later one supersedes."""
    counts = dict(by.supersedes)

    def counted(segment: SegmentRef) -> SegmentRef:
        keyed, more = segment.keyed, counts.get(segment.name, 0)
        if keyed is None or not more:
            return segment
        superseded = min(keyed.rows, keyed.superseded + more)
        return msgspec.structs.replace(segment, keyed=msgspec.structs.replace(keyed, superseded=superseded))

    return tuple(map(counted, segments))


def _with_ends(topic: Topic, partition: Partition, new: SegmentRef) -> Partition:
    """Return the partition with the LEOs that follow from the holders of the segment."""
    ends = dict(partition.log_end_offsets)
    for node, end in ends.items():
        if not replicas.is_held(new.holders, node):
            ends[node] = min(end, max(new.base_offset, partition.log_start))
        elif new.base_offset <= end < new.end_offset:
            ends[node] = replicas.log_end_offset(topic, partition, node, end)
    return partition if ends == partition.log_end_offsets else msgspec.structs.replace(partition, log_end_offsets=ends)


def unstage_stale(topic: Topic, number: int, at_ms: int) -> Topic:
    """Return the topic without the staged segments that have become stale because a partition's log start moved.

    A fold that compared versions may have left out rows for newer ones that were deleted now; its files are orphans.
    """
    partition, has_versions = topic.partitions[number], bool(topic.config.compaction_version_column)
    stale = [each for each in partition.staged if not _is_whole(partition, each)]
    kept = tuple(
        each for each in partition.staged if each not in stale and not (has_versions and _is_fold(partition, each))
    )
    if kept == partition.staged:
        return topic
    changed = msgspec.structs.replace(partition, staged=kept)
    keys = [segment_key(number, each.name) for each in stale]
    return schedule_deletion(with_partition(topic, number, changed), keys, at_ms)


def _is_fold(partition: Partition, segment: SegmentRef) -> bool:
    present = partition.segments_between(segment.base_offset, segment.end_offset)
    return segment.keyed is not None and not any(each.keyed for each in present)


def without_staged_compactions(topic: Topic) -> Topic:
    """Return the topic without staged keyed segments if it is not compacted any more; their files are orphans."""
    if topic.config.is_compacted:
        return topic
    for number, partition in enumerate(topic.partitions):
        kept = tuple(each for each in partition.staged if each.keyed is None)
        if kept != partition.staged:
            topic = with_partition(topic, number, msgspec.structs.replace(partition, staged=kept))
    return topic


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


def segment_key(partition: int, name: str) -> str:
    """Return a segment's key below the topic's folder, without the ending."""
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
        return False  # another segment is staged for this range
    present = partition.segments_between(new.base_offset, new.end_offset)
    if new.keyed is not None:
        return _fits_keyed(topic, partition, swap, present)
    if any(each.keyed is not None for each in present):
        return False
    is_one = len(present) == 1 and present[0].end_offset == new.end_offset
    if is_one and (present[0].is_parquet or present[0].level >= new.level):
        return False  # already done, by another process or by an attempt whose answer was lost
    # Chunks are rolled in order, because segments come before chunks.
    if new.end_offset > partition.rolled_end and new.base_offset > partition.rolled_end:
        return False
    return _is_whole(partition, new)


def _fits_keyed(topic: Topic, partition: Partition, swap: SwapSegments, present: tuple[SegmentRef, ...]) -> bool:
    """Return whether a keyed segment is made of what is in its range: the oldest dense rows, or keyed segments.

    So no row is folded twice or left out, and what a suspended process made of an older state is refused, or made with
    another version column. A fold that compared versions is also refused if rows were deleted since: those that it left
    out for them are the newest now.
    """
    keyed = partition.keyed_segments
    is_merge = bool(present) and present[0].keyed is not None
    if is_merge:
        fits = swap.segment.end_offset <= keyed[-1].end_offset
    else:
        oldest = next(partition.pieces_from(keyed[-1].end_offset if keyed else partition.log_start), None)
        fits = oldest is not None and oldest.base_offset == swap.segment.base_offset
        fits = fits and (not swap.version_column or partition.log_start == swap.log_start)
    return (
        fits
        and topic.config.is_compacted
        and topic.config.compaction_version_column == swap.version_column
        and tuple(each.name for each in present) == swap.replaces
        and _is_whole(partition, swap.segment)
    )


def _all_hold(topic: Topic, partition: Partition, segment: SegmentRef) -> bool:
    """Return whether every member of the ISR holds the segment, and the ISR is large enough for acknowledged rows."""
    if len(partition.isr) < max(1, replicas.required_acks(partition, topic.config)):
        return False
    holding = [node for node in partition.replicas if replicas.is_held(segment.holders, node)]
    if not replicas.keeps_committed(partition, holding, len(partition.replicas), topic.config):
        return False
    return all(replicas.is_held(segment.holders, node) for node in partition.isr)


def _is_whole(partition: Partition, segment: SegmentRef) -> bool:
    """Return whether the segment begins and ends at bounds of chunks or segments."""
    return _is_bound(partition, segment.base_offset, start=True) and _is_bound(
        partition, segment.end_offset, start=False
    )


def _is_bound(partition: Partition, offset: int, *, start: bool) -> bool:
    """Return whether a chunk or segment begins (or ends) exactly at `offset`."""
    pieces = partition.pieces_between(offset, offset + 1) if start else partition.pieces_between(offset - 1, offset)
    return any((piece.base_offset if start else piece.end_offset) == offset for piece in pieces)
