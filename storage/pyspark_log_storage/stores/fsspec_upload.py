"""Large objects behind fsspec: they are collected in a temporary file, and sent whole when they are complete.

fsspec's implementations differ in what a file shows before it is closed, and in how one is discarded. So nothing is
sent before the end, and an upload whose answer was lost is resolved like that of a small object. What fits in memory
needs no file.
"""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Any, Protocol

import google_crc32c

from pyspark_log_storage.errors import LogError, StoreError, StoreRefused
from pyspark_log_storage.stores.fsspec_client import Exists
from pyspark_log_storage.stores.store import Readable

if TYPE_CHECKING:
    from tempfile import _TemporaryFileWrapper

MEMORY_BYTES = 8 * 1024 * 1024
"""Up to this size an object is gathered in memory."""
_PIECE_BYTES = 8 * 1024 * 1024


class Sender(Readable, Protocol):
    """The store, as a writer needs it."""

    def call(self, method: str, key: str, *arguments: Any, sent: int = 0, **options: Any) -> Any:
        """Return what a method of the file system returns for a key."""


class SpooledWriter:
    """An object that is sent when it is complete. Used by one thread."""

    def __init__(self, store: Sender, key: str, *, replace: bool) -> None:
        self._store = store
        self._key = key
        self._replace = replace
        self._buffer = bytearray()
        self._file: _TemporaryFileWrapper[bytes] | None = None
        """Has what was written before the buffer, if that does not fit in memory."""
        self._size, self._checksum = 0, 0
        self._open = True

    def write(self, *pieces: bytes) -> None:
        assert self._open, "written to after its end"
        try:
            for piece in pieces:
                data = bytes(piece)
                self._buffer += data
                self._size += len(data)
                self._checksum = google_crc32c.extend(self._checksum, data)
                if len(self._buffer) > MEMORY_BYTES:
                    self._spool()
        except BaseException:
            self.discard()  # a retry would append to the part of a piece that was written
            raise

    def close(self) -> None:
        assert self._open, "closed after its end"
        try:
            self._send()
        except Exists:
            if not self._is_there():  # else it was made by an attempt whose answer was lost
                url = self._store.url
                message = f"{self._key!r} already exists in {url}; names are never reused"
                raise StoreError(url, self._key, message) from None
        except LogError as error:
            if not error.retriable or not self._is_there():
                raise
        finally:
            self.discard()

    def discard(self) -> None:
        self._open = False
        self._buffer = bytearray()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what could not be flushed is not needed
                file.close()

    def _spool(self) -> None:
        """Move the buffer to the temporary file."""
        try:
            if self._file is None:
                self._file = tempfile.NamedTemporaryFile(prefix="pyspark-log-")  # noqa: SIM115
            self._file.write(self._buffer)
            self._file.flush()
        except OSError as error:
            where = f"{self._key} for {self._store.url} in {tempfile.gettempdir()}"
            message = f"cannot gather {where}: {error.strerror}; free some space there, or set TMPDIR"
            raise StoreRefused(self._store.url, self._key, message) from None
        self._buffer = bytearray()

    def _send(self) -> None:
        mode = "overwrite" if self._replace else "create"
        if self._file is None:
            self._store.call("pipe_file", self._key, bytes(self._buffer), sent=self._size, mode=mode)
        else:
            self._spool()
            self._store.call("put_file", self._key, self._file.name, sent=self._size, mode=mode)

    def _is_there(self) -> bool:
        """Return whether the object at the key has these bytes. No other process uses the key."""
        position, checksum = 0, 0
        try:
            if self._store.size(self._key) != self._size:
                return False
            while data := self._store.read(self._key, position, _PIECE_BYTES):
                position, checksum = position + len(data), google_crc32c.extend(checksum, data)
        except StoreError:
            return False
        return (position, checksum) == (self._size, self._checksum)
