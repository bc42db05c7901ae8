"""The accumulator: rows that were sent and are not in the log yet, within `buffer.memory` (Kafka's RecordAccumulator).

Callers append rows to the open batch of a topic. A batch is ready when it is full, when it has lingered, or when the
program flushes. The sender takes ready batches of one topic at a time, in the order in which they were sent, as a
request that becomes one journal entry.

A signal handler or a finalizer may interrupt any of this in its own thread (`own_lock`). What it sends in the middle of
another call waits beside the queues until that call, or the sender, takes it over. An exception in the middle of a
call loses at most the row that the call was about: which rows there are is in the queues, and the rest is derived from
them again (`_mend`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.clients.own_lock import OwnLock
from pyspark_log.clients.producer_batch import ROW_BYTES, ProducerBatch, RowBatch
from pyspark_log_storage.errors import BufferExhausted, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log.clients.producer_batch import Delivery, OnDelivery
    from pyspark_log.clients.row_input import InputRow
    from pyspark_log.options.clients import ProducerOptions


class Request(msgspec.Struct, frozen=True):
    """Batches of one topic that are committed together."""

    topic: str
    batches: list[ProducerBatch]


class _Queue:
    """The batches of one topic, oldest first."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.ready: deque[ProducerBatch] = deque()
        self.open: RowBatch | None = None
        self.due = 0.0
        """When the open batch has lingered."""


class _Place:
    """The place in the queue of a thread that waits for room."""

    def __init__(self, size: int) -> None:
        self.size = size


