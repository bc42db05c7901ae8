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
        """The first row's offset."""
        return (self.segments or self.chunks)[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last row."""
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
            job = _thorough(topic, number, now, budget, at_once[number] if number < len(at_once) else 0)
        if job is not None:
            jobs.append(job)
    return sorted(jobs, key=lambda job: -len(job.chunks))


def _inline(topic: Topic, number: int, now: int) -> RollJob | None:
    partition = topic.partitions[number]
    budget = _inline_budget(partition)
    if len(partition.chunks) >= UNROLLED_CHUNKS_MAX:  # also where compaction fails: a roll reads only these chunks
        return _roll(topic, number, now, budget)
    return (
        _compaction(topic, number, now, budget, INLINE_LAG_MS)
        or _roll(topic, number, now, budget)
        or _tail(topic, number, now, None)
        or _merge(topic, number, budget, MERGE_LOOK_BACK)
    )


def _thorough(topic: Topic, number: int, now: int, budget: int, at_once: int) -> RollJob | None:
    return (
        _compaction(topic, number, now, budget, at_once=at_once)
        or _tail(topic, number, now, budget, at_once)
        or _roll(topic, number, now, budget)
        or _merge(topic, number, budget, len(topic.partitions[number].segments))
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


def must_roll(topic: Topic) -> bool:
    """Return whether a partition has reached the hard cap and must be rolled before more is appended."""
    return any(len(each.chunks) >= UNROLLED_CHUNKS_MAX for each in topic.partitions)


def is_past_the_cap(topic: Topic, number: int) -> bool:
    """Return whether a partition has reached the hard cap."""
    return len(topic.partitions[number].chunks) >= UNROLLED_CHUNKS_MAX


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
    budget = _inline_budget(partition)
    if compaction_plan.due(topic, partition, INT64_MAX, budget, INLINE_LAG_MS):
        return _AT_ONCE  # perhaps: what is too young for it does not wait long
    if _to_merge(partition, config, budget, MERGE_LOOK_BACK):
        return _AT_ONCE
    rolled = _roll_due(topic, partition)
    return _Due(min(rolled.time, _tail_due(topic, partition, INLINE_LAG_MS)), rolled.next_file)


def _compaction(
    topic: Topic, number: int, now: int, budget: int, inline_lag: int | None = None, at_once: int = 0
) -> RollJob | None:
    partition = topic.partitions[number]
    work = compaction_plan.due(topic, partition, now, budget, inline_lag, at_once)
    return None if work is None else compaction_job(topic, number, work, now)


def compaction_job(topic: Topic, number: int, work: compaction_plan.Work, now: int) -> RollJob:
    """Return the job of a partition that does some work of compaction."""
    partition = topic.partitions[number]
    segments = tuple(each for each in work.pieces if isinstance(each, SegmentRef))
    chunks = tuple(each for each in work.pieces if isinstance(each, ChunkRef))
    job = _job(topic, number, segments, chunks, parquet=True)
    return msgspec.structs.replace(job, compaction=compaction_plan.compaction_of(topic, partition, work, now))


def _roll(topic: Topic, number: int, now: int, budget: int) -> RollJob | None:
    chunks, config = _to_roll(topic, topic.partitions[number], now, budget), topic.config
    is_parquet = config.segment_format == "parquet" and _is_large(sum(each.length for each in chunks), config)
    return _job(topic, number, (), chunks, parquet=is_parquet) if chunks else None


def _merge(topic: Topic, number: int, budget: int, look_back: int) -> RollJob | None:
    found = _to_merge(topic.partitions[number], topic.config, budget, look_back)
    return _job(topic, number, found, (), parquet=topic.config.segment_format == "parquet") if found else None


def _inline_budget(partition: Partition) -> int:
    """Return the most bytes of an inline job."""
    unrolled = sum(chunk.length for chunk in partition.chunks)
    return min(max(INLINE_ROLL_BYTES, unrolled // 2), INLINE_ROLL_BYTES_MAX)


def _to_merge(partition: Partition, config: TopicConfig, budget: int, look_back: int) -> tuple[SegmentRef, ...]:
    """Return the oldest neighbours of the lowest level to merge, of the newest `look_back` segments.

    Those that do not fit into the budget are left out; of those that are more than a segment, as many as fit are taken.
    One of chunks alone is taken, too, if it is to be Parquet and something follows that is not of the tail.
    """
    newest = partition.segments[max(len(partition.keyed_segments), len(partition.segments) - look_back) :]
    size_max = min(budget, config.segment_bytes)
    for start, end in tiers.joined([tiers.TIER_MAX if _is_done(each, config) else each.level for each in newest]):
        taken = newest[start:end]
        while len(taken) > 1 and not _fits(taken, size_max):
            taken = taken[:-1]
        if len(taken) > 1 and (len(taken) == end - start or _is_large(sum(each.log_bytes for each in taken), config)):
            return taken
    if config.segment_format == "parquet":
        left = newest[: len(newest) - len(_tail_segments(partition, config))]
        return next(((each,) for each in left if _is_small_log(each, config) and _fits((each,), size_max)), ())
    return ()


def _job(
    topic: Topic,
    number: int,
    segments: tuple[SegmentRef, ...],
    chunks: tuple[ChunkRef, ...],
    *,
    parquet: bool,
) -> RollJob:
    partition = topic.partitions[number]
    level = min(max((each.level for each in segments), default=0) + 1, LEVEL_MAX)
    since = segments[0].since_ms if segments else topic.file(chunks[0].file).sequenced_ms
    until = topic.file(chunks[-1].file).sequenced_ms if chunks else max(each.until_ms for each in segments)
    place = number, partition.leader_epoch, level, segments, chunks, partition.epoch_starts
    return RollJob(*place, parquet, since, until)


def _tail(topic: Topic, number: int, now: int, budget: int | None, at_once: int = 0) -> RollJob | None:
    """Return the job that makes Parquet of a partition's tail, or of its oldest part, if its oldest row is due.

    It is also due if it begins below the offset `at_once`. Without a budget the job is inline.
    """
    partition, config = topic.partitions[number], topic.config
    if config.segment_format != "parquet":
        return None
    segments = _tail_segments(partition, config)
    if not segments and not partition.chunks:
        return None
    base = (segments or partition.chunks)[0].base_offset
    if base >= at_once and now < _tail_due(topic, partition, INLINE_LAG_MS if budget is None else 0):
        return None
    size_max = config.segment_bytes // tiers.MERGE_COUNT if budget is None else min(budget, config.segment_bytes)
    taken: list[SegmentRef | ChunkRef] = []
    size = 0
    for each in partition.pieces_from(base):
        size += each.length
        is_too_large = size > size_max or each.end_offset - base > SEGMENT_ROWS_MAX
        if each.end_offset > partition.high_watermark or (is_too_large and (taken or budget is None)):
            break
        taken.append(each)
    if not taken:
        return None
    of_segments = tuple(each for each in taken if isinstance(each, SegmentRef))
    return _job(topic, number, of_segments, tuple(each for each in taken if isinstance(each, ChunkRef)), parquet=True)


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
    since = segments[0].since_ms if segments else topic.file(partition.chunks[0].file).sequenced_ms
    return since + max(lag, lag_min)


def _to_roll(topic: Topic, partition: Partition, now: int, budget: int) -> tuple[ChunkRef, ...]:
    """Return the oldest unrolled chunks below the HW if it is time to roll them."""
    chunks, due = partition.chunks, _roll_due(topic, partition)
    if not chunks or not (due.time <= now or due.next_file <= topic.next_file):
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


def _fits(segments: Sequence[SegmentRef], size_max: int) -> bool:
    rows = segments[-1].end_offset - segments[0].base_offset
    return sum(each.log_bytes for each in segments) <= size_max and rows <= SEGMENT_ROWS_MAX


def _is_done(segment: SegmentRef, config: TopicConfig) -> bool:
    """Return whether nothing rewrites a segment any more."""
    is_long = segment.span * tiers.MERGE_COUNT > SEGMENT_ROWS_MAX
    return segment.level >= LEVEL_MAX or is_long or _is_large(segment.log_bytes, config)


def _is_small_log(segment: SegmentRef, config: TopicConfig) -> bool:
    """Return whether a segment of chunks is to be Parquet, in a topic of that format."""
    return not (segment.is_parquet or _is_done(segment, config))


def _is_large(size: int, config: TopicConfig) -> bool:
    return size * tiers.MERGE_COUNT >= config.segment_bytes
