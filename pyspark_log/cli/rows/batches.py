"""Batches of lines that are written to a topic, each with one journal entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark_log.clients.producer import Producer


class Written(msgspec.Struct):
    """The rows added to one partition. Rows of other writers may be between the first and the last."""

    rows: int
    first_offset: int
    last_offset: int


class Batches:
    """Decodes lines and writes the rows in batches."""

    def __init__(self, producer: Producer, topic: str, decode: Callable[[list[bytes], int], pa.RecordBatch]) -> None:
        """`decode` returns the rows of lines, given the number of the first line."""
        self._producer = producer
        self._topic = topic
        self._decode = decode
        self._rows: list[pa.RecordBatch] = []
        """Of the current batch."""
        self._lines_decoded = 0
        self.bytes_pending = 0
        """The number of bytes of the current batch in memory."""
        self.lines_written = 0
        self.written: dict[int, Written] = {}
        """By partition."""

    @property
    def lines_pending(self) -> int:
        """The number of lines in the current batch."""
        return self._lines_decoded - self.lines_written

    def add(self, lines: list[bytes]) -> None:
        """Add lines to the current batch. Raises `InvalidRecord`."""
        rows = self._decode(lines, self._lines_decoded + 1)
        self._rows.append(rows)
        self.bytes_pending += rows.nbytes
        self._lines_decoded += len(lines)

    def end(self) -> None:
        """Write the current batch. Raises what `Producer.send_batch` and its future raise."""
        if not self._rows:
            return
        rows, self._rows, self.bytes_pending = pa.Table.from_batches(self._rows), [], 0
        done = self._producer.send_batch(self._topic, rows).result()
        self.lines_written = self._lines_decoded
        for partition, (start, end) in done.offsets.items():
            before = self.written.get(partition, Written(0, start, end))
            self.written[partition] = Written(before.rows + end - start, before.first_offset, end - 1)
