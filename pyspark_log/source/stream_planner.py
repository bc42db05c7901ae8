"""Planning a stream: from the end of a micro-batch to that of the next, and to its splits. In the driver alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark_log.client.opening import canonical, open_log
from pyspark_log.client.read.data_loss import report_loss
from pyspark_log.client.read.planning import Range, divide, split_of
from pyspark_log.client.read.positions import Subscribed, resolve, subscribed
from pyspark_log.source import limits, offsets
from pyspark_log.source.offsets import Position, SourceOffset, TopicPositions
from pyspark_log.source.split_reader import SplitPartition
from pyspark_log.source.tracking import Start, go_on, within
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log.options import SourceOptions
    from pyspark_log.source.offsets import TopicPartition
    from pyspark_log_coordinator.log.log import Log

IDLE_WAIT_SECONDS = 0.1
"""How long a call that finds nothing waits for news before it returns."""
POLL_SECONDS = 0.005


class StreamPlanner:
    """Plans the micro-batches of a query."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._available_now: SourceOffset | None = None
        """Where the query ends, with AvailableNow."""
        self._last_batch: float | None = None
        self.latest: dict[str, Any] | None = None
        """The newest offsets and the lag, as the last call of `end` saw them."""

    @property
    def _log(self) -> Log:
        return open_log(self.options.path)

    def stop_at_present(self) -> None:
        """Fix what is there now as the end of the query."""
        now = subscribed(self._log, self.options.subscription, missing_is_error=False)
        topics = {}
        for topic, numbers in now.partitions.items():
            found = {number: now.partition(topic, number) for number in numbers}
            ends = {number: Position(each.high_watermark, each.leader_epoch) for number, each in found.items()}
            topics[topic] = TopicPositions(now.handles[topic].topic_id, ends)
        self._available_now = SourceOffset(topics)

    def end(self, start: dict[str, Any], *, unlimited: bool) -> dict[str, Any]:
        """Return where the batch after `start` ends, or `start` where there is nothing to read."""
        patient = self._available_now is None and not unlimited
        before = offsets.parse(start)
        give_up = time.monotonic() + IDLE_WAIT_SECONDS
        while True:
            found = self._next(before, unlimited=unlimited)
            if found is not None:
                return found
            if not patient or time.monotonic() >= give_up:
                return start
            time.sleep(POLL_SECONDS)

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[SplitPartition]:
        """Return the splits of the batch between two offsets, the same for the same offsets whenever it is asked."""
        if start == end:  # a batch without news has its predecessor's offset, also where that says where it began
            return []
        begun, ended = offsets.parse(start), offsets.parse(end)
        begins, options, ranges = ended.begins(begun), self.options, []
        log, handles = self._log, {}
        for topic, positions in ended.topics.items():
            try:
                handles[topic] = log.topic(topic)
            except UnknownTopic:
                report_loss(f"topic {topic!r} was deleted", fail=options.fail_on_data_loss)
                continue
            if handles[topic].topic_id != positions.topic_id:
                report_loss(f"topic {topic!r} was deleted and created again", fail=options.fail_on_data_loss)
                continue
            for number, finish in positions.end.items():
                first = begins[topic, number]
                if first.offset >= finish.offset:
                    continue
                partitions = handles[topic].journal.state.partitions
                if number >= len(partitions):
                    lost = f"topic {topic!r} has no partition {number} any more; was it restored from a backup?"
                    report_loss(lost, fail=options.fail_on_data_loss)
                    continue
                partition = partitions[number]
                low, high = (
                    within(partition, (topic, number), at, fail_on_data_loss=options.fail_on_data_loss)
                    for at in (first, finish)
                )
                ranges.append(Range(topic, number, low, high))
        parts = divide(ranges, options.min_partitions, options.max_records_per_partition)
        url = canonical(options.path)
        rack = options.client_rack
        return [SplitPartition(url, split_of(log, handles[part.topic], part, rack)) for part in parts]

    def _next(self, before: SourceOffset, *, unlimited: bool) -> dict[str, Any] | None:
        """Return the next batch's end, or None where the batch would be empty. The first batch may be."""
        options = self.options
        now = subscribed(self._log, options.subscription, missing_is_error=before.initial, rack=options.client_rack)
        self._check_available(before, now)
        starts = self._starts(before, now)
        begin = {key: start.at.offset for key, start in starts.items()}
        newest = {key: now.partition(*key).high_watermark for key in starts}
        until = {key: max(begin[key], self._available(now, key)) for key in starts}
        ends = self._limited(begin, until, unlimited=unlimited)
        self.latest = _latest(newest, ends)
        if not before.initial and all(ends[key] <= begin[key] for key in ends):
            return None
        self._last_batch = time.monotonic()
        return offsets.to_json(_offset(now, starts, ends))

    def _available(self, now: Subscribed, key: TopicPartition) -> int:
        """Return where the rows end that the query may read: at the HW, or at what was there when it began.

        Rows of a topic that was created again, and rows in place of truncated ones, were not there.
        """
        topic, number = key
        partition = now.partition(topic, number)
        if self._available_now is None:
            return partition.high_watermark
        there = self._available_now.topics.get(topic)
        if there is None or there.topic_id != now.handles[topic].topic_id or number not in there.end:
            return 0
        end = there.end[number]
        return min(end.offset, partition.end_of_epoch(end.epoch), partition.high_watermark)

    def _check_available(self, before: SourceOffset, now: Subscribed) -> None:
        """Raise `DataLoss` if a topic is gone that was there when the query began, and that it has not read yet.

        Of topics that it has read, `go_on` finds this out.
        """
        there = {} if self._available_now is None else self._available_now.topics
        for topic in there.keys() - before.topics.keys():
            handle = now.handles.get(topic)
            if handle is None or handle.topic_id != there[topic].topic_id:
                what = f"topic {topic!r} was deleted{'' if handle is None else ' and created again'}"
                report_loss(what, fail=self.options.fail_on_data_loss)

    def _starts(self, before: SourceOffset, now: Subscribed) -> dict[TopicPartition, Start]:
        options = self.options
        if not before.initial:
            return go_on(before, now, fail_on_data_loss=options.fail_on_data_loss)
        first = resolve(
            self._log,
            now,
            options.starting,
            options.starting_no_match,
            ending=False,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return {key: Start(Position(at, now.partition(*key).leader_epoch), explicit=True) for key, at in first.items()}

    def _limited(
        self, begin: Mapping[TopicPartition, int], until: dict[TopicPartition, int], *, unlimited: bool
    ) -> dict[TopicPartition, int]:
        options = self.options
        if unlimited:
            return until
        minimum, maximum = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if minimum is not None and self._available_now is None:
            backlog = sum(max(0, until[key] - begin[key]) for key in until)
            if limits.waits(backlog, minimum, time.monotonic(), self._last_batch, options.max_trigger_delay_ms):
                return dict(begin)
        return until if maximum is None else limits.share_out(maximum, begin, until)


def _offset(
    now: Subscribed, starts: Mapping[TopicPartition, Start], ends: Mapping[TopicPartition, int]
) -> SourceOffset:
    topics = {}
    for topic, numbers in now.partitions.items():
        epochs = {number: now.partition(topic, number).leader_epoch for number in numbers}
        topics[topic] = TopicPositions(
            topic_id=now.handles[topic].topic_id,
            end={number: Position(ends[topic, number], epochs[number]) for number in numbers},
            begin={number: starts[topic, number].at for number in numbers if starts[topic, number].explicit},
        )
    return SourceOffset(topics)


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
