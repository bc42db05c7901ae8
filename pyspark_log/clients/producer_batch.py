"""Batches of a producer: rows of one topic that are sequenced together, and their futures.

    RowBatch       collects rows one by one, in a list that becomes Arrow columns at once
    ArrowBatch     rows that are Arrow columns already

A batch is settled once, with its offsets or an error, by the sender's thread.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from time import time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_log.clients.records import OFFSET_UNKNOWN, BatchMetadata, Headers, RecordMetadata
from pyspark_log.writing.partitioner import group_by_partition, partition_of
from pyspark_log.writing.rows import Rows
from pyspark_log_storage import logs
from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_log.clients.own_lock import OwnLock
    from pyspark_log.clients.row_input import InputRow, RareParts

OnDelivery: TypeAlias = Callable[[BaseException | None, RecordMetadata | None], object]
"""Called with the error, or with where the row is."""

ROW_BYTES = 64
"""Counted for each row besides its key, value and headers."""
_ROW_PARTS = 3
M = TypeVar("M")
_US_PER_MS = 1000
_US_PER_SECOND = 1_000_000
_FUTURES_OWN = frozenset({*vars(Future()), "_lock"})


class _LockedFuture(Future[M]):
    """A future whose lock is the Producer's. Whoever would wait for it in the middle of another call is refused."""

    _lock: OwnLock

    def result(self, timeout: float | None = None) -> M:
        """As of a future. Raises `InvalidInput` in a signal handler or finalizer that has interrupted the Producer."""
        self._lock.refuse_interrupts("wait for a row")
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of a future. Raises as `result`."""
        self._lock.refuse_interrupts("wait for a row")
        return super().exception(timeout)


def _future(lock: OwnLock) -> Future[Any]:
    future: _LockedFuture[Any] = _LockedFuture()
    future._lock = lock  # noqa: SLF001 -- of this module
    future._condition = lock.condition()  # noqa: SLF001 -- as its class sets it
    return future


class Delivery(_LockedFuture[RecordMetadata]):
    """The future of one row, which costs almost nothing until it is used.

    A future of the standard library has a lock and a condition of its own, which take longer to make than a row takes
    to be written. So this is only a batch and the number of a row in it, and becomes a real future on first use.
    """

    __slots__ = ("batch", "row")
    __init__ = object.__init__  # RowBatch.append sets `batch` and `row`; Future.__init__ is called on first use
    batch: RowBatch
    row: int

    def __getattr__(self, name: str) -> Any:
        """Become a real future. Called for an attribute that is missing."""
        if name not in _FUTURES_OWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self.batch.lock.lock:
            if "_condition" not in self.__dict__:
                made = _future(self.batch.lock)
                self.batch.watch(self, self.row, made)
                vars(self).update(vars(made))  # in one step: whatever comes between finds all of it or nothing
        return getattr(self, name)

    def cancel(self) -> bool:
        """Return false: a row that was sent is on its way."""
        return False


class ProducerBatch(abc.ABC):
    """Rows of one topic, from their way into memory until they are in the log."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes = 0
        """What it takes of `buffer.memory`."""
        self.clock_offset_ms = 0
        """What to add to the clock of this machine."""
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        """The number of rows of each partition, once `rows` was called."""

    def rows(self, partitions: int, sticky: int, clock_offset_ms: int = 0) -> Rows:
        """Return the rows, each with its partition if there are several. `sticky` is for rows without a key.

        `clock_offset_ms` is added to the times at which they were sent, unless these were given.
        """
        self.clock_offset_ms = clock_offset_ms
        rows = self._columns()
        if partitions == 1 and rows.partition is None:
            self.counts = np.array([rows.record.num_rows])
            return rows
        ids = partition_of(rows.hashed(), rows.partition, partitions, sticky)
        self.counts = np.bincount(ids, minlength=partitions)
        self._assigned(ids)
        return Rows(rows.record, None, pa.array(ids), typed=rows.typed)

    @abc.abstractmethod
    def _columns(self) -> Rows:
        """Return the rows, and the partitions that they name."""

    def _assigned(self, ids: NDArray[np.int32]) -> None:  # noqa: B027 -- an Arrow batch needs them no more
        """Note the partition of each row, if futures of rows need it."""

    @abc.abstractmethod
    def succeed(self, offsets: Mapping[int, tuple[int, int]]) -> None:
        """Settle the futures: the rows are in the log. A partition without offsets is unknown."""

    @abc.abstractmethod
    def fail(self, error: BaseException) -> None:
        """Settle the futures: the rows are not in the log, or that is unknown."""


