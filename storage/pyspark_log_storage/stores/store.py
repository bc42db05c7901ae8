"""A store: the folder or bucket that holds a node's objects. Several processes use it at once.

A key is a relative path: parts with "/" between them, none of which is empty, "." or "..". So no key leads out of its
store; most contain names that were read from files, which may be forged. No key is a folder of another, and the folder
".tmp" at the root is the store's own. An object is never changed; `put` replaces it whole, and no reader ever sees half
of one.

There is one implementation for a folder of a file system (`local`), and one for a bucket, or what else fsspec can open
(`bucket`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_log_storage.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TEMPORARY = ".tmp"
_NO_PARTS = frozenset({"", ".", ".."})


class ObjectWriter(Protocol):
    """Writes one large object in pieces. The object becomes visible, whole and durable, at `close`."""

    def write(self, *pieces: bytes) -> None:
        """Append bytes or other contiguous buffers. Raises `StoreError` and discards the object."""

    def close(self) -> None:
        """Publish the object, once. Raises `StoreError`, also if the key exists."""

    def discard(self) -> None:
        """Remove the unfinished object. Does nothing after `close`."""


class Readable(Protocol):
    """A store, for reading. Every method may raise `StoreError`."""

    url: str

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes from `start`, fewer at the end of the object. Raises `ObjectMissing`."""

    def size(self, key: str) -> int:
        """Return the object's length in bytes. Raises `ObjectMissing`."""


class Store(Readable, Protocol):
    """A store, for reading and writing. Every method may raise `StoreError`.

    One that is an object store says so (`is_object_store`).
    """

    def create(self, key: str, data: bytes) -> bool:
        """Create an object unless the key exists, atomically and durably. Return whether this call did.

        False means that the key has an object already, which is durable. It is another's, or this call's if the store
        repeats calls by itself, so compare the bytes if that matters. After a retriable error the object may or may not
        exist; after any other error this call did not create it.
        """

    def exists(self, key: str) -> bool:
        """Return whether the object exists, without the cost of a read."""

    def create_unflushed(self, key: str, data: bytes) -> bool:
        """Create an object unless the key exists, neither atomically nor durably. Return whether this call did.

        A reader may see a part of it, so use it only for bytes that have a checksum and that can be lost.
        """

    def put(self, key: str, data: bytes) -> None:
        """Create or replace an object, atomically and durably."""

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield, in ascending order, all keys greater than `after` in the folder `prefix` and below.

        `prefix` ends with "/", or is empty for all. Keys compare as whole strings, not part by part.
        """

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield, in ascending order, the names of the folders in the folder `prefix`, without "/".

        Empty folders may be included. `prefix` ends with "/".
        """

    def delete(self, key: str) -> None:
        """Delete the object, if it exists. It may be back after a power failure."""

    def remove_folders(self, prefix: str) -> None:
        """Remove the folder `prefix` and those in it, unless they contain an object. `prefix` ends with "/".

        Only for a folder that is never used again: objects that are created in it later may not be durable.
        """

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        """Begin a large object at a key that no other process uses. `durable=False` skips the flush to disk.

        With `replace` the complete object atomically replaces an existing one, as in `put`. The caller must call
        `close` or `discard` in the end.
        """

    def clock_ms(self) -> int | None:
        """Return the time of the store's own clock, in milliseconds since 1970; None if the store has none to tell.

        It is that of the server that keeps the objects, which all processes share.
        """

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Delete the unfinished objects of killed writers, and return their names; `dry_run` only returns them.

        A writer that has written nothing for a day counts as killed; if it is alive after all, its object fails.
        """


def is_object_store(store: object) -> bool:
    """Return whether each call to a store is a request that takes milliseconds and may cost money.

    Such a store keeps copies and checksums of its own, lists many objects by one request, and is never unmounted.
    """
    return getattr(store, "is_object_store", False)


def make_folder(store: object, prefix: str) -> None:
    """Create a folder if a store has folders: for processes that may create objects in it, and not the folder.

    `prefix` ends with "/". Raises `StoreError`.
    """
    make = getattr(store, "make_folder", None)
    if make is not None:
        make(prefix)


def is_key(key: str) -> bool:
    parts = key.split("/")
    return _NO_PARTS.isdisjoint(parts) and "\0" not in key and parts[0] != TEMPORARY


def check_key(url: str, key: str) -> None:
    """Raise `StoreRefused` unless `key` is a valid object key. `url` is that of the store."""
    if is_key(key):
        return
    raise StoreRefused(
        url,
        key,
        f"{key[:300]!r} is not a valid object key in {url}: the object that names it is damaged or forged; nothing was "
        "read, written or deleted. Find the damage with pyspark-log verify",
    )


def check_prefix(url: str, prefix: str) -> None:
    """Raise `StoreRefused` unless `prefix` is empty, or a key and a "/"."""
    if prefix:
        check_key(url, prefix.removesuffix("/") if prefix.endswith("/") else "")
