"""A store in a bucket, or in what else fsspec has an implementation for, below a prefix.

    <scheme>://<bucket>/<prefix>/<key>            the objects

An object is created by one request with a condition, which fails if the key exists. If the request has no answer, it
may have had its effect. Then the server tells whose object it is, if it keeps a nonce with each; else an object with
the same bytes counts as this call's: objects for which it matters have a nonce.

An object that fits in one part is one PUT. The parts of a larger one are sent in the background while the next is
filled, if the server takes parts (`Parts`), or gathered in a temporary file, which is sent whole (`Spool`): fsspec's
implementations differ in what a file shows before it is closed, and in how one is discarded. Memory is bounded.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import uuid
from typing import TYPE_CHECKING, Any

from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidOption,
    LogError,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
)
from pyspark_log_storage.stores.connections import connection
from pyspark_log_storage.stores.file_system import FileSystem, Occupied, implementation, in_doubt, result_of
from pyspark_log_storage.stores.s3 import S3
from pyspark_log_storage.stores.storage_options import NO_OPTIONS
from pyspark_log_storage.stores.store import TEMPORARY, check_key, check_prefix, is_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from tempfile import _TemporaryFileWrapper

    from pyspark_log_storage.stores.file_system import Page
    from pyspark_log_storage.stores.storage_options import StorageOptions

PART_BYTES = 8 * 1024 * 1024
"""S3 takes parts of at least 5 MiB."""
PARTS_OF_ONE_SIZE = 1000
"""After so many parts the next are larger by `PART_BYTES`: S3 takes 10,000 parts at most, which are 430 GB."""
PARTS_PENDING_MAX = 2
"""How many parts may be on their way. With the one that is filled, a writer holds three."""
UNFINISHED_SECONDS = 24 * 60 * 60
"""The age at which an upload counts as abandoned. A file that old is not sequenced any more (orphan.retention.ms)."""
_CLOCK = f"{TEMPORARY}/clock"
"""An empty object, which is written to learn the server's time."""
_SCHEMES: dict[str, type[FileSystem]] = {"s3": S3}
"""The schemes that do something in their own way."""


