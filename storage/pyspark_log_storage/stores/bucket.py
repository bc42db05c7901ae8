"""A store in a bucket, or in what else fsspec has an implementation for, below a prefix.

    <scheme>://<bucket>/<prefix>/<key>            the objects

An object is created by one request with a condition, which fails if the key exists. If the request has no answer, it
may have had its effect. Then the server tells whose object it is, if it keeps a nonce with each; else an object with
the same bytes counts as this call's: objects for which it matters have a nonce.
"""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any

from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreError
from pyspark_log_storage.stores.bucket_writer import BucketWriter
from pyspark_log_storage.stores.file_system import (
    FileSystem,
    Occupied,
    connections,
    implementation,
    in_doubt,
    result_of,
)
from pyspark_log_storage.stores.s3 import S3
from pyspark_log_storage.stores.storage_options import NO_OPTIONS
from pyspark_log_storage.stores.store import TEMPORARY, check_key, check_prefix, is_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from pyspark_log_storage.stores.file_system import Page
    from pyspark_log_storage.stores.storage_options import StorageOptions

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
                if self.connection().tells_nonces:
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
        if not self.connection().tells_time:
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
        more: Any = self.connection().takes_parts
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
        """End an upload in parts, if it has not ended."""
        try:
            self.call("abort_multipart_upload", key, upload)
        except ObjectMissing:
            return

    def is_versioned(self) -> bool:
        """Return whether the bucket is versioned; False if the server does not tell."""
        try:
            return bool(self.call("get_bucket_versioning", ""))
        except StoreError:
            return False

    def call(self, operation: str, key: str, *arguments: Any, **options: Any) -> Any:
        """Return what an operation returns for a key or a prefix; see `FileSystem.start`."""
        return result_of(self.start(operation, key, *arguments, **options))

    def start(self, operation: str, key: str, *arguments: Any, **options: Any) -> Future[Any]:
        """Start an operation; see `call`."""
        return self.connection().start((self.url, key), operation, f"{self._base}{key}", *arguments, **options)

    def connection(self) -> FileSystem:
        """Return the process's connection to this store. Raises `InvalidOption`, `StoreError`."""
        scheme, options = self._place
        kind = _SCHEMES.get(scheme, FileSystem)
        return connections.get(self._place, lambda: kind(scheme, self._kind, options.at(self.url), self.url))

    @functools.cached_property
    def _place(self) -> tuple[str, StorageOptions]:
        return self._scheme, self._options.only_of(self.url)
