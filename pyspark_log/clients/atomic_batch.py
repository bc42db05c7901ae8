"""The batch of `Producer.batch()`: rows that are kept apart until all of them are sequenced together."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pyspark_log.clients.producer_batch import ROW_BYTES, RowBatch
from pyspark_log.clients.row_input import checked_row
from pyspark_log_storage.errors import BufferExhausted, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log.clients.accumulator import Accumulator
    from pyspark_log.clients.producer_batch import OnDelivery
    from pyspark_log.clients.records import RecordMetadata
    from pyspark_log.clients.row_input import GivenHeaders, Text
    from pyspark_log.writing.destination import Destination

_NS_PER_US = 1000


class AtomicBatch:
    """Rows that are in the log together or not at all. For one thread."""

    def __init__(self, destination: Callable[[str], Destination], bytes_max: int) -> None:
        self._destination = destination
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: dict[str, RowBatch] = {}
        """By topic."""
        self._futures: list[Future[RecordMetadata]] = []
        """That of the first row of each topic."""
        self._is_open = True

    def send(  # noqa: PLR0913 -- as Producer.send
        self,
        topic: str,
        value: Text | None = None,
        key: Text | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Add a row; as `Producer.send`. Raises `BufferExhausted` if the rows exceed `buffer.memory`."""
        if not self._is_open:
            raise InvalidInput("the block of this batch has ended; begin another one with Producer.batch()")
        destination = self._destination(topic)
        row = checked_row(destination, value, key, headers, partition, timestamp_ms)
        self._bytes += row.size + ROW_BYTES
        if self._bytes > self._bytes_max:
            raise BufferExhausted(
                f"the rows of this batch take more than buffer.memory ({self._bytes_max} bytes); raise it, or write "
                "fewer rows in one batch"
            )
        batch = self._batches.get(topic)
        is_first = batch is None
        if batch is None:
            batch = self._batches[topic] = RowBatch(topic)
        batch.bytes += row.size + ROW_BYTES
        timestamp = time.time_ns() // _NS_PER_US if row.timestamp is None else row.timestamp
        future = batch.append(row.key, row.value, timestamp, row.headers, partition, on_delivery)
        if is_first:
            self._futures.append(future)
        return future

    def submit(self, accumulator: Accumulator) -> list[Future[RecordMetadata]]:
        """Hand the rows over to be written; return a future for each topic."""
        self._is_open = False
        try:
            accumulator.add(list(self._batches.values()))
        except BaseException:
            self.cancel()
            raise
        return self._futures

    def cancel(self) -> None:
        """Drop the rows and cancel their futures."""
        self._is_open = False
        for batch in self._batches.values():
            batch.cancel()