class BucketStore:
    """The objects below a prefix of a bucket. Safe for any number of processes and threads."""

    is_object_store = True

    def __init__(self, url: str, options: StorageOptions = NO_OPTIONS) -> None:
        """`url` is canonical. Connects with the first call.

        Raises `InvalidOption` if it names no bucket, or if the scheme has no implementation that can hold a log.
        """
        self.url = url
        self._options = options
        self._scheme, _, path = url.partition("://")
        if not path:
            message = f"{url!r} names no bucket or container; write {self._scheme}://BUCKET/FOLDER"
            raise InvalidOption("path", message)
        self._kind = implementation(self._scheme, url)
        self._base = f"{path}/"

    def create(self, key: str, data: bytes, *, alone: bool = False) -> bool:
        """See `Store.create`. `alone` says that no other process creates the key: equal bytes are this call's."""
        check_key(self.url, key)
        body, nonce = bytes(data), uuid.uuid4().hex
        try:
            self.call("put_object", key, body, sent=len(body), create=True, nonce=nonce)
        except Occupied as found:
            try:
                if self.connection().is_s3:
                    return bool(self.call("head_object", key).nonce == nonce)
                return (found.doubtful or alone) and self.read(key, 0, len(body) + 1) == body
            except StoreError as error:
                raise in_doubt(error) from None  # what is there may be this call's
        return True

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        check_key(self.url, key)
        body = bytes(data)
        self.call("put_object", key, body, sent=len(body))

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def size(self, key: str) -> int:
        check_key(self.url, key)
        return int(self.call("head_object", key).size)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(self.url, key)
        if length == 0:
            self.size(key)
            return b""
        end = None if length is None else start + length
        return bytes(self.call("get_object", key, start, end, received=length or 0))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        check_prefix(self.url, prefix)
        for page in self._pages(prefix, after):
            keys = (path.removeprefix(self._base) for path in page.objects)
            yield from sorted(key for key in keys if key.startswith(prefix) and key > after and is_key(key))

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(self.url, prefix)
        paths = (path.rstrip("/") for page in self._pages(prefix, folders=True) for path in page.folders)
        names = (path.removeprefix(f"{self._base}{prefix}") for path in paths)
        yield from sorted(name for name in names if "/" not in name and is_key(f"{prefix}{name}"))

    def _pages(self, prefix: str, after: str = "", *, folders: bool = False) -> Iterator[Page]:
        begin, more = f"{self._base}{after}" if after > prefix else "", None
        while True:
            try:
                page = self.call("list_objects", prefix, begin, more, folders=folders)
            except ObjectMissing:  # there is no such folder
                return
            yield page
            more = page.more
            if not more:
                return

    def delete(self, key: str) -> None:
        check_key(self.url, key)
        try:
            self.call("delete_object", key)
        except ObjectMissing:
            return

    def remove_folders(self, prefix: str) -> None:
        check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> BucketWriter:
        del durable  # whatever the server has answered for is durable
        check_key(self.url, key)
        return BucketWriter(self, key, replace=replace)

    def clock_ms(self) -> int | None:
        """Return the server's time, or when an object that was just written was modified; None if that is not told."""
        key = layout.MARKER  # any object that there is
        if not self.connection().is_s3:
            key = _CLOCK
            self.call("put_object", key, b"")
        found: int | None = self.call("head_object", key).time_ms
        return found

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """End the uploads in parts that were begun more than `UNFINISHED_SECONDS` ago, by the server's clock.

        The server does not tell whether a writer is alive. One that is, after so long, gets an error with its next
        part. Uploads of other names are somebody else's: a log may be at the root of a bucket that others use.
        """
        found: list[str] = []
        more: Any = self.connection().is_s3
        while more:
            uploads, more = self.call("list_multipart_uploads", "", None if more is True else more)
            for path, upload, seconds in uploads:
                key = path.removeprefix(self._base)
                if layout.is_written_in_parts(key) and seconds > UNFINISHED_SECONDS:
                    found.append(f"{key} (upload {upload})")
                    if not dry_run:
                        self.end_upload(key, upload)
        return found

    def end_upload(self, key: str, upload: str) -> None:
        try:
            self.call("abort_multipart_upload", key, upload)
        except ObjectMissing:
            return

    def call(self, operation: str, key: str, *arguments: Any, **options: Any) -> Any:
        """Return what an operation returns for a key or a prefix; see `FileSystem.start`."""
        return result_of(self.start(operation, key, *arguments, **options))

    def start(self, operation: str, key: str, *arguments: Any, **options: Any) -> Future[Any]:
        return self.connection().start((self.url, key), operation, f"{self._base}{key}", *arguments, **options)

    def connection(self) -> FileSystem:
        """Return the process's connection to this store. Raises `InvalidOption`, `StoreError`."""
        scheme, options = self._place
        kind = _SCHEMES.get(scheme, FileSystem)
        return connection(self._place, lambda: kind(scheme, self._kind, options.at(self.url), self.url))

    @functools.cached_property
    def _place(self) -> tuple[str, StorageOptions]:
        return self._scheme, self._options.only_of(self.url)


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
            kind = Parts if self._store.connection().is_s3 else Spool
            self._large = kind(self._store, self._key, replace=self._replace)
        body, self._buffer = bytes(self._buffer), bytearray()
        self._large.add(body)


class Parts:
    def __init__(self, store: BucketStore, key: str, *, replace: bool) -> None:
        self._store, self._key, self._replace = store, key, replace
        self._nonce = uuid.uuid4().hex
        self._upload = store.call("create_multipart_upload", key, self._nonce)
        """Its id, until it is complete."""
        self._etags: list[str] = []
        self._pending: list[Future[Any]] = []

    @property
    def part_bytes(self) -> int:
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
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be flushed is not needed
                self._file.close()
