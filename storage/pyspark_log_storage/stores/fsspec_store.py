"""A store behind fsspec's implementation of its scheme, such as gcsfs and adlfs.

    <scheme>://<bucket>/<prefix>/<key>            the objects

An object is created by `pipe_file` with `mode="create"`, which the implementation must hand to the server as a
condition. fsspec has no metadata that all implementations store, so the bytes show whose object it is: after an unclear
response an object with the same bytes counts as this one. Objects for which it matters have a nonce.

fsspec lists a folder whole, so each list reads all its keys, also those before `after`. It tells a missing bucket from
a missing object only when it writes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from typing import TYPE_CHECKING, Any

import google_crc32c

from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    LogError,
    ObjectMissing,
    StoreError,
    StoreRefused,
)
from pyspark_log_storage.stores.fsspec_client import Exists, client_of, implementation
from pyspark_log_storage.stores.storage_options import NO_OPTIONS
from pyspark_log_storage.stores.store import TEMPORARY, check_key, check_prefix, is_key

# ruff: isort: split
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from pyspark_log_storage.stores.attempts import READ_BYTES_MAX, in_doubt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from tempfile import _TemporaryFileWrapper

    from pyspark_log_storage.stores.storage_options import StorageOptions


MEMORY_BYTES = 8 * 1024 * 1024
"""Up to this size an object is gathered in memory."""
_PIECE_BYTES = 8 * 1024 * 1024
_CLOCK = f"{TEMPORARY}/clock"
"""An empty object, which is written to learn the server's time."""
_TIMES = ("LastModified", "last_modified", "mtime", "created")
"""What implementations call the time at which an object was modified: S3's, Azure's, Google's, and that in memory."""


class FsspecStore:
    """The objects below a prefix of a bucket. Safe for any number of processes and threads."""

    is_object_store = True

    def __init__(self, url: str, options: StorageOptions = NO_OPTIONS, kind: type[Any] | None = None) -> None:
        """`url` is canonical; `kind` is fsspec's class for its scheme unless given. Connects with the first call.

        Raises `InvalidOption` if it names no bucket, or if the scheme has no implementation that can hold a log.
        """
        self.url = url
        self._options = options
        self._scheme, _, path = url.partition("://")
        if not path:
            message = f"{url!r} names no bucket or container; write {self._scheme}://BUCKET/FOLDER"
            raise InvalidOption("path", message)
        self._kind = implementation(self._scheme, url) if kind is None else kind
        self._base = f"{path}/"

    def create(self, key: str, data: bytes) -> bool:
        check_key(self.url, key)
        body = bytes(data)
        try:
            self.call("pipe_file", key, body, sent=len(body), mode="create")
        except Exists as found:
            try:
                return found.doubtful and self.read(key, 0, len(body) + 1) == body
            except StoreError as error:
                raise in_doubt(error) from None
        return True

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        check_key(self.url, key)
        body = bytes(data)
        self.call("pipe_file", key, body, sent=len(body))

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(self.url, key)
        if length == 0:
            self.size(key)
            return b""
        most = READ_BYTES_MAX + 1 if length is None else length
        try:
            data = bytes(self.call("cat_file", key, received=length or 0, start=start, end=start + most))
        except StoreRefused:
            if not self._ends_before(key, start):
                raise
            return b""  # implementations differ in how they refuse a range behind the end
        if length is None and len(data) > READ_BYTES_MAX:
            detail = f"it has more than {READ_BYTES_MAX} bytes, the maximum for objects of its kind"
            raise CorruptObject(f"{self.url}/{key}", detail)
        return data

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def size(self, key: str) -> int:
        check_key(self.url, key)
        found = self.call("info", key)
        if found.get("type") != "file":
            raise ObjectMissing(self.url, key)
        return int(found["size"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        check_prefix(self.url, prefix)
        try:
            found = self.call("find", prefix) if self._finds else self._walk(prefix)
        except ObjectMissing:
            return
        below = (str(each).lstrip("/").removeprefix(self._base) for each in found)
        yield from sorted(key for key in below if key.startswith(prefix) and key > after and is_key(key))

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(self.url, prefix)
        below = (str(each["name"]).strip("/") for each in self._entries(prefix) if each["type"] == "directory")
        names = (each.removeprefix(f"{self._base}{prefix}") for each in below)
        yield from sorted(name for name in names if "/" not in name and is_key(f"{prefix}{name}"))

    def delete(self, key: str) -> None:
        check_key(self.url, key)
        try:
            self.call("rm_file", key)
        except ObjectMissing:
            return

    def remove_folders(self, prefix: str) -> None:
        check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> SpooledWriter:
        del durable  # whatever the server has answered for is durable
        check_key(self.url, key)
        return SpooledWriter(self, key, replace=replace)

    def clock_ms(self) -> int | None:
        """Return when an object that was just written was modified; None if the implementation does not tell."""
        self.call("pipe_file", _CLOCK, b"")
        found = self.call("info", _CLOCK)
        times = (found[name] for name in _TIMES if isinstance(found.get(name), dt.datetime))
        return next((int(each.timestamp() * 1000) for each in times), None)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Return nothing: objects are sent whole, and the server forgets the parts of an upload that was ended."""
        del dry_run
        return ()

    def call(self, method: str, key: str, *arguments: Any, sent: int = 0, received: int = 0, **options: Any) -> Any:
        """Return what a method of the file system returns for a key or a prefix; see `FileSystemClient.call`."""
        client = client_of(self._kind, self._scheme, self._options, self.url)
        path = f"{self._base}{key}".rstrip("/")
        arguments = (*arguments, path) if method == "put_file" else (path, *arguments)
        if method in {"find", "ls"}:
            client.fs.invalidate_cache()  # the options switch caches off; not every implementation heeds them
        return client.call((self.url, key), method, *arguments, sent=sent, received=received, **options)

    def _ends_before(self, key: str, position: int) -> bool:
        """Return whether an object is known to have no byte at a position."""
        try:
            return self.size(key) <= position
        except StoreError:
            return False

    @property
    def _finds(self) -> bool:
        """Return whether the implementation has its own `find`: fsspec's leaves out silently what it fails to list."""
        if issubclass(self._kind, AsyncFileSystem):
            return self._kind._find is not AsyncFileSystem._find  # noqa: SLF001 -- fsspec's name for async
        return self._kind.find is not AbstractFileSystem.find

    def _walk(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below a prefix, by one `ls` for each folder."""
        for each in self._entries(prefix):
            path = str(each["name"]).strip("/")
            if each["type"] == "directory":
                if path != f"{self._base}{prefix}".rstrip("/"):
                    yield from self._walk(f"{path}/".removeprefix(self._base))
            else:
                yield path

    def _entries(self, prefix: str) -> Sequence[dict[str, Any]]:
        """Return what is in a folder, or nothing if it does not exist."""
        try:
            return tuple(self.call("ls", prefix, detail=True))
        except ObjectMissing:
            return ()


class SpooledWriter:
    """An object that is gathered in a temporary file, and sent whole when it is complete. Used by one thread.

    fsspec's implementations differ in what a file shows before it is closed, and in how one is discarded. So nothing is
    sent before the end, and an upload whose answer was lost is resolved like that of a small object. What fits in
    memory needs no file.
    """

    def __init__(self, store: FsspecStore, key: str, *, replace: bool) -> None:
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