class Accumulator:
    """The batches of a producer. Safe for any number of threads that send, and one that takes."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._batch_size = options.batch_size
        self._free = options.buffer_memory
        self._queues: dict[str, _Queue] = {}
        self._unsettled: set[ProducerBatch] = set()
        self.lock = OwnLock()
        """Of everything here, and of the futures of the rows."""
        self._is_interrupted = self.lock.is_mine
        self._lock = self.lock.lock
        self._late: deque[ProducerBatch] = deque()
        """What was sent by those who have interrupted the owner of the lock."""
        self._work: SimpleQueue[None] = SimpleQueue()
        """Has something when there may be something to take. Unlike a condition it needs no lock."""
        self._settled = self.lock.condition()
        """There is more room, and fewer batches are unsettled."""
        self._waiting: deque[_Place] = deque()
        """Those who wait for room, in the order in which they get it: otherwise large batches would wait forever."""
        self.settlers: Sequence[threading.Thread] = ()
        """The threads that call callbacks. They need not queue for room: the others wait for them."""
        self._is_closed = False

    def append(self, topic: str, row: InputRow, on_delivery: OnDelivery | None) -> Delivery:
        """Add a row. Raises `BufferExhausted`, and `InvalidInput` if the producer is closed."""
        size, lock = row[2] + ROW_BYTES, self._lock
        if lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 -- `is_mine`, which takes longer
            late = RowBatch(topic, self.lock)
            late.bytes = size
            delivery = late.append(row, on_delivery)
            self._send_late(late)
            return delivery
        try:
            lock.acquire()  # `with` takes twice as long, which is a tenth of a row's time
            if self._late:
                self._take_over()
            queue = self._queues.get(topic)
            batch = None if queue is None else queue.open
            if batch is None or self._waiting or size > self._free:
                batch = self._admit(topic, size)
            self._free -= size
            batch.bytes += size
            delivery = batch.append(row, on_delivery)
            if batch.bytes >= self._batch_size:
                self._seal(self._queues[topic])
                self._work.put(None)
            lock.release()
        except BaseException:
            if self._is_interrupted():  # else the lock is not taken yet, or not any more
                self._mend()
                lock.release()
            raise
        return delivery

    def _send_late(self, batch: ProducerBatch) -> None:
        """Add a whole batch, also in the middle of another call of this thread. It need not wait for room."""
        if self._is_closed:
            raise InvalidInput("this Producer is closed; make a new one")
        self._free -= batch.bytes
        self._unsettled.add(batch)
        self._late.append(batch)
        self._work.put(None)

    def _take_over(self) -> None:
        """Take what came late into the queues, behind all rows that were sent before. The caller holds the lock."""
        while self._late:
            batch = self._late[0]
            queue = self._queue(batch.topic)
            self._seal(queue)
            if not queue.ready or queue.ready[-1] is not batch:  # else the step after this one was interrupted
                queue.ready.append(batch)
            self._late.popleft()
        self._work.put(None)

    def _mend(self) -> None:
        """Put in order what an exception has left half done. The caller holds the lock."""
        for queue in self._queues.values():
            if queue.ready and queue.ready[-1] is queue.open:
                queue.open = None
            self._unsettled.update(queue.ready)
            if queue.open is not None:
                self._unsettled.add(queue.open)
        self._free = self._options.buffer_memory - sum(batch.bytes for batch in self._unsettled)
        self._work.put(None)
        self._settled.notify_all()

    def _queue(self, topic: str) -> _Queue:
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = _Queue(topic)
        return queue

    def _admit(self, topic: str, size: int) -> RowBatch:
        """Wait for room, and return the batch to which a row is to be added. The caller holds the lock."""
        if self._free < size + sum(place.size for place in self._waiting) or self._is_closed:
            self._wait_for(size)
        queue = self._queue(topic)
        batch = queue.open
        if batch is None:
            queue.due = monotonic() + self._options.linger
            batch = queue.open = RowBatch(topic, self.lock)
            self._unsettled.add(batch)
            self._work.put(None)
        return batch

    def add(self, batch: ProducerBatch) -> None:
        """Add a whole batch, behind all rows that were sent before. Raises what `append` raises.

        It may be larger than `buffer.memory`: then it waits until nothing else is in it.
        """
        if self._is_interrupted():
            self._send_late(batch)
            return
        with self._lock:
            try:
                batch.bytes = min(batch.bytes, self._options.buffer_memory)
                self._wait_for(batch.bytes)
                self._send_late(batch)
                self._take_over()
            except BaseException:
                self._withdraw(batch)
                self._mend()
                raise

    def _withdraw(self, batch: ProducerBatch) -> None:
        """Take a batch back that nobody has taken."""
        for batches in (self._late, *(queue.ready for queue in self._queues.values())):
            with contextlib.suppress(ValueError):
                batches.remove(batch)
        self._unsettled.discard(batch)

    def _wait_for(self, size: int) -> None:
        """Wait for room, first come, first served. The caller holds the lock, and takes the room."""
        deadline, place = monotonic() + self._options.max_block, _Place(size)
        try:
            if threading.current_thread() in self.settlers:
                self._waiting.appendleft(place)
            else:
                self._waiting.append(place)
            while (self._free < size or self._waiting[0] is not place) and not self._is_closed:
                self._seal_all()  # rows that linger would keep their room
                left = deadline - monotonic()
                if left <= 0 or size > self._options.buffer_memory:
                    raise BufferExhausted(
                        f"{size} bytes do not fit into buffer.memory ({self._options.buffer_memory} bytes, of which "
                        f"{self._options.buffer_memory - self._free} wait to be written) within max.block.ms; send "
                        "more slowly, or raise one of the two"
                    )
                self._settled.wait(left)
            if self._is_closed:
                raise InvalidInput("this Producer is closed; make a new one")
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            if self._waiting:
                self._settled.notify_all()

    def _seal_all(self) -> None:
        """Let no batch wait for more rows."""
        self._work.put(None)
        for queue in self._queues.values():
            self._seal(queue)

    def _seal(self, queue: _Queue) -> None:
        """Let a topic's open batch be taken."""
        if queue.open is not None:
            queue.ready.append(queue.open)  # first: `_mend` finds what is in both
            queue.open = None

    def take(self) -> Request | None:
        """Wait for ready batches and return those of one topic; None once the accumulator is closed and empty."""
        while True:
            with self._lock:
                request, due = self._next()
                if request is not None:
                    return request
                if self._is_closed and not self._late:
                    return None
            with contextlib.suppress(Empty):
                self._work.get(timeout=None if due is None else max(0.0, due - monotonic()))
                while True:
                    self._work.get_nowait()

    def _next(self) -> tuple[Request | None, float | None]:
        """Return a request, or when the next batch has lingered."""
        next_due, now = None, monotonic()
        if self._late:
            self._take_over()
        for queue in self._queues.values():
            if queue.open is not None and queue.due <= now:
                self._seal(queue)
            if queue.ready:
                del self._queues[queue.topic]  # the other topics come first next time
                self._queues[queue.topic] = queue
                return Request(queue.topic, self._group(queue)), None
            if queue.open is not None:
                next_due = queue.due if next_due is None else min(next_due, queue.due)
        return None, next_due

    def _group(self, queue: _Queue) -> list[ProducerBatch]:
        """Take the first ready batch, and those after it that fit into `batch.size` with it."""
        batches = [queue.ready.popleft()]
        room = self._options.batch_size - batches[0].bytes
        while queue.ready and queue.ready[0].bytes <= room:
            room -= queue.ready[0].bytes
            batches.append(queue.ready.popleft())
        return batches

    def release(self, batches: Iterable[ProducerBatch]) -> None:
        """Free the room of batches that are about to be settled: their callbacks may need it to send more."""
        with self._lock:
            for batch in batches:
                self._free += batch.bytes
                batch.bytes = 0
            self._settled.notify_all()

    def settled(self, batches: Iterable[ProducerBatch]) -> None:
        """Let those who flush continue: batches were settled, and their callbacks have run."""
        with self._lock:
            self._unsettled.difference_update(batches)
            self._settled.notify_all()

    def flush(self, seconds: float | None) -> int:
        """Wait until all rows that were sent before are settled; return the number of batches that are not."""
        deadline = None if seconds is None else monotonic() + seconds
        self.lock.refuse_interrupts("flush")
        with self._lock:
            try:
                self._seal_all()
                mine = set(self._unsettled)
                while mine := mine & self._unsettled:
                    left = None if deadline is None else deadline - monotonic()
                    if left is not None and left <= 0:
                        break
                    self._settled.wait(left)
                return len(mine)
            except BaseException:
                self._mend()
                raise

    def close(self) -> None:
        """Let nothing more in."""
        self.lock.refuse_interrupts("close")
        with self._lock:
            try:
                self._is_closed = True
                self._seal_all()
                self._settled.notify_all()
            except BaseException:
                self._mend()
                raise

    def drop(self) -> list[ProducerBatch]:
        """Take all batches that nobody has taken, and return them."""
        with self._lock:
            self._take_over()
            batches = [batch for queue in self._queues.values() for batch in queue.ready]
            self._queues.clear()
            return batches
