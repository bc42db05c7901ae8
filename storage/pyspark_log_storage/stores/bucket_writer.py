"""Writing a large object in a bucket, in bounded memory.

An object that fits in one part is one PUT. The parts of a larger one are sent in the background while the next is
filled, if the server takes parts (`Parts`), or gathered in a temporary file, which is sent whole (`Spool`): fsspec's
implementations differ in what a file shows before it is closed, and in how one is discarded.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import LogError, ObjectMissing, StoreError, StoreRefused, StoreUnavailable, StoreUnfit
from pyspark_log_storage.stores.file_system import Occupied, result_of

if TYPE_CHECKING:
    from concurrent.futures import Future
    from tempfile import _TemporaryFileWrapper

    from pyspark_log_storage.stores.bucket import BucketStore

PART_BYTES = 8 * 1024 * 1024
"""S3 takes parts of at least 5 MiB."""
PARTS_OF_ONE_SIZE = 1000
"""After so many parts the next are larger by `PART_BYTES`: S3 takes 10,000 parts at most, which are 430 GB."""
PARTS_PENDING_MAX = 2
"""How many parts may be on their way. With the one that is filled, a writer holds three."""


class BucketWriter:
    """An object that becomes visible, whole, when it is closed. Used by one thread."""

    def __init__(self, store: BucketStore, key: str, *, replace: bool) -> None:
        self._store = store
        self._key = key
        self._replace = replace
        self._buffer = bytearray()
        self._large: Parts | Spool | None = None
        """Has what was written before the buffer, if that does not fit in one part."""
        self._open = True

    def write(self, *pieces: bytes) -> None:
        assert self._open, "written to after its end"
        try:
            for piece in pieces:
                view = memoryview(piece).cast("B")
                while view.nbytes:
                    size = PART_BYTES if self._large is None else self._large.part_bytes
                    if len(self._buffer) == size:
                        self._send()
                    room = size - len(self._buffer)
                    self._buffer += view[:room]
                    view = view[room:]
        except BaseException:
            self.discard()  # a retry would append to the part of a piece that was written
            raise

    def close(self) -> None:
        assert self._open, "closed after its end"
        created = True
        try:
            if self._large is not None:
                self._send()
                created = self._large.finish()
            elif self._replace:
                self._store.put(self._key, bytes(self._buffer))
            else:
                created = self._store.create(self._key, bytes(self._buffer), alone=True)
        finally:
            self.discard()
        if not created:
            url = self._store.url
            raise StoreError(url, self._key, f"{self._key!r} already exists in {url}; names are never reused")

    def discard(self) -> None:
        self._open = False
        self._buffer = bytearray()
        large, self._large = self._large, None
        if large is not None:
            large.discard()

    def _send(self) -> None:
        """Add what has been gathered to the large object."""
        if self._large is None:
            kind = Parts if self._store.connection().takes_parts else Spool
            self._large = kind(self._store, self._key, replace=self._replace)
        body, self._buffer = bytes(self._buffer), bytearray()
        self._large.add(body)


class Parts:
    """An upload in parts."""

    def __init__(self, store: BucketStore, key: str, *, replace: bool) -> None:
        self._store, self._key, self._replace = store, key, replace
        self._nonce = uuid.uuid4().hex
        self._upload = store.call("create_multipart_upload", key, self._nonce)
        """Its id, until it is complete."""
        self._etags: list[str] = []
        self._pending: list[Future[Any]] = []

    @property
    def part_bytes(self) -> int:
        """The size of the next part."""
        return PART_BYTES * (1 + (len(self._etags) + len(self._pending)) // PARTS_OF_ONE_SIZE)

    def add(self, body: bytes) -> None:
        """Send a part in the background, when fewer parts than the most are on their way."""
        self._await(PARTS_PENDING_MAX - 1)
        number = len(self._etags) + len(self._pending) + 1
        sending = self._store.start("upload_part", self._key, self._upload, number, body, sent=len(body))
        self._pending.append(sending)

    def _await(self, most: int) -> None:
        """Wait until at most so many parts are on their way."""
        while len(self._pending) > most:
            try:
                self._etags.append(result_of(self._pending[0]))
            except ObjectMissing:
                raise self._ended() from None
            del self._pending[0]

    def finish(self) -> bool:
        """Make the object visible. Return whether it is this writer's, and no other was there before.

        The condition protects against a race, on servers that know it. On others the look before is the protection,
        which suffices because no other process uses the key.
        """
        self._await(0)
        if not self._replace and self._store.exists(self._key):
            return False
        for create in (not self._replace, False):
            try:
                self._store.call("complete_multipart_upload", self._key, self._upload, self._etags, create=create)
            except (Occupied, ObjectMissing, StoreUnfit) as answer:
                if not self._is_there():  # else it was made by an attempt whose answer was lost
                    if isinstance(answer, Occupied):
                        return False
                    if isinstance(answer, StoreUnfit) and create:
                        continue
                    raise (self._ended() if isinstance(answer, ObjectMissing) else answer) from None
            break
        self._upload = ""
        return True

    def _is_there(self) -> bool:
        """Return whether the object at the key is this upload's."""
        try:
            return bool(self._store.call("head_object", self._key).nonce == self._nonce)
        except ObjectMissing:
            return False

    def _ended(self) -> StoreError:
        url = self._store.url
        message = (
            f"{url} ended the upload of {self._key}: it is too old, or the bucket's rules ended it; write it again"
        )
        return StoreUnavailable(url, self._key, message)

    def discard(self) -> None:
        """End the upload, unless it is complete."""
        for part in self._pending:
            part.cancel()
        if self._upload:
            with contextlib.suppress(LogError):  # `delete_unfinished` ends it later
                self._store.end_upload(self._key, self._upload)


class Spool:
    """A temporary file, whose bytes become the object: an upload whose answer was lost is like that of a small one."""

    part_bytes = PART_BYTES

    def __init__(self, store: BucketStore, key: str, *, replace: bool) -> None:
        self._store, self._key, self._replace = store, key, replace
        self._file: _TemporaryFileWrapper[bytes] | None = None
        self._size = 0

    def add(self, body: bytes) -> None:
        """Append bytes to the file."""
        try:
            if self._file is None:
                self._file = tempfile.NamedTemporaryFile(prefix="pyspark-log-")  # noqa: SIM115
            self._file.write(body)
            self._file.flush()
        except OSError as error:
            where = f"{self._key} for {self._store.url} in {tempfile.gettempdir()}"
            message = f"cannot gather {where}: {error.strerror}; free some space there, or set TMPDIR"
            raise StoreRefused(self._store.url, self._key, message) from None
        self._size += len(body)

    def finish(self) -> bool:
        """Send the bytes. Return whether the object at the key has them."""
        assert self._file is not None
        try:
            self._store.call("put_file", self._key, self._file.name, sent=self._size, create=not self._replace)
        except Occupied:
            return self._is_there(self._file)  # made by an attempt whose answer was lost
        return True

    def _is_there(self, file: _TemporaryFileWrapper[bytes]) -> bool:
        """Return whether the object at the key has these bytes. No other process uses the key."""
        if self._store.size(self._key) != self._size:
            return False
        file.seek(0)
        pieces = iter(lambda: file.read(PART_BYTES), b"")
        position = 0
        for piece in pieces:
            if self._store.read(self._key, position, len(piece)) != piece:
                return False
            position += len(piece)
        return True

    def discard(self) -> None:
        """Delete the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be flushed is not needed
                self._file.close()
