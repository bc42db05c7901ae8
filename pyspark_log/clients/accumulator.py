"""The accumulator: rows that were sent and are not in the log yet, within `buffer.memory` (Kafka's RecordAccumulator).

Callers append rows to the open batch of a topic. A batch is ready when it is full, when it has lingered, or when the
program flushes. The sender takes ready batches of one topic at a time, in the order in which they were sent, as a
request that becomes one journal entry.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.clients.producer_batch import ROW_BYTES, ProducerBatch, RowBatch
from pyspark_log_storage.errors import BufferExhausted, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark_log.clients.producer_batch import Delivery, OnDelivery
    from pyspark_log.clients.row_input import InputRow
    from pyspark_log.options.producer import ProducerOptions

ROOM_BYTES = 16 * 1024
"""The room that an open batch takes of `buffer.memory` in advance, so that only every hundredth row has to ask."""


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


class Accumulator:
    """The batches of a producer. Safe for any number of threads that send, and one that takes."""

    def __init__(self, options: ProducerOptions) -> None:
        self._options = options
        self._free = options.buffer_memory
        self._queues: dict[str, _Queue] = {}
        self._unsettled: set[ProducerBatch] = set()
        lock = threading.Lock()
        self._lock = lock
        self._work = threading.Condition(lock)
        """There may be something to take."""
        self._settled = threading.Condition(lock)
        """There is more room, and fewer batches are unsettled."""
        self._waiting: deque[object] = deque()
        """Those who wait for room, in the order in which they get it: otherwise large batches would wait forever."""
        self._wanted = 0
        """The room that they wait for together."""
        self.settlers: Sequence[threading.Thread] = ()
        """The threads that call callbacks. They need not queue for room: the others wait for them."""
        self._is_closed = False

    def append(self, topic: str, row: InputRow, on_delivery: OnDelivery | None) -> Delivery:
        """Add a row. Raises `BufferExhausted`, and `InvalidInput` if the producer is closed."""
        size = row[2] + ROW_BYTES
        self._lock.acquire()  # `with` takes twice as long, which is a tenth of a row's time
        try:
            queue = self._queues.get(topic)
            batch = None if queue is None else queue.open
            if batch is not None and size <= batch.room:
                batch.room -= size
            else:
                batch = self._admit(topic, size)
            return batch.append(row, on_delivery)
        finally:
            self._lock.release()

    def _admit(self, topic: str, size: int) -> RowBatch:
        """Return the batch to which a row is to be added, sealed if that makes it full. The caller holds the lock."""
        if self._free < size + self._wanted or self._is_closed:
            self._reserve(size)
        else:
            self._free -= size
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = _Queue(topic)
        batch = queue.open
        if batch is None:
            batch = queue.open = RowBatch(topic)
            queue.due = monotonic() + self._options.linger
            self._unsettled.add(batch)
            self._work.notify()
        self._take_back(batch)
        batch.bytes += size
        if batch.bytes >= self._options.batch_size:
            self._seal(queue)
            self._work.notify()
        else:  # a row that makes the batch full must not find room
            room = min(ROOM_BYTES, self._options.batch_size - 1 - batch.bytes, self._free - self._wanted)
            if room > 0:
                self._free -= room
                batch.bytes += room
                batch.room = room
        return batch

    def add(self, batches: Sequence[ProducerBatch]) -> None:
        """Add whole batches, behind all rows that were sent before. Raises what `append` raises.

        Together they may be larger than `buffer.memory`: then they wait until nothing else is in it.
        """
        with self._lock:
            reserved = min(sum(batch.bytes for batch in batches), self._options.buffer_memory)
            self._reserve(reserved)
            for batch in batches:
                batch.bytes = min(batch.bytes, reserved)
                reserved -= batch.bytes
                queue = self._queues.get(batch.topic)
                if queue is None:
                    queue = self._queues[batch.topic] = _Queue(batch.topic)
                self._seal(queue)
                queue.ready.append(batch)
                self._unsettled.add(batch)
            self._work.notify()

    def _reserve(self, size: int) -> None:
        """Wait for room and take it, first come, first served. The caller holds the lock."""
        deadline, place = monotonic() + self._options.max_block, object()
        if threading.current_thread() in self.settlers:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        self._wanted += size
        try:
            while (self._free < size or self._waiting[0] is not place) and not self._is_closed:
                if self._seal_all():  # rows that linger would keep their room
                    continue
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
            self._free -= size
        finally:
            self._waiting.remove(place)
            self._wanted -= size
            if self._waiting:
                self._settled.notify_all()

    def _seal_all(self) -> int:
        """Let no batch wait for more rows; return how much room became free."""
        self._work.notify()
        return sum([self._seal(queue) for queue in self._queues.values()])

    def _seal(self, queue: _Queue) -> int:
        """Let a topic's open batch be taken, without its room; return how much that was."""
        batch, queue.open = queue.open, None
        if batch is None:
            return 0
        queue.ready.append(batch)
        return self._take_back(batch)

    def _take_back(self, batch: RowBatch) -> int:
        """Free the room of a batch; return how much that was."""
        room, batch.room = batch.room, 0
        batch.bytes -= room
        self._free += room
        return room

    def take(self) -> Request | None:
        """Wait for ready batches and return those of one topic; None once the accumulator is closed and empty."""
        with self._lock:
            while True:
                request, due = self._next()
                if request is not None:
                    return request
                if self._is_closed:
                    return None
                self._work.wait(None if due is None else max(0.0, due - monotonic()))

    def _next(self) -> tuple[Request | None, float | None]:
        """Return a request, or when the next batch has lingered."""
        next_due, now = None, monotonic()
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
            self._free += sum(batch.bytes for batch in batches)
            self._settled.notify_all()

    def settled(self, batches: Iterable[ProducerBatch]) -> None:
        """Let those who flush continue: batches were settled, and their callbacks have run."""
        with self._lock:
            self._unsettled.difference_update(batches)
            self._settled.notify_all()

    def flush(self, seconds: float | None) -> int:
        """Wait until all rows that were sent before are settled; return the number of batches that are not."""
        deadline = None if seconds is None else monotonic() + seconds
        with self._lock:
            self._seal_all()
            mine = set(self._unsettled)
            while mine := mine & self._unsettled:
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    break
                self._settled.wait(left)
            return len(mine)

    def close(self) -> None:
        """Let nothing more in."""
        with self._lock:
            self._is_closed = True
            self._seal_all()
            self._settled.notify_all()

    def drop(self) -> list[ProducerBatch]:
        """Take all batches that nobody has taken, and return them."""
        with self._lock:
            batches = [batch for queue in self._queues.values() for batch in queue.ready]
            self._queues.clear()
            return batches
