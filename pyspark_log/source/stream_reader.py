"""Reading a stream: `spark.readStream.format("pyspark_log")`.

Spark's order of calls and its traps are in docs/spark.md. Two of them shape this class: an error in the
constructor would be buried, so options are checked in `getDefaultReadLimit`; and an idle `latestOffset` is called again
at once, so it waits a little for news itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_log.opening import canonical, open_log
from pyspark_log.options import parse_source
from pyspark_log.source import limits, offsets
from pyspark_log.source.batch_reader import SplitPartition, read_split
from pyspark_log.source.offsets import Position, SourceOffset, TopicPositions
from pyspark_log.source.planning import Range, divide, split_of
from pyspark_log.source.positions import Subscribed, resolve, subscribed
from pyspark_log.source.row import chosen_columns
from pyspark_log.source.tracking import Start, go_on, report_loss, within
from pyspark_log.spark_errors import spark_entry, spark_iterator
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions
    from pyspark_log.source.offsets import TopicPartition
    from pyspark_log_coordinator.log import Log

IDLE_WAIT_SECONDS = 0.1
"""How long an idle `latestOffset` waits for news before it returns."""
POLL_SECONDS = 0.005


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their splits in executors."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options_given = options
        self._parsed: SourceOptions | None = None
        self._available_now: dict[TopicPartition, int] | None = None
        self._last_batch: float | None = None
        self._latest: dict[str, Any] | None = None

    @property
    def _options(self) -> SourceOptions:
        if self._parsed is None:
            self._parsed = parse_source(self._options_given, streaming=True)
        return self._parsed

    @property
    def _log(self) -> Log:
        return open_log(self._options.path)

    @spark_entry
    def getDefaultReadLimit(self) -> ReadLimit:
        """Check the options, and say that there is a limit: Spark hands it back to `latestOffset`."""
        chosen_columns(self._schema)
        return ReadMaxRows(self._options.max_offsets_per_trigger or 2**62)

    @spark_entry
    def initialOffset(self) -> dict[str, Any]:
        """Return the sentinel that `latestOffset` resolves."""
        return offsets.INITIAL

    @spark_entry
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what is there now as the end of the query."""
        now = subscribed(self._log, self._options.subscription, missing_is_error=False)
        self._available_now = {key: now.partition(*key).high_watermark for key in now.topic_partitions()}

    @spark_entry
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends, or `start` where there is nothing to read."""
        unlimited = isinstance(limit, ReadAllAvailable)
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

    @spark_entry
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets and the lag, as seen by the last `latestOffset`, for the query's progress."""
        return self._latest

    @spark_entry
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the splits of the batch between two offsets, the same for the same offsets whenever it is asked."""
        if start == end:  # a batch without news has its predecessor's offset, also where that says where it began
            return []
        begun, ended = offsets.parse(start), offsets.parse(end)
        begins, options, ranges = ended.begins(begun), self._options, []
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
                partition = handles[topic].journal.state.partitions[number]
                low, high = (
                    within(partition, (topic, number), at, fail_on_data_loss=options.fail_on_data_loss)
                    for at in (first, finish)
                )
                ranges.append(Range(topic, number, low, high))
        parts = divide(ranges, options.min_partitions, options.max_records_per_partition)
        url = canonical(options.path)
        rack = options.client_rack
        return [SplitPartition(url, split_of(log, handles[part.topic], part, rack)) for part in parts]

    @spark_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows; runs in an executor's Python worker."""
        return read_split(partition, chosen_columns(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what is read is recorded in Spark's checkpoint."""

    def _next(self, before: SourceOffset, *, unlimited: bool) -> dict[str, Any] | None:
        """Return the next batch's end, or None where the batch would be empty. The first batch may be."""
        options = self._options
        now = subscribed(self._log, options.subscription, missing_is_error=before.initial, rack=options.client_rack)
        starts = self._starts(before, now)
        begin = {key: start.at.offset for key, start in starts.items()}
        newest = {key: now.partition(*key).high_watermark for key in starts}
        until = (
            newest
            if self._available_now is None
            else {key: max(begin[key], min(newest[key], self._available_now.get(key, 0))) for key in starts}
        )
        ends = self._limited(begin, until, unlimited=unlimited)
        self._latest = _latest(newest, ends)
        if not before.initial and all(ends[key] <= begin[key] for key in ends):
            return None
        self._last_batch = time.monotonic()
        return offsets.to_json(_offset(now, starts, ends))

    def _starts(self, before: SourceOffset, now: Subscribed) -> dict[TopicPartition, Start]:
        options = self._options
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
        options = self._options
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
