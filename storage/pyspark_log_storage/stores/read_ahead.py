"""Reading ahead: a store of which an object is read from its begin to its end, in few large reads.

In an object store each read is a request, and a walk over chunks reads each header and each chunk. What is read from
here and is damaged must be read again from the store itself: the damage may be of the way, and is kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Readable

RANGE_BYTES = 4 * 1024 * 1024
"""How much is read at once."""


class ReadAhead:
    """Reads ranges of one object after another; keeps the last range."""

    def __init__(self, store: Readable) -> None:
        self._store = store
        self.url = store.url
        self._key = ""
        self._start = 0
        self._data = b""

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes from `start`. Raises `ObjectMissing`, `StoreError`."""
        if length is None:
            return self._store.read(key, start, length)
        if key != self._key or not self._start <= start <= self._start + len(self._data):
            self._key, self._start, self._data = key, start, b""
        begin = start - self._start
        missing = begin + length - len(self._data)
        if missing > 0:
            kept = self._data[begin:]
            more = self._store.read(key, start + len(kept), max(missing, RANGE_BYTES))
            self._start, self._data, begin = start, kept + more, 0
        return self._data[begin : begin + length]

    def size(self, key: str) -> int:
        return self._store.size(key)
