"""The plan of maintenance: which chunks to roll into segments, and which segments to merge.

    level 1    the oldest unrolled chunks of a partition, rolled when they are many, large or old
    level 2    `MERGE_COUNT` neighbours of level 1, merged
    level 3    `MERGE_COUNT` neighbours of level 2, merged

So each byte is rewritten at most three times, however long the log is. With segment.format=parquet a segment that will
not be merged again is written as Parquet: one of level 3, or one so large that 16 like it exceed segment.bytes. A
Parquet segment is never merged; smaller segments that one follows cannot become more, and are merged to Parquet as they
are. Segments of chunks that will not be merged again, which a topic has whose segment.format was changed, are converted
to Parquet, the oldest first; only maintenance with a budget of its own does so. A row that is too large for Parquet
keeps its segment one of chunks, of level `KEPT_LEVEL`, which nothing rewrites.

A job is bounded by a budget of bytes, so that inline maintenance does not delay a writer for long, and by the rows that
one segment can hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_config import UNLIMITED
from pyspark_log_coordinator.segments import retention
from pyspark_log_storage.index import SEGMENT_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.model.topic_state import Topic

ROLL_CHUNKS = 64
"""A partition with this many unrolled chunks is rolled."""
ROLL_FILES = 2048
"""A partition is rolled when its oldest unrolled chunk is this many append files back: the state lists these files."""
UNROLLED_CHUNKS_MAX = 4096
"""The hard cap of a partition: beyond it a writer rolls before it appends."""
ROLL_BYTES = 32 * 1024 * 1024
"""A partition with this many unrolled bytes is rolled."""
INLINE_ROLL_BYTES = 8 * 1024 * 1024
INLINE_ROLL_BYTES_MAX = 256 * 1024 * 1024
"""Bounds of an inline job. Between them it is half of the partition's unrolled bytes, so that the unrolled part does
not grow, however large the batches are."""
MERGE_COUNT = 16
LEVEL_MAX = 3
KEPT_LEVEL = LEVEL_MAX + 1
"""The level of segments after an attempt to convert them: those with a row too large for Parquet stay as they are."""
MERGE_LOOK_BACK = 128
"""Number of newest segments among which inline maintenance looks for neighbours to merge."""


class RollJob(msgspec.Struct, frozen=True):
    """Put rows `[base_offset, end_offset)` of a partition into one segment. The range is segments, then chunks."""

    partition: int
    leader_epoch: int
    level: int
    segments: tuple[SegmentRef, ...]
    chunks: tuple[ChunkRef, ...]
    epoch_starts: tuple[tuple[int, int], ...]
    parquet: bool = False
    """Whether the segment is written as Parquet."""

    @property
    def base_offset(self) -> int:
        """The first row's offset."""
        return (self.segments or self.chunks)[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last row."""
        return (self.chunks or self.segments)[-1].end_offset

    @property
    def verb(self) -> str:
        """What the job does to its rows, as a past participle."""
        if self.chunks:
            return "rolled"
        return "converted to Parquet" if self.level == KEPT_LEVEL else "merged"

    @property
    def timestamp_reached(self) -> int:
        """The largest timestamp of the partition up to the range's end (microseconds)."""
        return (self.chunks or self.segments)[-1].timestamp_reached

    @property
    def bytes(self) -> int:
        """Number of bytes that the job reads."""
        return sum(each.log_bytes for each in self.segments) + sum(each.length for each in self.chunks)


def plan(topic: Topic, now: int, budget: int | None = None) -> list[RollJob]:
    """Return the jobs due at `now` (ms), at most one for each partition, each of at most `budget` bytes.

    Without a budget the jobs are small enough for inline maintenance, and convert nothing. With one they leave out what
    has expired. A segment larger than the budget is converted alone. Partitions with the most unrolled chunks come
    first.
    """
    if budget is not None:
        topic = retention.retained(topic, now)
    jobs = []
    for number, partition in enumerate(topic.partitions):
        unrolled = sum(chunk.length for chunk in partition.chunks)
        inline = min(max(INLINE_ROLL_BYTES, unrolled // 2), INLINE_ROLL_BYTES_MAX)
        if budget is None:
            job = _job(topic, number, now, inline, MERGE_LOOK_BACK)
        else:
            job = _job(topic, number, now, budget, len(partition.segments)) or _conversion(topic, number, budget)
        if job is not None:
            jobs.append(job)
    return sorted(jobs, key=lambda job: -len(job.chunks))


def must_roll(topic: Topic) -> bool:
    """Return whether a partition has reached the hard cap and must be rolled before more is appended."""
    return any(len(partition.chunks) >= UNROLLED_CHUNKS_MAX for partition in topic.partitions)


def _job(topic: Topic, number: int, now: int, budget: int, look_back: int) -> RollJob | None:
    partition = topic.partitions[number]
    if partition.staged:
        return None  # the newest segment is still being copied
    chunks = _to_roll(topic, partition, now, budget)
    segments: tuple[SegmentRef, ...] = ()
    level = 1
    if not chunks:
        newest = partition.segments[max(0, len(partition.segments) - look_back) :]
        size_max = min(budget, topic.config.segment_bytes)
        segments = _to_merge(newest, size_max)
        if not segments and topic.config.segment_format == "parquet":
            segments = _left_between(newest, size_max)
        if not segments:
            return None
        level = max(each.level for each in segments) + 1
    job = RollJob(number, partition.leader_epoch, level, segments, chunks, partition.epoch_starts)
    return msgspec.structs.replace(job, parquet=_is_last(topic, partition, job))


def _is_last(topic: Topic, partition: Partition, job: RollJob) -> bool:
    """Return whether the job's segment will not be merged again, and is Parquet in this topic."""
    if topic.config.segment_format != "parquet":
        return False
    if _is_grown(job.level, job.bytes, topic):
        return True
    following = partition.segments_between(job.end_offset, job.end_offset + 1)
    return bool(following) and _is_kept(following[0])


def _is_grown(level: int, size: int, topic: Topic) -> bool:
    """Return whether a segment of a level and of `size` bytes is Parquet in a topic whose format that is."""
    return level >= LEVEL_MAX or size * MERGE_COUNT >= topic.config.segment_bytes


def _is_kept(segment: SegmentRef) -> bool:
    """Return whether nothing rewrites a segment any more."""
    return segment.is_parquet or segment.level >= KEPT_LEVEL


def _conversion(topic: Topic, number: int, budget: int) -> RollJob | None:
    """Return the job that converts a partition's oldest segments that will not be merged again to Parquet."""
    partition = topic.partitions[number]
    if partition.staged or topic.config.segment_format != "parquet":
        return None
    run: list[SegmentRef] = []
    size = 0
    for segment in partition.segments:
        size += segment.log_bytes
        if _is_kept(segment) or not _is_grown(segment.level, segment.log_bytes, topic):
            if run:
                break
            size = 0
            continue
        is_too_large = size > min(budget, topic.config.segment_bytes)
        if run and (is_too_large or segment.end_offset - run[0].base_offset > SEGMENT_ROWS_MAX):
            break
        run.append(segment)
    if not run:
        return None
    return RollJob(number, partition.leader_epoch, KEPT_LEVEL, tuple(run), (), partition.epoch_starts, parquet=True)


def _to_roll(topic: Topic, partition: Partition, now: int, budget: int) -> tuple[ChunkRef, ...]:
    """Return the oldest unrolled chunks below the HW if it is time to roll them."""
    chunks = partition.chunks
    if not chunks or not _is_time_to_roll(topic, partition, now):
        return ()
    taken: list[ChunkRef] = []
    size = 0
    end_max = min(partition.high_watermark, chunks[0].base_offset + SEGMENT_ROWS_MAX)
    for chunk in chunks:
        size += chunk.length
        if chunk.end_offset > end_max or (taken and size > min(budget, topic.config.segment_bytes)):
            break
        taken.append(chunk)
    return tuple(taken)


def _is_time_to_roll(topic: Topic, partition: Partition, now: int) -> bool:
    chunks, config = partition.chunks, topic.config
    oldest = chunks[0]
    if len(chunks) >= ROLL_CHUNKS or topic.next_file - oldest.file >= ROLL_FILES:
        return True
    if partition.log_end - oldest.base_offset >= config.flush_messages:
        return True
    # Rows can expire only after they are rolled.
    age_max = min(config.segment_ms, config.flush_ms)
    if config.retention_ms != UNLIMITED:
        age_max = min(age_max, config.retention_ms)
    if now - topic.file(oldest.file).sequenced_ms >= age_max:
        return True
    return sum(chunk.length for chunk in chunks) >= min(ROLL_BYTES, config.segment_bytes)


def _left_between(segments: Sequence[SegmentRef], size_max: int) -> tuple[SegmentRef, ...]:
    """Return the oldest neighbours below the last level that one follows which is kept, as many as fit."""
    run: list[SegmentRef] = []
    for segment in segments:
        if _is_kept(segment) and run:
            return tuple(run)
        if segment.is_parquet or segment.level >= LEVEL_MAX or segment.log_bytes > size_max:
            run = []
            continue
        run.append(segment)
        while (
            sum(each.log_bytes for each in run) > size_max or run[-1].end_offset - run[0].base_offset > SEGMENT_ROWS_MAX
        ):
            del run[0]
    return ()


def _to_merge(segments: Sequence[SegmentRef], size_max: int) -> tuple[SegmentRef, ...]:
    """Return the oldest `MERGE_COUNT` neighbours of one level that fit into `size_max` bytes and one segment."""
    first = size = 0
    for last, segment in enumerate(segments):
        is_final = segment.level >= LEVEL_MAX or segment.is_parquet
        if segment.level != segments[first].level or segments[first].is_parquet or is_final:
            first, size = last, 0
        if not is_final:
            size += segment.log_bytes
        if last + 1 - first == MERGE_COUNT and not is_final:
            if size <= size_max and segment.end_offset - segments[first].base_offset <= SEGMENT_ROWS_MAX:
                return tuple(segments[first : last + 1])
            size -= segments[first].log_bytes
            first += 1
    return ()
