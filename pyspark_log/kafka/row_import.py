"""The import of a topic's rows from Kafka, each once: what `pyspark-log import kafka` does.

A few partitions are read at a time. The rows of one partition are collected into a batch, which is one journal entry.
Its claim says the next offset to read in Kafka, and it is refused if its rows would get other offsets than planned; so
two imports at once cannot write a row twice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pyspark_log.kafka.client import is_end
from pyspark_log.kafka.import_plan import PartitionImport, gap, producer_of
from pyspark_log.kafka.offset_headers import KAFKA_OFFSET, LOG_OFFSET, offset_in, without
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.row_lines import TIMESTAMP_MS_MAX
from pyspark_log.writing.rows import Rows, rows_of
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.commit.commit import Batch, commit, detect_failures
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import BatchMismatch, InvalidRecord, LogError, OutcomeUnknown

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from pyspark_log.kafka.client import Kafka, KafkaTopic
    from pyspark_log_coordinator.log.log import Log, TopicHandle

PARTITIONS_AT_ONCE = 4
BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS = 200_000
AT_ONCE_FIRST = 100
AT_ONCE_MAX = 10_000
"""How many messages are taken from the client at once. It is less if they are large."""
_AT_ONCE_BYTES = 4 * 1024 * 1024
_US_PER_MS = 1000
_NO_TIMESTAMP = 0
"""confluent_kafka.TIMESTAMP_NOT_AVAILABLE."""


class Imported(msgspec.Struct):
    """What was imported of one partition."""

    partition: int
    rows: int
    next: int
    """The next offset to read in Kafka."""
    offset: int
    """The first offset of these rows here."""


class RowImport:
    """Imports the rows of one topic."""

    def __init__(
        self,
        log: Log,
        handle: TopicHandle,
        kafka: Kafka,
        topic: KafkaTopic,
        policy: RetryPolicy,
        *,
        keeps_offsets: bool,
    ) -> None:
        self._log = log
        self._handle = handle
        self._kafka = kafka
        self._topic = topic
        self._policy = policy
        self._keeps_offsets = keeps_offsets

    def run(self, plans: Sequence[PartitionImport], advance: Callable[[int], object]) -> list[Imported]:
        """Import what is planned. `advance` is called with the number of offsets that were passed.

        Batches that were committed before an error stay. Raises `InvalidInput` for a gap if offsets are kept.
        """
        parts = {each.partition: _Partition(self, each) for each in plans}
        left = iter([parts[each.partition] for each in plans if each.rows_max > 0])
        active: dict[int, _Partition] = {}
        consumer = self._kafka.consumer()
        try:
            self._begin(consumer, active, itertools.islice(left, PARTITIONS_AT_ONCE))
            at_most = AT_ONCE_FIRST
            while active:
                found = self._kafka.receive(consumer, at_most)
                for number, mine in _by_partition(found).items():
                    part = active.get(number)
                    if part is None:
                        continue
                    before = part.next
                    is_over = part.take(mine)
                    advance(part.next - before)
                    if is_over:
                        part.flush()
                        advance(part.plan.end - part.next)
                        del active[number]
                        with self._kafka.errors():
                            consumer.incremental_unassign(
                                [self._kafka.library.TopicPartition(self._topic.name, number)]
                            )
                        self._begin(consumer, active, itertools.islice(left, 1))
                at_most = _at_most(found)
        finally:
            for part in active.values():
                part.discard()
            consumer.close()
        return [parts[number].imported for number in sorted(parts)]

    def _begin(self, consumer: Consumer, active: dict[int, _Partition], parts: itertools.islice[_Partition]) -> None:
        for part in parts:
            active[part.plan.partition] = part
            place = self._kafka.library.TopicPartition(self._topic.name, part.plan.partition, part.plan.next)
            with self._kafka.errors():
                consumer.incremental_assign([place])

    def staging(self, *, again: bool) -> Staging:
        """Return a new staging of rows of the topic (`Begin`)."""
        if again:
            self._log.open(create=False)
            detect_failures(self._handle, self._policy)
        state = self._handle.refresh()
        destination = destination_of(self._handle, None, state.config.max_message_bytes)
        return Staging(
            self._log.store_at,
            lambda _: destination,
            self._handle.name,
            environment=self._log.environment,
            durable=True,
            sticky=0,
        )

    def new_staging(self) -> RetryingStaging:
        """Return a staging for a batch, which is small enough to be kept until it is durable."""
        return RetryingStaging(self.staging, self._log.environment, self._policy, kept_bytes_max=None)

    def commit(self, staging: RetryingStaging, part: _Partition, begin: int) -> None:
        """Append a batch of a partition that begins at offset `begin` here. Raises what `commit.commit` raises."""
        number = part.plan.partition
        claim = ProducerClaim(producer_of(self._topic, number), "", "", part.next)
        batch = Batch(claim, tuple(staging.finish()), "all", begins={number: begin})
        environment = self._log.environment
        deadline = environment.monotonic() + self._policy.delivery_timeout_ms / 1000
        while True:
            try:
                retry(environment, self._policy, self._handle.refresh)
                commit(self._handle, batch, self._policy)
                return
            except OutcomeUnknown:  # under its claim the batch is in the log once
                if environment.monotonic() >= deadline:
                    raise
            except BatchMismatch as error:
                raise self._refused(part, error) from None
            environment.sleep(self._policy.backoff_seconds)

    def _refused(self, part: _Partition, error: BatchMismatch) -> LogError:
        known = self._handle.refresh().producers.get(producer_of(self._topic, part.plan.partition))
        if known is not None and known.batch_id != part.committed:
            return LogError(
                f"{part.where}: another import of topic {self._topic.name!r} has written rows up to offset "
                f"{known.batch_id} in the meantime; this one has written none of them twice. Run one import at a time"
            )
        return error

    @property
    def keeps_offsets(self) -> bool:
        """Whether each row must get the offset that it has in Kafka."""
        return self._keeps_offsets

    @property
    def name(self) -> str:
        """The name of the topic here."""
        return self._handle.name


class _Partition:
    """The import of one partition."""

    def __init__(self, whole: RowImport, plan: PartitionImport) -> None:
        self._whole = whole
        self.plan = plan
        self.next = self.committed = plan.next
        """The next offset to read in Kafka, and that of the last batch in the log."""
        self._begin = self._end = plan.offset
        """The offsets here at which the batch begins and ends."""
        self._staging: RetryingStaging | None = None
        self.imported = Imported(plan.partition, 0, plan.next, plan.offset)
        self.where = f"topic {whole.name!r}, partition {plan.partition}"

    def take(self, messages: Sequence[Message]) -> bool:
        """Add messages to the batch; commit it if it is full. Return whether the partition is at its end."""
        rows = [each for each in messages if not is_end(each) and self.next <= _offset(each) < self.plan.end]
        is_over = any(_offset(each) + (not is_end(each)) >= self.plan.end for each in messages)
        if rows:
            kept = self._kept(rows)
            self._add(rows[:kept])
            if kept < len(rows):
                self.flush()
                raise gap(self.where, self.next, _offset(rows[kept]))
        staging = self._staging
        if staging is not None and (staging.bytes_added >= BATCH_BYTES or self._end - self._begin >= BATCH_ROWS):
            self.flush()
        return is_over

    def flush(self) -> None:
        """Commit the batch, if it has rows."""
        if self._staging is None:
            return
        self._whole.commit(self._staging, self, self._begin)
        self._staging = None
        self.imported.rows += self._end - self._begin
        self.imported.next = self.committed = self.next
        self._begin = self._end

    def discard(self) -> None:
        """Discard the batch."""
        if self._staging is not None:
            self._staging.discard()
            self._staging = None

    def _kept(self, rows: Sequence[Message]) -> int:
        """Return how many of the rows come before a gap, all if offsets are mapped."""
        end = self._end
        if not self._whole.keeps_offsets or (_offset(rows[0]) == end and _offset(rows[-1]) == end + len(rows) - 1):
            return len(rows)
        return next(index for index, each in enumerate(rows) if _offset(each) != end + index)

    def _add(self, rows: Sequence[Message]) -> None:
        if not rows:
            return
        staging = self._staging = self._staging or self._whole.new_staging()
        try:
            staging.add(_rows(rows, self.plan.partition, self._end))
        except InvalidRecord as error:
            first, last = _offset(rows[0]), _offset(rows[-1])
            raise InvalidRecord(f"{self.where}: of Kafka's offsets {first} to {last}: {error.message}") from error
        self._end += len(rows)
        self.next = _offset(rows[-1]) + 1


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "it was read from a partition"
    return offset


def _by_partition(messages: Sequence[Message]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for each in messages:
        found.setdefault(each.partition() or 0, []).append(each)
    return found


def _at_most(messages: Sequence[Message]) -> int:
    """Return how many messages to take next, so that a few megabytes come at once."""
    size = sum(len(each) for each in messages if not is_end(each))
    return max(1, min(AT_ONCE_MAX, _AT_ONCE_BYTES * len(messages) // max(1, size)))


def _rows(messages: Sequence[Message], partition: int, begin: int) -> Rows:
    """Return messages as rows, the first of which gets offset `begin`. Each keeps its headers, key and time."""
    headers: list[Any] = [each.headers() or None for each in messages]
    for index, each in enumerate(messages):
        own = headers[index]
        if own is not None:
            own = without(own, LOG_OFFSET) or None
        # A row that had such a header in Kafka gets one of its own too: the last one says where the row was.
        if _offset(each) != begin + index or offset_in(own or (), KAFKA_OFFSET) is not None:
            own = [*(own or ()), (KAFKA_OFFSET, b"%d" % _offset(each))]
        headers[index] = own
    columns = {
        "key": pa.array([each.key() for each in messages], pa.binary()),
        "value": pa.array([each.value() for each in messages], pa.binary()),
        "timestamp": pa.array([_time_us(each) for each in messages], schema.TIMESTAMP),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
    }
    if any(each is not None for each in headers):
        columns["headers"] = pa.array(headers, schema.HEADERS)
    batch = pa.RecordBatch.from_pydict(columns)
    return rows_of(batch, now_us=time.time_ns() // 1000, by_topic_column=False)


def _time_us(message: Message) -> int | None:
    """Return the time of a message. Very old formats of Kafka have none. Raises `InvalidRecord`."""
    kind, ms = message.timestamp()
    if kind == _NO_TIMESTAMP:
        return None
    if abs(ms) > TIMESTAMP_MS_MAX:
        raise InvalidRecord(
            f"the row at offset {_offset(message)} has the time {ms} ms, which is too large for microseconds (was it "
            "given in nanoseconds?); copy the topic with Spark, and correct the time"
        )
    return ms * _US_PER_MS
