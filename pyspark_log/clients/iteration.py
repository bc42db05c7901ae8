"""Row after row: `for record in consumer` and `async for record in consumer`."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from typing_extensions import Self

    from pyspark_log.clients.reading import Reading
    from pyspark_log.clients.records import ConsumerRecord

_ITERATION_MS = 1000


class RowIteration:
    """The iterations of a consumer, which end when it is closed."""

    _reading: Reading
    _closed: threading.Event

    def _alone(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _read_ahead(self, timeout_ms: float) -> None:
        """Read rows for the iteration, and wait for them for some time."""
        raise NotImplementedError

    def _pause(self) -> float:
        """Return how many seconds to wait before the next look."""
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next row; wait until there is one, or the Consumer is closed."""
        while not self._closed.is_set():
            if self._reading.ahead:
                return self._reading.next_ahead()
            with self._alone():
                self._read_ahead(_ITERATION_MS)
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next row; wait without blocking the event loop. Rows are read in a thread of its executor."""
        while not self._closed.is_set():
            if self._reading.ahead:
                return self._reading.next_ahead()
            reading = asyncio.ensure_future(asyncio.to_thread(self._read_now))
            try:
                await asyncio.shield(reading)
            except asyncio.CancelledError:
                await reading  # a moment: what it reads stays for the next call
                raise
            if not self._reading.ahead:
                await asyncio.sleep(self._pause())
        raise StopAsyncIteration

    def _read_now(self) -> None:
        if self._closed.is_set():
            return
        with self._alone():
            self._read_ahead(0)
