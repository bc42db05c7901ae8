"""A store behind fsspec's implementation of its scheme, such as gcsfs and adlfs.

    <scheme>://<bucket>/<prefix>/<key>            the objects

An object is created by `pipe_file` with `mode="create"`, which the implementation must hand to the server as a
condition. fsspec has no metadata that all implementations store, so the bytes show whose object it is: after an unclear
response an object with the same bytes counts as this one. Objects for which it matters have a nonce.

fsspec lists a folder whole, so each list reads all its keys, also those before `after`. It tells a missing bucket from
a missing object only when it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import CorruptObject, InvalidOption, ObjectMissing, StoreError, StoreRefused
from pyspark_log_storage.stores import keys
from pyspark_log_storage.stores.fsspec_client import Exists, client_of, implementation
from pyspark_log_storage.stores.fsspec_upload import SpooledWriter
from pyspark_log_storage.stores.storage_options import NO_OPTIONS

# ruff: isort: split
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from pyspark_log_storage.stores.attempts import READ_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_storage.stores.storage_options import StorageOptions


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
        keys.check_key(self.url, key)
        body = bytes(data)
        try:
            self.call("pipe_file", key, body, sent=len(body), mode="create")
        except Exists as found:
            return found.doubtful and self.read(key, 0, len(body) + 1) == body
        return True

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        keys.check_key(self.url, key)
        body = bytes(data)
        self.call("pipe_file", key, body, sent=len(body))

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        keys.check_key(self.url, key)
        if length == 0:
            self.size(key)
            return b""
        most = READ_BYTES_MAX + 1 if length is None else length
        try:
            data = bytes(self.call("cat_file", key, start=start, end=start + most))
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
        keys.check_key(self.url, key)
        found = self.call("info", key)
        if found.get("type") != "file":
            raise ObjectMissing(self.url, key)
        return int(found["size"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        keys.check_prefix(self.url, prefix)
        try:
            found = self.call("find", prefix) if self._finds else self._walk(prefix)
        except ObjectMissing:
            return
        below = (str(each).lstrip("/").removeprefix(self._base) for each in found)
        yield from sorted(key for key in below if key.startswith(prefix) and key > after and keys.is_key(key))

    def folders(self, prefix: str) -> Iterator[str]:
        keys.check_prefix(self.url, prefix)
        below = (str(each["name"]).strip("/") for each in self._entries(prefix) if each["type"] == "directory")
        names = (each.removeprefix(f"{self._base}{prefix}") for each in below)
        yield from sorted(name for name in names if "/" not in name and keys.is_key(f"{prefix}{name}"))

    def delete(self, key: str) -> None:
        keys.check_key(self.url, key)
        try:
            self.call("rm_file", key)
        except ObjectMissing:
            return

    def remove_folders(self, prefix: str) -> None:
        keys.check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> SpooledWriter:
        del durable  # whatever the server has answered for is durable
        keys.check_key(self.url, key)
        return SpooledWriter(self, key, replace=replace)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Return nothing: objects are sent whole, and the server forgets the parts of an upload that was ended."""
        del dry_run
        return ()

    def call(self, method: str, key: str, *arguments: Any, sent: int = 0, **options: Any) -> Any:
        """Return what a method of the file system returns for a key or a prefix; see `Client.call`."""
        client = client_of(self._kind, self._scheme, self._options, self.url)
        path = f"{self._base}{key}".rstrip("/")
        arguments = (*arguments, path) if method == "put_file" else (path, *arguments)
        if method in {"find", "ls"}:
            client.fs.invalidate_cache()  # the options switch caches off; not every implementation heeds them
        return client.call((self.url, key), method, *arguments, sent=sent, **options)

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
