"""What a consumer reads: its assigned partitions in turn, and the rows that were read and not returned yet.

A partition has at most one Arrow batch in memory, and only one partition has one unless some are paused.

Arrow rows become records at the end. An Arrow scalar for each value would take most of the time. numpy reads Arrow's
buffers, because Arrow's own conversions import pandas where it is installed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_log.clients.records import ConsumerBatch, ConsumerRecord, TopicPartition
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.rows import of_handle, read_rows
from pyspark_log_coordinator.group.state import NO_EPOCH
from pyspark_log_coordinator.model.topic_state import changed_partitions
from pyspark_log_storage.columns.schema import is_typed
from pyspark_log_storage.errors import DataLoss, InvalidInput, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from pyspark_log.options.clients import ConsumerOptions
    from pyspark_log.reading.polling import Poller
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_storage.columns.keys import Offsets

BUSY_LOOK_SECONDS = 0.1
"""How often a consumer that has rows to return looks for newer ones."""
_US_PER_MS = 1000

T = TypeVar("T")


class Place(NamedTuple):
    """Where a consumer is in a partition, as of its last look. `offset` is None if `auto.offset.reset` will decide."""

    topic: str
    partition: int
    offset: int | None
    log_start: int
    high_watermark: int
    lag: int
    """The rows that it has not read; 0 if `offset` is None."""
    is_paused: bool


class AssignedPartition:
    """One partition that a consumer reads. The state of the topic is as of the last refresh of the handle."""

    def __init__(self, handle: TopicHandle, number: int, options: ConsumerOptions) -> None:
        self.key = TopicPartition(handle.name, number)
        self.handle = handle
        self.moved: Callable[[], None] = _nothing
        """Called when the partition may have rows to take that it had not before."""
        self._is_paused = False
        self._options = options
        self._offset: int | None = None
        """The next row, or None: as `auto.offset.reset` says."""
        self._epoch = NO_EPOCH
        """The leader epoch of the row before the position, if that is known."""
        self._fetched: Iterator[tuple[Offsets, pa.RecordBatch]] | None = None
        self._fetched_end = 0
        """Where the rows end that are fetched."""
        self._batch: pa.RecordBatch | None = None
        """Rows from the position on."""
        self._offsets = np.zeros(0, np.int64)
        """The offsets of these rows."""
        self._fetched_epoch = 0
        """The leader epoch when the read of these rows was planned."""

    @property
    def state(self) -> Partition:
        return self.handle.partitions[self.key.partition]

    @property
    def is_paused(self) -> bool:
        """Whether none of its rows are returned for now."""
        return self._is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self.moved()

    @property
    def end(self) -> int:
        """The end of the rows that follow those before the position, as it is known."""
        state = self.state
        if self._epoch == NO_EPOCH:
            return state.high_watermark
        return min(state.end_of_epoch(self._epoch), state.high_watermark)

    @property
    def has_rows(self) -> bool:
        """Whether `take` would return rows without a look at the journal."""
        if self.is_paused:
            return False
        return self._batch is not None or self._fetched is not None or self.position() < self.state.high_watermark

    @property
    def is_at_end(self) -> bool:
        """Whether all rows before the end were taken, as it is known."""
        return self._offset == self.end == self.state.high_watermark

    @property
    def is_within_batch(self) -> bool:
        """Whether rows of the last batch are left."""
        return self._batch is not None

    @property
    def place(self) -> tuple[int | None, int]:
        """The offset to read next and the leader epoch before it, for `go_back`."""
        return self._offset, self._epoch

    def go_back(self, place: tuple[int | None, int]) -> None:
        """Read on from where the partition was."""
        self._fetched = self._batch = None
        self._offset, self._epoch = place
        self.moved()

    def go_to_committed(self, group: Group) -> None:
        """Read on at the committed offset, if there is one."""
        committed = group.committed(self.handle.topic_id, self.key.partition)
        if committed is not None:
            self.go_back((committed.offset, committed.leader_epoch))

    def is_rewound(self, group: Group, since: int) -> bool:
        """Return whether the committed offset was reset after rewind number `since`."""
        return group.rewound(self.handle.topic_id, self.key.partition, since) is not None

    def seek(self, offset: int) -> None:
        self._offset, self._epoch = offset, NO_EPOCH
        self._fetched = self._batch = None
        self.moved()

    def begin(self) -> None:
        """Begin here if only rows that are new from now on are wanted: the first turn of the partition may be late."""
        if self._offset is None and self._options.reset == "latest":
            self.seek(self.state.high_watermark)

    def position(self) -> int:
        """Return the offset of the next row, which is in the log or its end.

        Raises `DataLoss`, `InvalidInput`, and `StoreError` if it has to look for newer rows.
        """
        offset = self._offset
        if self._batch is not None and offset is not None:
            return offset
        if offset is None:
            return self._reset(f"no offset is given for {self._name}", InvalidInput)
        if offset > self.end:  # a rewind or the program may know rows that are newer than the last look
            self.handle.refresh()
        state, end = self.state, self.end
        if offset < state.log_start:
            what = f"{self._name}: offset {offset} has expired, the log begins at {state.log_start}"
            return self._reset(what, DataLoss)
        if offset > end:
            if self._epoch != NO_EPOCH and self._options.reset != "none":
                # An unclean election has cut the rows before it: read those that took their place.
                self.seek(begin := max(end, state.log_start))
                return begin
            what = f"{self._name}: offset {offset} is not in the log, which ends at {end}"
            return self._reset(what, DataLoss)
        if self._epoch == NO_EPOCH:
            self._epoch = state.leader_epoch  # the rows before it must not be cut from now on
        return offset

    def take(self, rows_max: int | None, *, as_records: bool = False) -> ConsumerBatch | None:
        """Return the next rows, or None if there are none below the high watermark. After an error none were taken.

        Raises `CorruptObject`, `StoreError`, `DataLoss` or `InvalidInput` if `auto.offset.reset` is none, and
        `InvalidInput` for rows with columns of their own if they are taken `as_records`.
        """
        if self._batch is None and not self._read():
            return None
        batch, offsets = self._batch, self._offsets
        assert batch is not None
        if as_records and is_typed(batch.schema):
            raise InvalidInput(
                f"topic {self.key.topic!r} is typed: its rows have columns, and no key and value; read them with "
                "poll_batches"
            )
        if rows_max is not None and rows_max < batch.num_rows:
            rows, self._batch = batch.slice(0, rows_max), batch.slice(rows_max)
            offsets, self._offsets = offsets[:rows_max], offsets[rows_max:]
        else:
            rows, self._batch = batch, None
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        self._offset, self._epoch = end, self._fetched_epoch
        return ConsumerBatch(*self.key, first, rows, pa.array(offsets) if end - first > rows.num_rows else None)

    @property
    def _name(self) -> str:
        return f"topic {self.key.topic!r}, partition {self.key.partition}"

    def _reset(self, what: str, error: type[DataLoss | InvalidInput]) -> int:
        state = self.state
        match self._options.reset:
            case "earliest":
                self.seek(state.log_start)
            case "latest":
                self.seek(state.high_watermark)
            case _:
                raise error(f"{what}, and auto.offset.reset is none; seek to an offset, or set earliest or latest")
        assert self._offset is not None
        return self._offset

    def _read(self) -> bool:
        """Read the next batch, and return whether there is one."""
        known = None
        while True:
            try:
                return self._read_next()
            except DataLoss:  # since the read was planned; `position` says where to go on. It may happen again
                self.handle.refresh()
                newest = self.state.log_start, self.state.compactions, self.state.leader_epoch
                if newest == known:
                    raise
                known = newest

    def _read_next(self) -> bool:
        while True:
            if self._fetched is None:
                start, end = self.position(), self.state.high_watermark
                if start >= end:
                    return False
                split = split_of(self.handle, Range(*self.key, start, end), self._options.rack)
                joined = self._options.partition_fetch_bytes
                self._fetched = read_rows(split, of_handle(self.handle), batch_bytes_max=joined)
                self._fetched_epoch, self._fetched_end = self.state.leader_epoch, end
            try:
                found = next(self._fetched, None)
            except BaseException:
                self._fetched = None  # it ends now, and would be taken for one that has returned all rows
                raise
            if found is not None:
                offsets, batch = found
                assert self._offset is not None
                # Only below the compacted end may the rows between be gone.
                assert self._offset == offsets[0] or self._offset < self.state.compacted_end
                self._batch, self._offsets = batch, offsets
                return True
            self._fetched = None
            self._offset, self._epoch = self._fetched_end, self._fetched_epoch  # the last rows may be gone


class Reading:
    """The partitions that one consumer reads. Used by one thread at a time."""

    def __init__(self, poller: Poller, fetch_bytes: int) -> None:
        self._poller = poller
        self._fetch_bytes = fetch_bytes
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        """The assigned partitions, which only this class changes."""
        self._waiting: OrderedDict[TopicPartition, AssignedPartition] = OrderedDict()
        """Those that may have rows, in the order of their turns. So a call costs nothing for all the others."""
        self._topics: dict[str, TopicHandle] | None = None
        """The topics of the partitions, by id; None if other partitions were assigned since the last look."""
        self._seen: dict[str, tuple[Partition, ...]] = {}
        """The partitions of the topics, as of the last look."""
        self.ahead: list[ConsumerRecord] = []
        """Rows that an iteration has not come to, the next one last."""
        self._before: dict[AssignedPartition, tuple[int | None, int]] = {}
        """The places of partitions before the rows were taken that a call is to return."""
        self._looked = -float("inf")

    @property
    def is_at_end(self) -> bool:
        """Whether all rows that the last look saw were returned, but for those of paused partitions."""
        return not self.ahead and all(each.is_at_end or each.is_paused for each in self.partitions.values())

    def assign(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        for key in list(self.partitions):
            self.remove(key)
        for key, each in partitions.items():
            self.add(key, each)

    def add(self, key: TopicPartition, partition: AssignedPartition) -> None:
        """Read a partition, too."""
        self.remove(key)
        self.partitions[key] = partition
        self._wait(key)
        partition.moved = partial(self._wait, key)

    def remove(self, key: TopicPartition) -> None:
        """Read a partition no longer, if it was assigned."""
        self._topics = None
        removed = self.partitions.pop(key, None)
        self._waiting.pop(key, None)
        if removed is not None:
            removed.moved = _nothing

    def _wait(self, key: TopicPartition) -> None:
        """Give a partition its turn after those that wait for one."""
        if key not in self._waiting:
            self._waiting[key] = self.partitions[key]

    def begin(self) -> bool:
        """Begin to take the rows that a call is to return; `go_back` returns to this point.

        Return whether rows were taken before, and not put back by `go_back`.
        """
        before, self._before = self._before, {}
        return bool(before)

    def go_back(self) -> None:
        """Read again what was taken since `begin`."""
        before, self._before = self._before, {}
        if before:
            self.ahead = []
        for each, place in before.items():
            each.go_back(place)

    def look(self) -> None:
        """Look for new rows, unless there are enough and the last look was a moment ago."""
        topics = self._topics
        is_soon = monotonic() - self._looked < BUSY_LOOK_SECONDS and topics is not None
        if is_soon and any(each.has_rows for each in self._waiting.values()):
            return
        if topics is None:
            self._seen.clear()
            topics = {each.handle.topic_id: each.handle for each in self.partitions.values()}
        self._poller.poll(topics.values())
        self._looked = monotonic()
        if self._topics is None:
            for each in self.partitions.values():
                each.handle = topics[each.handle.topic_id]  # the log makes new ones when its journals have moved
                each.begin()
            self._topics = topics
        for topic_id, handle in topics.items():
            now = handle.partitions
            seen, self._seen[topic_id] = self._seen.get(topic_id), now
            if now is not seen:
                for number in changed_partitions(seen or (), now):
                    key = TopicPartition(handle.name, number)
                    if key in self.partitions:
                        self._wait(key)

    def take_records(self, rows_max: int) -> list[ConsumerRecord]:
        """Return the next rows, at most `rows_max`."""
        records: list[ConsumerRecord] = []
        with _raised_if_empty(records):
            while len(records) < rows_max:
                batch = self._take(rows_max - len(records), as_records=True)
                if batch is None:
                    break
                records += _records_of(batch)
        return records

    def take_ahead(self, rows_max: int) -> list[ConsumerRecord]:
        """Take the next rows, at most `rows_max`, for an iteration, and return them, too."""
        rows = self.take_records(rows_max)
        self.ahead = rows[::-1]
        return rows

    def take_batches(self) -> list[ConsumerBatch]:
        """Return the next batches, up to the one with which they have `fetch.max.bytes`."""
        batches: list[ConsumerBatch] = []
        size = 0
        with _raised_if_empty(batches):
            while size < self._fetch_bytes and (batch := self._take(None)) is not None:
                batches.append(batch)
                size += batch.rows.nbytes
        return batches

    def next_ahead(self) -> ConsumerRecord | None:
        """Return the next row of an iteration, None if it has read none. Another thread may hand back meanwhile."""
        ahead = self.ahead
        if not ahead:
            return None
        record = ahead[-1]
        del ahead[-1]  # not by `pop`, after which Python may raise KeyboardInterrupt
        return record

    def hand_back(self) -> None:
        """Put back the rows that an iteration has read and not returned."""
        for record in self.ahead:  # the first one of each partition is the last
            found = self.partitions.get(TopicPartition(record.topic, record.partition))
            if found is not None:
                _, epoch = found.place
                found.go_back((record.offset, epoch))  # a seek would not notice that rows before it were cut
        self.ahead = []

    def next_returned(self, key: TopicPartition) -> int | None:
        """Return the offset of the next row of a partition that an iteration will return, None if it has read none."""
        ahead = (each.offset for each in reversed(self.ahead) if (each.topic, each.partition) == key)
        return next(ahead, None)

    def consumed(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the next row after those that were returned, and the leader epoch before it, where that is known."""
        found = {}
        ahead = {(each.topic, each.partition): each.offset for each in self.ahead}  # the first one is the last
        for key, each in self.partitions.items():
            offset, epoch = each.place
            if offset is not None:
                found[key] = ahead.get(key, offset), epoch
        return found

    def places(self) -> list[Place]:
        """Return where the consumer is in each partition, in their order. Reads nothing and changes nothing."""
        offsets = self.consumed()
        found = []
        for key, each in sorted(self.partitions.items()):
            state = each.state
            low, high = state.log_start, state.high_watermark
            offset = offsets[key][0] if key in offsets else None
            lag = 0 if offset is None else state.rows_between(max(low, min(offset, each.end)), high)
            found.append(Place(*key, offset, low, high, lag, each.is_paused))
        return found

    def _take(self, rows_max: int | None, *, as_records: bool = False) -> ConsumerBatch | None:
        """Return the next rows of a partition. Each has its turn after one batch.

        A partition that cannot be read now comes after the others, and is an error only if they have no rows.
        """
        failure: LogError | None = None
        for _ in range(len(self._waiting)):
            key, each = next(iter(self._waiting.items()))
            if each.is_paused:
                del self._waiting[key]
                continue
            self._before.setdefault(each, each.place)
            try:
                batch = each.take(rows_max, as_records=as_records)
            except LogError as error:
                if not error.retriable:
                    raise
                failure = error
                self._waiting.move_to_end(key)
                continue
            if batch is not None:
                if not each.is_within_batch:
                    self._waiting.move_to_end(key)  # the others come first now
                return batch
            del self._waiting[key]  # until it changes
        if failure is not None:
            raise failure
        return None


