"""Recent chunks: a cache of decoded chunks that the next micro-batch continues.

With `maxOffsetsPerTrigger` a micro-batch may take a hundred rows of a chunk of a hundred thousand. Without the cache
each would read and decode the whole chunk again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pyarrow as pa

BYTES_MAX = 32 * 1024 * 1024


class RecentChunks:
    """Decoded chunks by key, evicted in least recently used order. Safe for any number of threads."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, pa.RecordBatch] = OrderedDict()

    def take(self, chunk: Hashable) -> pa.RecordBatch | None:
        """Remove a chunk and return its rows, or None if it is not cached."""
        with self._lock:
            return self._remove(chunk)

    def keep(self, chunk: Hashable, batch: pa.RecordBatch) -> None:
        """Cache the rows of a chunk, unless they alone exceed the limit."""
        with self._lock:
            self._remove(chunk)
            if batch.nbytes > self._bytes_max:
                return
            self._kept[chunk] = batch
            self._bytes += batch.nbytes
            while self._kept and self._bytes > self._bytes_max:
                self._remove(next(iter(self._kept)))

    def _remove(self, chunk: Hashable) -> pa.RecordBatch | None:
        batch = self._kept.pop(chunk, None)
        if batch is not None:
            self._bytes -= batch.nbytes
        return batch
