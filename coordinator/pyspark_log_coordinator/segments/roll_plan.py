"""The plan of maintenance: which chunks to roll into segments, and which segments to merge.

    a roll     the oldest unrolled chunks of a partition, when they are many, large or old, become a segment of level 1
    a merge    neighbouring segments become one, whose level is one above the highest of theirs

So the level says how often a row was rewritten, and is the tier by which segments are merged (`tiers`): 16 of a level,
and several that one of a higher level follows. Nothing rewrites a segment that is *done*: of level `LEVEL_MAX`, or so
large that 16 like it exceed segment.bytes. So each row is rewritten at most four times, however long the log is, and a
partition has a few dozen small segments.

With segment.format=parquet merged segments are Parquet, and so are rolled ones that are done. Such a topic is also a
table, which must not lag behind the log. So all that follows the Parquet segments of a partition, its tail, is written
as one Parquet segment when its oldest row was written parquet.max.lag.ms ago. A segment of chunks that is done stays
one, whatever the format becomes: a row may be too large for Parquet, or the topic's format was another one.

A compacted topic begins with keyed segments, which have rules of their own (`compaction_plan`).

A job is bounded by a budget of bytes, so that inline maintenance does not delay a writer for long, and by the rows that
one segment can hold.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log_coordinator.model.partition import BEFORE_ALL_TIMES, ChunkRef, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_config import UNLIMITED
from pyspark_log_coordinator.model.topic_state import changed_partitions
from pyspark_log_coordinator.segments import compaction_plan, retention, swap, tiers
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX
from pyspark_log_storage.stored_fields import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.segments.compaction_plan import Compaction

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
LEVEL_MAX = 4
"""Segments of this level are not rewritten, however small they are."""
INLINE_LAG_MS = 3_600_000
"""Writers make Parquet in passing of rows that are at least so old, and compact them: maintenance may do it sooner, and
better."""
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
    since_ms: int = 0
    """When the first row was written, see `SegmentRef`."""
    until_ms: int = 0
    """When the last row was."""
    compaction: Compaction | None = None
    """Of a job that makes segments of a partition's head."""

    @property
    def base_offset(self) -> int:
        return (self.segments or self.chunks)[0].base_offset

    @property
    def end_offset(self) -> int:
        return (self.chunks or self.segments)[-1].end_offset

    @property
    def verb(self) -> str:
        """What the job does to its rows, as a past participle."""
        if self.compaction is not None:
            return "compacted"
        if self.chunks:
            return "rolled"
        return "written as Parquet" if len(self.segments) == 1 else "merged"

    @property
    def timestamp_reached(self) -> int:
        """The largest timestamp of the partition up to the range's end (microseconds)."""
        return (self.chunks or self.segments)[-1].timestamp_reached

    @property
    def bytes(self) -> int:
        """Number of bytes that the job reads."""
        return sum(each.log_bytes for each in self.segments) + sum(each.length for each in self.chunks)

    def is_in(self, planned: Sequence[RollJob]) -> bool:
        """Return whether one of the jobs does this, too, of the same files, whenever it was planned.

        It may have more rows, which were written meanwhile.
        """
        kind = self.partition, self.leader_epoch, self.level, self.parquet
        return any(
            (each.partition, each.leader_epoch, each.level, each.parquet) == kind
            and _begins_with(each.segments + each.chunks, self.segments + self.chunks)
            for each in planned
        )


def _begins_with(whole: tuple[object, ...], part: tuple[object, ...]) -> bool:
    return whole[: len(part)] == part