def _nothing() -> None:
    """Do nothing."""


@contextlib.contextmanager
def _raised_if_empty(found: list[T]) -> Iterator[None]:
    """Let an error wait for the next call if there are rows that the caller would lose."""
    try:
        yield
    except LogError:
        if not found:
            raise


def _records_of(batch: ConsumerBatch) -> list[ConsumerRecord]:
    """Return the rows of a batch, one by one."""
    rows, topic, partition = batch.rows, batch.topic, batch.partition
    columns = (
        range(batch.offset, batch.offset + rows.num_rows) if batch.offsets is None else batch.offsets.to_pylist(),
        (_microseconds(rows.column("timestamp")) // _US_PER_MS).tolist(),
        values_of(rows.column("key")),
        values_of(rows.column("value")),
    )
    if "headers" in rows.schema.names:
        headers = (
            () if each is None else tuple((pair["key"], pair["value"]) for pair in each)
            for each in rows.column("headers").to_pylist()
        )
        return [ConsumerRecord(topic, partition, *row) for row in zip(*columns, headers, strict=True)]
    return [ConsumerRecord(topic, partition, o, t, k, v) for o, t, k, v in zip(*columns, strict=True)]


def values_of(column: pa.Array) -> list[bytes | None]:
    """Return the values of a binary column."""
    rows = len(column)
    if column.null_count == rows:
        return [None] * rows
    validity, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1]
    first, end = int(bounds[0]), int(bounds[-1])
    raw = b"" if data is None else data.slice(first, end - first).to_pybytes()
    values = [raw[start:stop] for start, stop in itertools.pairwise((bounds - first).tolist())]
    if column.null_count == 0:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    is_valid = bits[column.offset : column.offset + rows].tolist()
    return [value if valid else None for valid, value in zip(is_valid, values, strict=True)]


def _microseconds(column: pa.Array) -> NDArray[np.int64]:
    times: NDArray[np.int64] = np.frombuffer(column.buffers()[1], np.int64)
    return times[column.offset : column.offset + len(column)]
