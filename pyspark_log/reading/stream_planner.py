"""The planner of a stream, on the driver: where the next micro-batch ends, and its splits."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log import opening
from pyspark_log.options.position import CommittedOffsets
from pyspark_log.reading import limits, source_offset
from pyspark_log.reading.group_offsets import GroupOffsets
from pyspark_log.reading.planning import compacted_since, splits
from pyspark_log.reading.polling import longest_pause, pause_after
from pyspark_log.reading.positions import Subscribed, report_loss, subscribed
from pyspark_log.reading.source_offset import Position, SourceOffset, TakenRewinds, TopicPositions
from pyspark_log.reading.tracking import Start, away_from, go_on, new_starts, ranges_between
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from pyspark_log.options import SourceOptions
    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.planning import Range
    from pyspark_log.reading.source_offset import TopicPartition
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log, TopicHandle

IDLE_WAIT_SECONDS = 0.1
"""How long a call that finds no new rows waits for some before it returns."""
POLL_SECONDS = 0.005
SMALL_STORED_BYTES_MAX = 1024 * 1024
"""The size of the largest batch that the driver reads, as stored ..."""
SMALL_READ_BYTES_MAX = 16 * 1024 * 1024
"""... and of what it reads for one: chunks are read whole, however few of their rows are in a batch."""


class Plan(NamedTuple):
    splits: list[Split]
    is_small: bool
    """Whether the rows are so few, and so near, that the driver may read them as one split: `maxRecordsOnDriver`."""


class StreamPlanner:
    def __init__(self, options: SourceOptions, check: Callable[[str, Sequence[pa.Schema]], None] | None = None) -> None:
        """`check` raises an error if the query cannot read a topic with these schemas, the newest last."""
        self.options = options
        self._check = check
        self._checked: dict[str, int] = {}
        """How many schemas each topic had when it was checked, by id."""
        self._group: GroupOffsets | None = None
        if options.group_id:
            self._group = GroupOffsets(options.group_id, fail_on_data_loss=options.fail_on_data_loss)
        self._available_now: SourceOffset | None = None
        """Where the query ends, with AvailableNow."""
        self._last_batch: float | None = None
        self._active: float | None = None
        """When there was a batch, or the query began."""
        self._rest: tuple[SourceOffset, float] | None = None
        """The offset after which there was nothing, and until when not to look again."""
        self._seen: tuple[Subscribed, dict[TopicPartition, int], dict[TopicPartition, int]] | None = None
        """The partitions that the last call of `end` saw, their newest offsets, and where the batch ends."""
        self._parsed: tuple[dict[str, Any], SourceOffset] | None = None
        """The offset that was parsed last: with many partitions that takes long, and idle queries repeat it."""
        self._quiet: tuple[object, ...] | None = None
        """What was known when there was nothing to read: where the batch begins, and the versions of all."""
        self._new: dict[str, Any] | None = None
        """The last offset that `end` made. No rows up to it have been read before it is planned for the first time."""

    @property
    def _log(self) -> Log:
        """Refreshed each time."""
        return opening.open_log(self.options.path, self.options.storage_options)

    @property
    def latest(self) -> dict[str, Any] | None:
        """The newest offsets, the lag and the partitions in trouble, as the last call of `end` saw them."""
        if self._seen is None:
            return None
        now, newest, ends = self._seen
        return _latest(newest, ends) | _health(now)

    def stop_at_present(self) -> None:
        """Make the present ends of all partitions the end of the query."""
        now = subscribed(self._log, self.options.subscription, missing_is_error=False)
        ends = {key: now.partition(*key).high_watermark for key in now.topic_partitions()}
        self._available_now = SourceOffset(_positions(now, {}, ends))

    def end(self, start: dict[str, Any], *, unlimited: bool) -> dict[str, Any]:
        """Return where the batch after `start` ends, or `start` itself if there is nothing to read.

        Spark has committed `start`, so the query's group gets it now.
        """
        may_wait = self._available_now is None and not unlimited
        before = self._parse(start)
        if self._rest is not None and self._rest[0] != before:
            self._rest = None
        if may_wait and self._is_resting():
            return start
        log = self._log
        before.check_cluster(log.cluster_id, self.options.path)
        if self._group is not None and not before.initial:
            self._group.commit(log, before)
        begun = log.environment.monotonic()
        while True:
            found = self._next(log, before, unlimited=unlimited)
            if found is not None:
                return found
            self._begin_rest(log, before)
            patience = IDLE_WAIT_SECONDS if may_wait else 0.0
            # In an object store each look is a request: one for each call is enough.
            pause = IDLE_WAIT_SECONDS if log.is_remote else POLL_SECONDS
            if log.is_remote and may_wait:
                log.environment.sleep(pause)
            if log.environment.monotonic() >= begun + patience:
                return start
            log.environment.sleep(pause)
            log = self._log

    def _begin_rest(self, log: Log, before: SourceOffset) -> None:
        """Note how long the query need not look after this offset, in an object store."""
        now = log.environment.monotonic()
        if self._active is None:
            self._active = now
        self._rest = None
        if self._seen is None or not log.is_remote:
            return
        subscribed_now, newest, ends = self._seen
        if any(newest[key] > ends[key] for key in newest):
            return  # there are rows, for which the query waits with minOffsetsPerTrigger
        journals = len(subscribed_now.handles) + (self._group is not None)
        longest = longest_pause(self.options.longest_pause, journals, is_remote=True)
        self._rest = before, now + pause_after(now - self._active, longest)

    def _is_resting(self) -> bool:
        """Wait a moment and return true if there is no need to look yet.

        Calls are kept short, so that the query can be stopped.
        """
        if self._rest is None:
            return False
        environment = opening.log_at(opening.canonical(self.options.path), self.options.storage_options).environment
        left = self._rest[1] - environment.monotonic()
        if left <= 0:
            return False
        environment.sleep(min(left, IDLE_WAIT_SECONDS))
        return True

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> Plan:
        """Return the splits of the batch between two offsets. The same offsets always give the same rows."""
        if start == end:  # an empty batch has its predecessor's offset, including that one's `begin`
            return Plan([], is_small=False)
        begun, ended = source_offset.parse(start), self._parse(end, is_done=False)
        seen = {name: self._seen_topic(name, positions) for name, positions in ended.topics.items()}
        handles_seen = [handle for handle in seen.values() if handle is not None]
        log = handles_seen[0].log if 0 < len(handles_seen) == len(seen) else self._log
        ended.check_cluster(log.cluster_id, self.options.path)
        handles, ranges = ranges_between(
            begun,
            ended,
            lambda topic: seen[topic] or log.topic(topic),
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        if end != self._new:
            self._check_repeated(handles, ranges, ended)
        self._new = None
        found = splits(handles, ranges, self.options)
        # Reads from several buckets have time limits, and the threads that keep these serve one reader at a time.
        are_near = not log.is_remote or all(len(split.nodes) <= 1 for split in found)
        return Plan(found, is_small=are_near and self._is_small(handles, found))

    def _is_small(self, handles: Mapping[str, TopicHandle], planned: Sequence[Split]) -> bool:
        options = self.options
        bounds = options.max_records_on_driver, options.max_records_per_partition
        rows_max = min(each for each in bounds if each is not None)
        if (options.min_partitions or 1) > 1 or not 0 < sum(each.end - each.start for each in planned) <= rows_max:
            return False
        places = [(handles[each.topic].partitions[each.partition], each.start, each.end) for each in planned]
        pieces = itertools.chain.from_iterable(itertools.starmap(limits.pieces_between, places))
        if sum(piece.stored_bytes for piece in pieces) > SMALL_STORED_BYTES_MAX:
            return False
        return sum(itertools.starmap(limits.bytes_read, places)) <= SMALL_READ_BYTES_MAX

    def _check_repeated(self, handles: Mapping[str, TopicHandle], ranges: Sequence[Range], ended: SourceOffset) -> None:
        """Raise `DataLoss` if a batch that is read again may have other rows than when it was planned."""
        for each in ranges:
            then = ended.topics[each.topic].compacted.get(each.partition, 0)
            if what := compacted_since(handles[each.topic], each, then):
                self._report(
                    f"{what} after a batch with them was planned, which is repeated now and would have other rows; a "
                    "longer min.compaction.lag.ms gives queries more time"
                )

    def _seen_topic(self, name: str, positions: TopicPositions) -> TopicHandle | None:
        """Return the handle of a topic that `end` saw a moment ago, if it has all rows up to these positions.

        On a disk a look tells whether it was deleted since; in a bucket that would be a request.
        """
        handle = None if self._seen is None else self._seen[0].handles.get(name)
        if handle is None or handle.topic_id != positions.topic_id or not handle.is_recent:
            return None
        with contextlib.suppress(UnknownTopic):
            if not handle.log.is_remote:
                handle.refresh(polls=True)
        found = handle.partitions
        has_all = all(n < len(found) and found[n].high_watermark >= at.offset for n, at in positions.end.items())
        return handle if has_all and not handle.state.deleted else None

    def _parse(self, offset: dict[str, Any], *, is_done: bool = True) -> SourceOffset:
        if self._parsed is not None and self._parsed[0] == offset:
            return self._parsed[1]
        self._parsed = offset, source_offset.parse(offset, is_done=is_done)
        return self._parsed[1]

    def _report(self, lost: str) -> None:
        report_loss(lost, fail=self.options.fail_on_data_loss)

    def _next(self, log: Log, before: SourceOffset, *, unlimited: bool) -> dict[str, Any] | None:
        """Return the next batch's end, or None if the batch would be empty. Only the first batch may be empty."""
        if before.initial and self._group is not None:
            self._subscribed(log, before)  # a topic that does not exist is refused before the group is created
        # Before the topics: else the group may be set to rows that are newer than what is known of the topics.
        handle = None if self._group is None else self._group.refresh(log, required=before.initial)
        now = self._subscribed(log, before, polls=self._rest is not None and not unlimited)
        self._check_available(before, now)
        versions = {topic: (each.topic_id, each.version) for topic, each in now.handles.items()}
        known = (before, versions, 0 if handle is None else handle.version)
        if known == self._quiet:
            return None
        self._quiet = None
        self._check_columns(now)
        starts, taken, is_moved = self._begin(handle, before, now)
        begin = {key: start.at.offset for key, start in starts.items()}
        newest = {key: now.partition(*key).high_watermark for key in starts}
        until = {key: max(begin[key], self._available(now, key)) for key in starts}
        ends = until if unlimited else self._limited(now, begin, until, log.environment.monotonic())
        self._seen = now, newest, ends
        is_quiet = not is_moved and self._available_now is None
        if is_quiet and all(until[key] <= begin[key] for key in until):
            self._quiet = known
        if not is_moved and all(ends[key] <= begin[key] for key in ends):
            return None
        self._last_batch = self._active = log.environment.monotonic()
        ids = {name: record.topic_id for name, record in log.known_topics.items()}
        self._new = source_offset.to_json(
            SourceOffset(
                _positions(now, starts, ends), group=taken, cluster=log.cluster_id, away=away_from(now, before, ids)
            )
        )
        return self._new

    def _subscribed(self, log: Log, before: SourceOffset, *, polls: bool = False) -> Subscribed:
        options = self.options
        missing_is_error, rack = before.initial, options.client_rack
        return subscribed(log, options.subscription, missing_is_error=missing_is_error, rack=rack, polls=polls)

    def _check_columns(self, now: Subscribed) -> None:
        """Raise `InvalidInput` if the query cannot read a topic's columns, before the checkpoint has its offset."""
        for topic, handle in now.handles.items():
            schemas = handle.schemas
            if self._check is not None and self._checked.get(handle.topic_id) != len(schemas):
                self._check(topic, schemas)
                self._checked[handle.topic_id] = len(schemas)

    def _available(self, now: Subscribed, key: TopicPartition) -> int:
        """Return up to where the query may read: the high watermark, or with AvailableNow its value at the beginning.

        A topic that was created again since, and rows that replaced truncated ones, are not read with AvailableNow.
        """
        topic, number = key
        partition = now.partition(topic, number)
        if self._available_now is None:
            return partition.high_watermark
        fixed = self._available_now.topics.get(topic)
        if fixed is None or fixed.topic_id != now.handles[topic].topic_id or number not in fixed.end:
            return 0
        end = fixed.end[number]
        return min(end.offset, partition.end_of_epoch(end.epoch), partition.high_watermark)

    def _check_available(self, before: SourceOffset, now: Subscribed) -> None:
        """Raise `DataLoss` if a topic was deleted that existed when the query began and has not been read yet.

        For topics that have been read, `go_on` does this.
        """
        fixed = {} if self._available_now is None else self._available_now.topics
        for topic in fixed.keys() - before.topics.keys():
            handle = now.handles.get(topic)
            if handle is None or handle.topic_id != fixed[topic].topic_id:
                self._report(f"topic {topic!r} was deleted{'' if handle is None else ' and created again'}")

    def _begin(
        self, handle: GroupHandle | None, before: SourceOffset, now: Subscribed
    ) -> tuple[dict[TopicPartition, Start], TakenRewinds | None, bool]:
        """Return where the batch after `before` begins, and the newest rewind of the query's group that it follows.

        The third is whether it does not begin where its predecessor ended: it must be planned, even if it is empty.
        `handle` is that of the group, if it is known.
        """
        options = self.options
        fail = options.fail_on_data_loss
        moved: dict[TopicPartition, Start] = {}
        taken = before.group
        is_named = True
        if self._group is not None and handle is not None:
            is_named = self._group.is_named_in(before, handle)
            group, taken = handle.state, TakenRewinds(handle.journal_id, handle.state.rewinds)
            if not before.initial:
                moved = self._group.starts(group, now, self._group.taken(handle, before).number)
            elif isinstance(options.starting, CommittedOffsets):
                moved = self._group.starts(group, now)
        if not before.initial:
            # Without an offset that names the group, a restart would take a rewind for one that came before.
            starts = go_on(before, now, moved, fail_on_data_loss=fail)
            return starts, taken, bool(moved) or not is_named
        return new_starts(now, options) | moved, taken, True

    def _limited(
        self, now: Subscribed, begin: Mapping[TopicPartition, int], until: dict[TopicPartition, int], seconds: float
    ) -> dict[TopicPartition, int]:
        """Return where the batch ends within the options' limits; `seconds` is the present monotonic time."""
        options = self.options
        minimum, maximum = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if minimum is not None and self._available_now is None:
            backlog = sum(max(0, until[key] - begin[key]) for key in until)
            if limits.waits(backlog, minimum, seconds, self._last_batch, options.max_trigger_delay_ms):
                return dict(begin)
        if (of_each := options.max_offsets_per_trigger_per_partition) is not None:
            until = {key: min(end, begin[key] + of_each) for key, end in until.items()}
        if options.max_bytes_per_trigger is not None:
            pieces = [limits.pieces_between(now.partition(*key), begin[key], until[key]) for key in until]
            rows = limits.rows_within(options.max_bytes_per_trigger, pieces, [until[key] - begin[key] for key in until])
            maximum = max(1, rows) if maximum is None else max(1, min(maximum, rows))
        return until if maximum is None else limits.share_out(maximum, begin, until)


