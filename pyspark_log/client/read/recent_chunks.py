"""Recent chunks: what a process has decoded of chunks that the next micro-batch goes on with.

A query with `maxOffsetsPerTrigger` may take a hundred rows of a chunk of a hundred thousand: without this each
micro-batch would read and decode the whole chunk again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pyarrow as pa

BYTES_MAX = 32 * 1024 * 1024


class RecentChunks:
    """The rows of chunks, the least recently used of which go when there is no room. Used by one thread."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[Hashable, pa.RecordBatch] = OrderedDict()

    def take(self, chunk: Hashable) -> pa.RecordBatch | None:
        """Return the rows of a chunk, which is forgotten thereby; None where it is not known."""
        batch = self._kept.pop(chunk, None)
        if batch is not None:
            self._bytes -= batch.nbytes
        return batch

    def keep(self, chunk: Hashable, batch: pa.RecordBatch) -> None:
        """Remember the rows of a chunk; one that is too large for all the room is not kept."""
        self.take(chunk)
        if batch.nbytes > self._bytes_max:
            return
        self._kept[chunk] = batch
        self._bytes += batch.nbytes
        while self._kept and self._bytes > self._bytes_max:
            self.take(next(iter(self._kept)))
