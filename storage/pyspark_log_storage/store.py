"""A store: the folder or bucket that holds a node's objects. Several processes use it at once.

Keys are relative paths with "/" between their parts. An object is never changed; `put` replaces it whole, and no reader
ever sees half of one. No key is a folder of another, and the folder ".tmp" at the root is the store's own.
`LocalStore` (a folder of a file system) is the one implementation; one over fsspec, for `s3://` and similar addresses,
would be added next to it and chosen in `open_store`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HOST_AND_PORT = re.compile(r"[\w.-]+:[0-9]+")
"""What Kafka's bootstrap servers look like. A folder of such a name can be given as `./NAME`."""


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
    """A store, for reading and writing. Every method may raise `StoreError`."""

    def create(self, key: str, data: bytes) -> bool:
        """Create an object unless the key exists, atomically and durably. Return whether this call did.

        False means that the key has another object, which is durable. After a retriable error the object may or may not
        exist; after any other error this call did not create it.
        """

    def exists(self, key: str) -> bool:
        """Return whether the object exists, without the cost of a failed read.

        May return False if the store cannot tell, so use it only for an object that is optional.
        """

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

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Delete the unfinished objects of killed writers, and return their names; `dry_run` only returns them.

        Objects of writers that are alive, even suspended ones, are kept.
        """


def absolute_url(path: str) -> str:
    """Return the canonical address of a store.

    `/data/log`, `file:/data/log` and `file:///data/log` all mean the folder `/data/log`. A relative path is relative to
    the working folder of this process, so the driver calls this, not a task. `s3a://` means `s3://`. Raises
    `InvalidOption` for an empty path, and for Kafka's `HOST:PORT`.
    """
    scheme, separator, rest = path.partition("://")
    if separator and scheme.lower() != "file":
        return ("s3" if scheme.lower() == "s3a" else scheme.lower()) + "://" + rest.rstrip("/")
    if path.lower().startswith("file:"):
        path = _path_of_file_url(path)
    if not path.strip():
        raise InvalidOption("path", "option 'path' is empty; give the cluster's address, for example /data/log")
    if _HOST_AND_PORT.fullmatch(path.strip()):
        message = (
            f"option 'path' is {path!r}, a host and a port, but pyspark_log has no server; "
            "give the log's folder, for example /data/log"
        )
        raise InvalidOption("path", message)
    if "\0" in path or not _is_text(path):
        raise InvalidOption("path", f"{path!r} is not a valid store address: it is not UTF-8 text; use another path")
    absolute = os.path.abspath(os.path.expanduser(path))
    return "/" + absolute.lstrip("/")  # `abspath` keeps two leading slashes


def _is_text(path: str) -> bool:
    """Return whether an address can be stored: file names may have bytes that are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def absolute_urls(path: str) -> tuple[str, ...]:
    """Return the canonical addresses in a comma-separated `path`, without duplicates.

    So the path of a folder cannot contain a comma. Raises what `absolute_url` raises.
    """
    return tuple(dict.fromkeys(absolute_url(each.strip() if "," in path else each) for each in path.split(",")))


def _path_of_file_url(url: str) -> str:
    """Return the path of a `file:` URL, in which `#` and `?` are plain characters, as in Hadoop."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        rest = slash + tail
        if host not in {"", "localhost"}:
            message = f"{url!r} names the host {host!r}; write file:///{host}{rest} for a folder here"
            raise InvalidOption("path", message)
    return unquote(rest)


def open_store(url: str) -> Store:
    """Return the store at `url`, a canonical address. Touches nothing yet.

    Raises `InvalidOption` for a kind of store that this version does not support.
    """
    if "://" in url:
        scheme = url.partition("://")[0]
        message = f"this version does not support {scheme}:// stores ({url!r}); use a local or mounted folder"
        raise InvalidOption("path", message)
    from pyspark_log_storage import layout
    from pyspark_log_storage.local import LocalStore

    return LocalStore(url, marker=layout.MARKER, first=layout.SELF_TEST)
