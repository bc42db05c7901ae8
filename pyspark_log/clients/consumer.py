"""The Python `Consumer`: reads partitions of topics from any program, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pyspark_log.client.opening import own_log
from pyspark_log.client.read.planning import Range, split_of
from pyspark_log.client.read.positions import offset_for_time
from pyspark_log.clients.arguments import offset_of, partition_of
from pyspark_log.clients.assigned import AssignedPartition
from pyspark_log.clients.looks import Looks
from pyspark_log.clients.records import ConsumerBatch, ConsumerRecord, OffsetAndTimestamp, TopicPartition
from pyspark_log.clients.row_output import first_timestamp_ms, records_of
from pyspark_log.options.consumer import parse_consumer
from pyspark_log_storage.errors import InvalidInput, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

BUSY_LOOK_SECONDS = 0.1
"""How often a consumer that has rows to return looks for newer ones."""
_ITERATION_MS = 1000

T = TypeVar("T")


class Consumer:
    """Reads partitions of topics.

        with Consumer("/data/log", auto_offset_reset="earliest") as consumer:
            consumer.assign(consumer.partitions("flights"))
            for record in consumer:
                print(record.offset, record.value)

    It returns rows below the high watermark only, those of a partition in order. It stores no offsets: a program that
    continues later keeps `position` with its results.

    A Consumer is for one thread at a time, except `close`; a call from a second thread raises `InvalidInput`.
    """

    def __init__(
        self, path: str | os.PathLike[str], config: Mapping[str, object] | None = None, **options: Any
    ) -> None:
        """Take the address of a cluster and options by Kafka's names, as a dict or with `_` for `.`.

        Reads nothing yet. docs/options.md lists the options. Raises `InvalidOption`.
        """
        self._options = parse_consumer(config, options)
        self._log = own_log(os.fspath(path))
        self._looks = Looks(self._log, self._options.longest_pause)
        self._assigned: OrderedDict[TopicPartition, AssignedPartition] = OrderedDict()
        """The partition that was read last is the last one."""
        self._before: dict[AssignedPartition, tuple[int | None, int]] = {}
        """The places of partitions before the rows were taken that a call is to return."""
        self._ahead: list[ConsumerRecord] = []
        """Rows that an iteration has not come to, the next one last."""
        self._looked = -float("inf")
        self._in_use = threading.Lock()
        self._closed = threading.Event()

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        with self._alone():
            self._looks.open()
            return set(self._log.topics())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Raises `UnknownTopic`."""
        with self._alone():
            return set(range(len(self._topic(topic).journal.state.partitions)))

    def partitions(self, *topics: str) -> list[TopicPartition]:
        """Return all partitions of some topics, for `assign`. Raises `UnknownTopic`."""
        return [
            TopicPartition(topic, number) for topic in topics for number in sorted(self.partitions_for_topic(topic))
        ]

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read these partitions from now on, and no others.

        `start` is where to begin, or the offset of each partition. A partition without an offset keeps its position if
        it is assigned already, else begins as `auto.offset.reset` says. Raises `UnknownTopic`, and `InvalidInput` for a
        partition that does not exist.
        """
        if not (start is None or start in ("earliest", "latest") or isinstance(start, Mapping)):
            raise InvalidInput(
                f"start is {start!r}; give earliest, latest, or a dict with the offset of each partition"
            )
        with self._alone():
            self._hand_back()
            handles: dict[str, TopicHandle] = {}
            assigned: OrderedDict[TopicPartition, AssignedPartition] = OrderedDict()
            for key in dict.fromkeys(partition_of(each) for each in partitions):
                handle = handles.get(key.topic) or self._topic(key.topic)
                handles[key.topic] = handle
                state = handle.journal.state.partition(key.partition)
                known = self._assigned.get(key)
                if known is None or known.handle.topic_id != handle.topic_id:
                    known = AssignedPartition(handle, key.partition, self._options)
                known.handle = handle  # the log makes new ones when its journals have moved
                if start == "earliest":
                    known.seek(state.log_start)
                elif start == "latest":
                    known.seek(state.high_watermark)
                elif isinstance(start, Mapping) and key in start:
                    known.seek(offset_of(start[key]))
                assigned[key] = known
            self._assigned = assigned

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._assigned)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next rows, at most `max_records` (`max.poll.records`), in order within each partition.

        If there are none, wait for up to `timeout_ms` milliseconds and then return an empty list. A row that arrives is
        seen after a pause between two looks, see `fetch.max.wait.ms`.

        Raises `InvalidInput` if nothing is assigned, `UnknownTopic` for a topic that was deleted, `CorruptObject` and
        `StoreError` if no replica can be read, and `DataLoss` for an offset that is not in the log any more if
        `auto.offset.reset` is none. After an error the positions are those before it.
        """
        with self._alone():
            self._hand_back()
            return self._poll(timeout_ms, max_records or self._options.max_poll_records)

    def poll_batches(self, timeout_ms: float = 0) -> list[ConsumerBatch]:
        """Return the next rows as Arrow batches, up to the one with which they have `fetch.max.bytes`.

        Waits and raises as `poll`.
        """
        with self._alone():
            self._hand_back()
            return self._wait_for(self._take_batches, timeout_ms)

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Read a partition from `offset` next.

        If the log does not have that offset when the partition is read, `auto.offset.reset` decides.
        """
        with self._alone():
            self._hand_back()
            self._of(partition).seek(offset_of(offset))

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read partitions, by default all that are assigned, from their first row."""
        self._seek_to(partitions, lambda state: state.log_start)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read only rows that are new from now on, of some or all assigned partitions."""
        self._seek_to(partitions, lambda state: state.high_watermark)

    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next row of a partition.

        In an iteration that is the row after the one that was returned last. Raises as `poll`.
        """
        with self._alone():
            found = self._of(partition)
            ahead = (each.offset for each in reversed(self._ahead) if (each.topic, each.partition) == found.key)
            first = next(ahead, None)
            return found.position() if first is None else first

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return no rows of these partitions until `resume`."""
        with self._alone():
            self._hand_back()
            for each in partitions:
                self._of(each).is_paused = True

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return rows of these partitions again."""
        with self._alone():
            for each in partitions:
                self._of(each).is_paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {key for key, each in self._assigned.items() if each.is_paused}

    def beginning_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets(partitions, lambda state: state.log_start)

    def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the end of each partition: its high watermark, the offset of the next row that can be read."""
        return self._offsets(partitions, lambda state: state.high_watermark)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first row of each partition whose timestamp is the given one or later; None if there is none."""
        with self._alone():
            found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
            for given, ms in times_ms.items():
                key = partition_of(given)
                handle = self._topic(key.topic)
                handle.journal.state.partition(key.partition)  # raises if there is no such partition
                offset = offset_for_time(handle, key.partition, ms, self._options.rack)
                found[key] = None
                if offset is not None:
                    split = split_of(handle, Range(*key, offset, offset + 1), self._options.rack)
                    found[key] = OffsetAndTimestamp(offset, first_timestamp_ms(self._log.store_at, split))
            return found

    def close(self) -> None:
        """Stop: a waiting `poll` returns, iterations end, and later calls raise `InvalidInput`. For any thread."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next row; wait until there is one, or the Consumer is closed."""
        while not self._closed.is_set():
            if self._ahead:
                return self._ahead.pop()
            with self._alone():
                self._ahead = self._poll(_ITERATION_MS, self._options.max_poll_records)[::-1]
        raise StopIteration

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next row; wait without blocking the event loop. Rows are read in a thread of its executor."""
        while not self._closed.is_set():
            if self._ahead:
                return self._ahead.pop()
            reading = asyncio.ensure_future(asyncio.to_thread(self._read_ahead))
            try:
                await asyncio.shield(reading)
            except asyncio.CancelledError:
                await reading  # a moment: what it reads stays for the next call
                raise
            if not self._ahead:
                await asyncio.sleep(self._looks.pause())
        raise StopAsyncIteration

    def _read_ahead(self) -> None:
        if self._closed.is_set():
            return
        with self._alone():
            self._ahead = self._poll(0, self._options.max_poll_records)[::-1]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second thread, and everything after `close`."""
        if self._closed.is_set():
            raise InvalidInput("this Consumer is closed; make a new one")
        if not self._in_use.acquire(blocking=False):
            raise InvalidInput("this Consumer is in use by another thread; use one Consumer for each thread")
        try:
            yield
        finally:
            self._in_use.release()

    def _poll(self, timeout_ms: float, rows_max: int) -> list[ConsumerRecord]:
        def take() -> list[ConsumerRecord]:
            records: list[ConsumerRecord] = []
            with _raised_if_empty(records):
                while len(records) < rows_max and (batch := self._take(rows_max - len(records))) is not None:
                    records += records_of(batch)
            return records

        return self._wait_for(take, timeout_ms)

    def _take_batches(self) -> list[ConsumerBatch]:
        batches: list[ConsumerBatch] = []
        size = 0
        with _raised_if_empty(batches):
            while size < self._options.fetch_bytes and (batch := self._take(None)) is not None:
                batches.append(batch)
                size += batch.rows.nbytes
        return batches

    def _wait_for(self, take: Callable[[], list[T]], timeout_ms: float) -> list[T]:
        """Return what `take` returns, once that is not empty or the time is over.

        If the call ends with an error or an interrupt, the rows that were taken are read again.
        """
        if not self._assigned:
            raise InvalidInput("no partition is assigned; call assign first")
        deadline = monotonic() + timeout_ms / 1000
        try:
            while True:
                self._before = {}
                self._look()
                if found := take():
                    self._looks.found()
                    return found
                left = deadline - monotonic()
                if left <= 0 or self._closed.wait(min(self._looks.pause(), left)):
                    return found
        except BaseException:
            for each, place in self._before.items():
                each.go_back(place)
            raise

    def _look(self) -> None:
        """Look for new rows, unless there are enough and the last look was a moment ago."""
        if monotonic() - self._looked < BUSY_LOOK_SECONDS and any(each.has_rows for each in self._assigned.values()):
            return
        self._looks.look({each.handle.topic_id: each.handle for each in self._assigned.values()}.values())
        self._looked = monotonic()

    def _take(self, rows_max: int | None) -> ConsumerBatch | None:
        """Return the next rows of a partition. Each has its turn after one batch."""
        for key, each in list(self._assigned.items()):
            if each.is_paused:
                continue
            self._before.setdefault(each, each.place)
            batch = each.take(rows_max)
            if batch is not None:
                if not each.is_within_batch:
                    self._assigned.move_to_end(key)  # the others come first now
                return batch
        return None

    def _hand_back(self) -> None:
        """Put back the rows that an iteration has read and not returned."""
        for record in self._ahead:  # the first one of each partition is the last
            self._assigned[TopicPartition(record.topic, record.partition)].seek(record.offset)
        self._ahead = []

    def _topic(self, name: str) -> TopicHandle:
        self._looks.open()
        return self._log.topic(name)

    def _of(self, partition: TopicPartition | tuple[str, int]) -> AssignedPartition:
        key = partition_of(partition)
        found = self._assigned.get(key)
        if found is None:
            raise InvalidInput(f"topic {key.topic!r}, partition {key.partition} is not assigned; assign it first")
        return found

    def _seek_to(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], where: Callable[[Partition], int]
    ) -> None:
        with self._alone():
            self._hand_back()
            chosen = [self._of(each) for each in partitions] or list(self._assigned.values())
            for handle in {each.handle.topic_id: each.handle for each in chosen}.values():
                handle.refresh()
            for each in chosen:
                each.seek(where(each.state))

    def _offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], which: Callable[[Partition], int]
    ) -> dict[TopicPartition, int]:
        with self._alone():
            keys = [partition_of(each) for each in partitions]
            handles = {topic: self._topic(topic) for topic in {key.topic for key in keys}}
            return {key: which(handles[key.topic].journal.state.partition(key.partition)) for key in keys}


@contextlib.contextmanager
def _raised_if_empty(found: list[T]) -> Iterator[None]:
    """Let an error wait for the next call if there are rows that the caller would lose."""
    try:
        yield
    except LogError:
        if not found:
            raise