class RowBatch(ProducerBatch):
    """Rows that were sent one by one."""

    def __init__(self, topic: str, lock: OwnLock) -> None:
        """`lock` is the accumulator's."""
        super().__init__(topic)
        self.lock = lock
        self._rows: list[Any] = []
        """Key, value and time of each row, in seconds, one after another: a row is one step in one list.

        The time of a row with rare parts is a pair of both.
        """
        self._has_rare_parts = False
        self._timestamps: NDArray[np.int64] = np.zeros(0, np.int64)
        """The timestamp of each row in microseconds, once `rows` was called."""
        self._callbacks: list[tuple[int, OnDelivery]] = []
        self._watched: list[tuple[Delivery, int]] = []
        self._ids: NDArray[np.int32] | None = None
        """The partition of each row; None if all are in partition 0."""
        self._offsets: Mapping[int, tuple[int, int]] | None = None
        self._each_offset: NDArray[np.int64] | None = None
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._rows) // _ROW_PARTS

    def append(self, row: InputRow, on_delivery: OnDelivery | None) -> Delivery:
        """Add a row. Called by one thread at a time."""
        key, value, _, parts = row
        rows = self._rows
        delivery: Delivery = Delivery()
        delivery.batch = self
        delivery.row = number = len(rows) // _ROW_PARTS
        if parts is None:
            rows += (key, value, time())
        else:
            self._has_rare_parts = True
            rows += (key, value, (time(), parts))
        if on_delivery is not None:
            self._callbacks.append((number, on_delivery))
        return delivery

    def _columns(self) -> Rows:
        keys, values, times = (self._rows[part::_ROW_PARTS] for part in range(_ROW_PARTS))
        headers: dict[int, Headers] = {}
        partitions: dict[int, int] = {}
        timestamps: dict[int, int] = {}
        if self._has_rare_parts:
            for row, pair in enumerate(times):
                if isinstance(pair, tuple):
                    parts: RareParts
                    times[row], parts = pair
                    if parts[0]:
                        headers[row] = parts[0]
                    if parts[1] is not None:
                        partitions[row] = parts[1]
                    if parts[2] is not None:
                        timestamps[row] = parts[2]
        self._timestamps = (np.array(times) * _US_PER_SECOND).astype(np.int64) + self.clock_offset_ms * _US_PER_MS
        for row, timestamp in timestamps.items():
            self._timestamps[row] = timestamp
        columns = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(self._timestamps).view(schema.TIMESTAMP),
        ]
        kind, count = schema.RECORD, len(self)
        if headers:
            kind = schema.RECORD_WITH_HEADERS
            columns.append(pa.array([headers.get(row) for row in range(count)], schema.HEADERS))
        explicit = None
        if partitions:
            explicit = pa.array([partitions.get(row) for row in range(count)], pa.int32())
        return Rows(pa.RecordBatch.from_arrays(columns, schema=kind), None, explicit)

    def _assigned(self, ids: NDArray[np.int32]) -> None:
        self._ids = ids

    def succeed(self, offsets: Mapping[int, tuple[int, int]]) -> None:
        self._offsets = offsets
        self._settle()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._settle()

    def watch(self, delivery: Delivery, row: int, made: Future[RecordMetadata]) -> None:
        """Settle what the future of a row becomes, or do so when the batch is settled. The caller holds the lock."""
        if self._offsets is None and self._error is None:
            self._watched.append((delivery, row))
        else:
            self._tell(made, row)

    def _settle(self) -> None:
        # The rows themselves are not needed any more.
        self._rows = []
        with self.lock.lock:
            watched, self._watched = self._watched, []
        for delivery, row in watched:
            try:
                with contextlib.suppress(InvalidStateError):  # its first use was interrupted, and came twice
                    self._tell(delivery, row)
            except BaseException:  # futures catch only an Exception of their callbacks
                logs.exception("a callback of the future of a row of topic %(topic)r failed", topic=self.topic)
        for row, call in self._callbacks:
            try:
                if self._error is None:
                    call(None, self._metadata(row))
                else:
                    call(self._error, None)
            except BaseException:  # SystemExit too: it would end the thread that settles all other rows
                logs.exception("on_delivery of a row of topic %(topic)r failed", topic=self.topic)
        self._callbacks = []

    def _tell(self, future: Future[RecordMetadata], row: int) -> None:
        if self._error is None:
            future.set_result(self._metadata(row))
        else:
            future.set_exception(self._error)

    def _metadata(self, row: int) -> RecordMetadata:
        offsets, milliseconds = self._offsets, int(self._timestamps[row]) // _US_PER_MS
        assert offsets is not None
        if self._ids is None:
            offset = offsets[0][0] + row if 0 in offsets else OFFSET_UNKNOWN
            return RecordMetadata(self.topic, 0, offset, milliseconds)
        if self._each_offset is None:
            self._each_offset = _each_offset(self._ids, offsets)
        return RecordMetadata(self.topic, int(self._ids[row]), int(self._each_offset[row]), milliseconds)


class ArrowBatch(ProducerBatch):
    """Rows that were sent as an Arrow batch."""

    def __init__(self, topic: str, rows: Rows, lock: OwnLock) -> None:
        super().__init__(topic)
        self.future: Future[BatchMetadata] = _future(lock)
        self.future.set_running_or_notify_cancel()  # cannot be cancelled
        self._rows: Rows | None = rows
        self.bytes = rows.record.nbytes + ROW_BYTES

    def _columns(self) -> Rows:
        rows = self._rows
        assert rows is not None, "the batch was settled"
        return rows

    def succeed(self, offsets: Mapping[int, tuple[int, int]]) -> None:
        self._rows = None
        self.future.set_result(BatchMetadata(self.topic, dict(offsets)))

    def fail(self, error: BaseException) -> None:
        self._rows = None
        self.future.set_exception(error)


def share_out(batches: list[ProducerBatch], offsets: Mapping[int, tuple[int, int]]) -> list[dict[int, tuple[int, int]]]:
    """Return the offsets of each of the batches that were committed together, in this order."""
    reached = {partition: start for partition, (start, _) in offsets.items()}
    shares = []
    for batch in batches:
        share = {}
        for partition in np.flatnonzero(batch.counts).tolist():
            if partition in reached:
                start = reached[partition]
                reached[partition] = end = start + int(batch.counts[partition])
                share[partition] = start, end
        shares.append(share)
    return shares


def _each_offset(ids: NDArray[np.int32], offsets: Mapping[int, tuple[int, int]]) -> NDArray[np.int64]:
    order, bounds = group_by_partition(ids, int(ids.max()) + 1)
    each = np.full(len(ids), OFFSET_UNKNOWN, np.int64)
    for partition, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        if end > start and partition in offsets:
            first = offsets[partition][0]
            each[order[start:end]] = np.arange(first, first + end - start)
    return each