def plan(
    topic: Topic,
    now: int,
    budget: int | None = None,
    at_once: Sequence[int] = (),
    known: DueTimes | None = None,
    away: Collection[NodeId] = (),
) -> list[RollJob]:
    """Return the jobs due at `now` (ms), at most one for each partition, each of at most `budget` bytes.

    Without a budget the jobs are small enough for inline maintenance. With one they leave out what has expired, unless
    the topic is compacted. Partitions with the most unrolled chunks come first. Rows below the offsets in `at_once`,
    one of each partition, become Parquet whatever their age, and of a compacted topic they are cleaned whatever their
    share. `known`: what an earlier look has found. Partitions with a node in the ISR that is `away` wait, as do those
    with too small an ISR.
    """
    if budget is not None and not topic.config.is_compacted:  # cleaning reads the whole head, also what has expired
        topic = retention.retained(topic, now)
    jobs = []
    due_now = (known or DueTimes()).due(topic, now) if budget is None else enumerate(topic.partitions)
    for number, partition in due_now:
        if not swap.takes_segments(partition, topic.config, away):
            continue
        if budget is None:
            job = _inline(topic, number, now)
        else:
            limits = _Limits(budget, budget, len(partition.segments))
            job = _first_due(topic, number, now, limits, at_once[number] if number < len(at_once) else 0)
        if job is not None:
            jobs.append(job)
    return sorted(jobs, key=lambda job: -len(job.chunks))


class _Limits(NamedTuple):
    bytes: int
    tail_bytes: int
    """The same of a job that makes Parquet of a tail."""
    look_back: int
    """Among how many of the newest segments neighbours to merge are looked for."""
    lag_ms: int | None = None
    """Of inline jobs: how old rows must be at least before they are compacted or become Parquet."""


