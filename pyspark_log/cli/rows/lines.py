"""Lines of input from a file, a pipe or a terminal, as they arrive."""

from __future__ import annotations

import io
import os
import select
import stat
from typing import BinaryIO

from pyspark_log_storage.errors import InvalidRecord

READ_BYTES = 1024 * 1024


class Lines:
    """Complete lines of a stream, without line ends (LF or CR LF). The last line may have no end."""

    def __init__(self, stream: BinaryIO, line_bytes_max: int) -> None:
        """`line_bytes_max` limits the memory of one line."""
        self._stream = stream
        self._line_bytes_max = line_bytes_max
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._ended = False
        self.bytes_read = 0
        self.lines_read = 0
        self.size: int | None = None
        """In bytes, if the stream is a file."""
        self._waits_on: int | None = None
        try:
            descriptor = stream.fileno()
        except (io.UnsupportedOperation, AttributeError):
            return
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            self.size = status.st_size
        else:
            self._waits_on = descriptor

    def read(self, timeout: float | None) -> list[bytes] | None:
        """Return the lines that have arrived, or None at the end of the stream.

        The list is empty if no line arrives within `timeout` seconds (None: wait forever). Raise `InvalidRecord` if a
        line is too long.
        """
        if self._ended:
            return None
        if self._waits_on is not None and not select.select([self._waits_on], [], [], timeout)[0]:
            return []
        data = self._stream.read1(READ_BYTES)  # type: ignore[attr-defined]  # of every buffered stream
        self.bytes_read += len(data)
        if not data:
            self._ended = True
            if not self._begun:
                return None
            lines = [b"".join(self._begun)]
        else:
            lines = self._whole(data)
        self.lines_read += len(lines)
        return [line.removesuffix(b"\r") for line in lines]

    def _whole(self, data: bytes) -> list[bytes]:
        head, end, tail = data.rpartition(b"\n")
        lines = []
        if end:
            lines = b"".join([*self._begun, head]).split(b"\n")
            self._begun, self._begun_bytes = [], 0
        if tail:
            self._begun.append(tail)
            self._begun_bytes += len(tail)
            if self._begun_bytes > self._line_bytes_max:
                raise InvalidRecord(
                    f"line {self.lines_read + len(lines) + 1} has more than {self._line_bytes_max:,} bytes, which is "
                    "too long for this topic; check the input, or increase the topic's max.message.bytes"
                )
        return lines