def _positions(
    now: Subscribed, starts: Mapping[TopicPartition, Start], ends: Mapping[TopicPartition, int]
) -> dict[str, TopicPositions]:
    """Return where the partitions end, and what else of a batch, if it has `starts`, its offset says.

    A topic whose policy is another one by now may have compacted rows, and any topic may be compacted later.
    """
    found = {}
    for topic, numbers in now.partitions.items():
        states = {number: now.partition(topic, number) for number in numbers}
        mine = {number: starts[topic, number] for number in numbers if (topic, number) in starts}
        found[topic] = TopicPositions(
            topic_id=now.handles[topic].topic_id,
            end={number: Position(ends[topic, number], each.leader_epoch) for number, each in states.items()},
            begin={number: start.at for number, start in mine.items() if start.explicit},
            compacted={
                number: states[number].compactions
                for number, start in mine.items()
                if ends[topic, number] > start.at.offset and states[number].compactions
            },
        )
    return found


def _latest(newest: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(newest.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    behind = [newest[key] - ends[key] for key in newest] or [0]
    lag = {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
    return {"topics": topics, "offsetsBehindLatest": lag}


def _health(now: Subscribed) -> dict[str, str]:
    """Return how many of the partitions that are read are in trouble. Numbers are texts, as those of the lag are."""
    found = [
        troubles(now.partition(topic, number), now.handles[topic].config, now.handles[topic].log.broken_nodes)
        for topic, numbers in now.partitions.items()
        for number in numbers
    ]
    return {
        "underReplicatedPartitions": str(sum(Trouble.UNDER_REPLICATED in each for each in found)),
        "offlinePartitions": str(sum(Trouble.UNAVAILABLE in each for each in found)),
    }