def _inline_limits(partition: Partition, config: TopicConfig) -> _Limits:
    unrolled = sum(chunk.length for chunk in partition.chunks)
    size = min(max(INLINE_ROLL_BYTES, unrolled // 2), INLINE_ROLL_BYTES_MAX)
    return _Limits(size, config.segment_bytes // tiers.MERGE_COUNT, MERGE_LOOK_BACK, INLINE_LAG_MS)


def _inline(topic: Topic, number: int, now: int) -> RollJob | None:
    partition = topic.partitions[number]
    limits = _inline_limits(partition, topic.config)
    if len(partition.chunks) >= UNROLLED_CHUNKS_MAX:  # also where compaction fails: a roll reads only these chunks
        return _roll(topic, number, now, limits)
    return _first_due(topic, number, now, limits, 0)


def _first_due(topic: Topic, number: int, now: int, limits: _Limits, at_once: int) -> RollJob | None:
    work = compaction_plan.due(topic, topic.partitions[number], now, limits.bytes, limits.lag_ms, at_once)
    if work is not None:
        return compaction_job(topic, number, work, now)
    return (
        _tail(topic, number, now, limits, at_once) or _roll(topic, number, now, limits) or _merge(topic, number, limits)
    )


def will_stay(segment: SegmentRef, config: TopicConfig) -> bool:
    """Return whether a segment will not be rewritten: its file is there until its rows expire."""
    return segment.keyed is None and not config.is_compacted and _is_done(segment, config)


def table_end(partition: Partition, config: TopicConfig) -> int:
    """Return the offset up to which the Delta table is that of the partition, from the partition's first row on.

    It has the rows in Parquet segments; of a compacted topic it is the state as of the compacted end.
    """
    if config.is_compacted:
        return partition.compacted_end
    end = partition.log_start
    for segment in partition.segments:
        if not segment.is_parquet:
            break
        end = segment.end_offset
    return end


def past_the_cap(topic: Topic) -> list[int]:
    """Return the partitions that have reached the hard cap: they must be rolled before more is appended."""
    return [number for number, each in enumerate(topic.partitions) if len(each.chunks) >= UNROLLED_CHUNKS_MAX]


class DueTimes:
    """When inline maintenance may have something to do in each partition of a topic, as one process has found it.

    It is found again for partitions that have changed: of 10,000 it would take a commit 100 ms to look at all.
    """

    def __init__(self) -> None:
        self._topic: Topic | None = None
        self._due: list[_Due] = []

    def due(self, topic: Topic, now: int) -> Iterator[tuple[int, Partition]]:
        """Yield the partitions, with their numbers, for which something may be due at `now` (ms)."""
        known = self._topic
        if known is None or known.config is not topic.config or len(topic.partitions) < len(self._due):
            changed: Iterable[int] = range(len(topic.partitions))
            self._due = []
        else:
            changed = changed_partitions(known.partitions, topic.partitions)
        self._due += [_NEVER] * (len(topic.partitions) - len(self._due))
        for number in changed:
            self._due[number] = _due(topic.partitions[number], topic.config, topic)
        self._topic, files = topic, topic.next_file
        for number, (time, next_file) in enumerate(self._due):
            if time <= now or next_file <= files:
                yield number, topic.partitions[number]


class _Due(NamedTuple):
    """When something is to be done: from a time (ms) on, and from a number of the topic's next file on."""

    time: int
    next_file: int


_AT_ONCE, _NEVER = _Due(BEFORE_ALL_TIMES, 0), _Due(INT64_MAX, INT64_MAX)


def _due(partition: Partition, config: TopicConfig, topic: Topic) -> _Due:
    """Return when inline maintenance may have something to do. When a file was sequenced does not change."""
    limits = _inline_limits(partition, config)
    if compaction_plan.due(topic, partition, INT64_MAX, limits.bytes, limits.lag_ms):
        return _AT_ONCE  # perhaps: what is too young for it does not wait long
    if _to_merge(partition, config, limits):
        return _AT_ONCE
    rolled = _roll_due(topic, partition)
    return _Due(min(rolled.time, _tail_due(topic, partition, INLINE_LAG_MS)), rolled.next_file)


def compaction_job(topic: Topic, number: int, work: compaction_plan.Work, now: int) -> RollJob:
    """Return the job of a partition that does some work of compaction."""
    job = _job(topic, number, work[0], parquet=True)
    needs = compaction_plan.compaction_of(topic, topic.partitions[number], work, now)
    return msgspec.structs.replace(job, compaction=needs)


def _roll(topic: Topic, number: int, now: int, limits: _Limits) -> RollJob | None:
    """Return the job that rolls the oldest unrolled chunks below the HW, if it is time to."""
    partition, config = topic.partitions[number], topic.config
    due, mark = _roll_due(topic, partition), partition.high_watermark
    if due.time > now and due.next_file > topic.next_file:
        return None
    below = itertools.takewhile(lambda chunk: chunk.end_offset <= mark, partition.chunks)
    chunks = tiers.fitting(below, min(limits.bytes, config.segment_bytes))
    is_parquet = config.segment_format == "parquet" and _is_large(sum(each.length for each in chunks), config)
    return _job(topic, number, chunks, parquet=is_parquet) if chunks else None


def _merge(topic: Topic, number: int, limits: _Limits) -> RollJob | None:
    found = _to_merge(topic.partitions[number], topic.config, limits)
    return _job(topic, number, found, parquet=topic.config.segment_format == "parquet") if found else None


def _to_merge(partition: Partition, config: TopicConfig, limits: _Limits) -> tuple[SegmentRef, ...]:
    """Return the oldest neighbours of the lowest level to merge, of the newest segments.

    Those that do not fit into the limits are left out; of those that are more than a segment, as many as fit are taken.
    One of chunks alone is taken, too, if it is to be Parquet and something follows that is not of the tail.
    """
    segments = partition.segments
    first = max(len(partition.keyed_segments), len(segments) - limits.look_back)
    size_max = min(limits.bytes, config.segment_bytes)
    levels = [tiers.TIER_MAX if _is_done(each, config) else each.level for each in segments[first:]]
    for start, end in tiers.joined(levels):
        taken = tiers.fitting(segments[first + start : first + end], size_max)
        if len(taken) > 1 and (len(taken) == end - start or _is_large(sum(each.length for each in taken), config)):
            return taken
    if config.segment_format == "parquet":
        before_tail = segments[first : len(segments) - len(_tail_segments(partition, config))]
        fit = (each for each in before_tail if _is_small_log(each, config) and each.length <= size_max)
        return tuple(itertools.islice(fit, 1))
    return ()


def _job(topic: Topic, number: int, pieces: Sequence[SegmentRef | ChunkRef], *, parquet: bool) -> RollJob:
    partition = topic.partitions[number]
    segments = tuple(each for each in pieces if isinstance(each, SegmentRef))
    chunks = tuple(each for each in pieces if isinstance(each, ChunkRef))
    level = min(max((each.level for each in segments), default=0) + 1, LEVEL_MAX)
    since = compaction_plan.since(topic, pieces[0])
    until = topic.file(chunks[-1].file).sequenced_ms if chunks else max(each.until_ms for each in segments)
    place = number, partition.leader_epoch, level, segments, chunks, partition.epoch_starts
    return RollJob(*place, parquet, since, until)


def _tail(topic: Topic, number: int, now: int, limits: _Limits, at_once: int) -> RollJob | None:
    """Return the job that makes Parquet of a partition's tail, or of its oldest part, if its oldest row is due.

    It is also due if it begins below the offset `at_once`.
    """
    partition, config = topic.partitions[number], topic.config
    tail: tuple[SegmentRef | ChunkRef, ...] = (*_tail_segments(partition, config), *partition.chunks)
    is_forced = bool(tail) and tail[0].base_offset < at_once and config.segment_format == "parquet"
    if not is_forced and now < _tail_due(topic, partition, limits.lag_ms or 0):
        return None
    below = itertools.takewhile(lambda each: each.end_offset <= partition.high_watermark, tail)
    taken = tiers.fitting(below, min(limits.tail_bytes, config.segment_bytes))
    is_too_large = limits.lag_ms is not None and sum(each.length for each in taken) > limits.tail_bytes
    return _job(topic, number, taken, parquet=True) if taken and not is_too_large else None


def _tail_segments(partition: Partition, config: TopicConfig) -> tuple[SegmentRef, ...]:
    segments, first = partition.segments, len(partition.segments)
    while first > 0 and _is_small_log(segments[first - 1], config):
        first -= 1
    return segments[first:]


def _tail_due(topic: Topic, partition: Partition, lag_min: int) -> int:
    """Return when a partition's tail is to become Parquet (ms), if its rows are to be so old at least."""
    lag, segments = topic.config.parquet_max_lag_ms, _tail_segments(partition, topic.config)
    if topic.config.segment_format != "parquet" or lag == UNLIMITED or not (segments or partition.chunks):
        return INT64_MAX
    return compaction_plan.since(topic, (segments or partition.chunks)[0]) + max(lag, lag_min)


def _roll_due(topic: Topic, partition: Partition) -> _Due:
    """Return when it is time to roll the oldest unrolled chunks."""
    chunks, config = partition.chunks, topic.config
    if not chunks:
        return _NEVER
    oldest = chunks[0]
    if len(chunks) >= ROLL_CHUNKS or partition.log_end - oldest.base_offset >= config.flush_messages:
        return _AT_ONCE
    if sum(chunk.length for chunk in chunks) >= min(ROLL_BYTES, config.segment_bytes):
        return _AT_ONCE
    # Rows can expire only after they are rolled.
    age_max = min(config.segment_ms, config.flush_ms)
    if config.retention_ms != UNLIMITED and config.cleanup_policy != "compact":
        age_max = min(age_max, config.retention_ms)
    return _Due(topic.file(oldest.file).sequenced_ms + age_max, oldest.file + ROLL_FILES)


def _is_done(segment: SegmentRef, config: TopicConfig) -> bool:
    """Return whether nothing rewrites a segment any more."""
    is_long = segment.span * tiers.MERGE_COUNT > SEGMENT_ROWS_MAX
    return segment.level >= LEVEL_MAX or is_long or _is_large(segment.log_bytes, config)


def _is_small_log(segment: SegmentRef, config: TopicConfig) -> bool:
    """Return whether a segment of chunks is to be Parquet, in a topic of that format."""
    return not (segment.is_parquet or _is_done(segment, config))


def _is_large(size: int, config: TopicConfig) -> bool:
    return size * tiers.MERGE_COUNT >= config.segment_bytes
