"""A store: where bytes live. A folder or a bucket that several processes use at once.

Keys are relative paths with "/" between their parts. An object is immutable once it is there, or is
replaced whole by `put`; nobody ever sees half of one. No key is a folder of another, and the folder ".tmp"
at the root is the store's own. Two implementations: `LocalStore` (a folder of a file
system) and `MemoryStore` (tests and the simulator). A third, over fsspec for `s3://` and its like, belongs
beside them and is chosen in `open_store`.
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
    """Writes one large object in pieces. It becomes visible, whole and durable, at `close`."""

    def write(self, *pieces: bytes) -> None:
        """Append bytes, or other contiguous buffers, in one go. Raises `StoreError`: then the object is given up."""

    def close(self) -> None:
        """Publish the object, once. Raises `StoreError`, also where the key is occupied."""

    def discard(self) -> None:
        """Give the object up; nothing of it becomes visible. Does nothing after `close`."""


class Readable(Protocol):
    """What a reader asks of a store. Every method may raise `StoreError`."""

    url: str

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes from `start`, fewer where the object ends. Raises `ObjectMissing`."""

    def size(self, key: str) -> int:
        """Return the object's length in bytes. Raises `ObjectMissing`."""


class Store(Readable, Protocol):
    """What the product asks of a place that holds bytes. Every method may raise `StoreError`."""

    def create(self, key: str, data: bytes) -> bool:
        """Put `data` at `key` if nothing is there: atomic and durable. True where this call did it.

        False means that another object is there, and is durable. After a retriable error the object may be
        there or not; after any other error it is not.
        """

    def exists(self, key: str) -> bool:
        """Return whether there is an object at `key`: cheaper than a read that finds none.

        A store may return False if it cannot tell, so only for an object that is a second chance.
        """

    def create_unflushed(self, key: str, data: bytes) -> bool:
        """Put `data` at `key` if nothing is there; neither atomic nor durable. True where this call did it.

        A reader may find only a part of it, so only for bytes that carry a checksum, and that nobody depends on.
        """

    def put(self, key: str, data: bytes) -> None:
        """Put `data` at `key`, replacing what is there: atomic and durable."""

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield, in ascending order, all keys greater than `after` in the folder `prefix` and below.

        `prefix` ends with "/", or is empty for all. Keys compare as whole strings, not part by part.
        """

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield, in ascending order, the names of the folders directly in the folder `prefix`, without "/".

        A folder that holds no object may be among them. `prefix` ends with "/".
        """

    def delete(self, key: str) -> None:
        """Remove the object; no error where there is none. It may be back after a power failure."""

    def remove_folders(self, prefix: str) -> None:
        """Remove the folder `prefix`, and all in it, as far as they hold no object. It ends with "/".

        Only where nobody needs the folder again: what is created in it later need not be durable.
        """

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        """Begin a large object at a key that nobody else uses. `durable=False` skips the flush to disk.

        With `replace` it takes the place of what is there when it is complete, in one step, as `put` does.

        The caller ends with `close` or `discard`, whatever happens in between.
        """

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        """Remove what killed writers left behind of objects that never became visible; return what that is called.

        Nothing of a writer that lives, however long it sleeps. `dry_run` removes nothing.
        """


def absolute_url(path: str) -> str:
    """Return the address of a store in its one canonical form.

    `/data/log`, `file:/data/log` and `file:///data/log` all mean the folder `/data/log`; a relative path is
    made absolute against this process's working folder, which is why the driver calls this, not a task.
    `s3a://` means `s3://`. Raises `InvalidOption` for an empty path, and for Kafka's `HOST:PORT`.
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
            f"option 'path' is {path!r}, a host and a port; there is no server: give the log's folder, as /data/log"
        )
        raise InvalidOption("path", message)
    if "\0" in path or not _is_text(path):
        raise InvalidOption("path", f"{path!r} cannot be the address of a store: it is no text; give another")
    absolute = os.path.abspath(os.path.expanduser(path))
    return "/" + absolute.lstrip("/")  # two slashes in front would stay two


def _is_text(path: str) -> bool:
    """Return whether an address can be stored: names of files may have bytes that are no UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def absolute_urls(path: str) -> tuple[str, ...]:
    """Return the addresses in `path`, which has commas between them, each in its canonical form and each once.

    So a folder whose path has a comma cannot be used. Raises `InvalidOption` where one is empty.
    """
    return tuple(dict.fromkeys(absolute_url(each.strip() if "," in path else each) for each in path.split(",")))


def _path_of_file_url(url: str) -> str:
    """Return the path of a `file:` URL. By hand: as Hadoop has it, `#` and `?` are plain characters."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        rest = slash + tail
        if host not in {"", "localhost"}:
            message = f"{url!r} names the host {host!r}; write file:///{host}{rest} for a folder here"
            raise InvalidOption("path", message)
    return unquote(rest)


def open_store(url: str) -> Store:
    """Return the store at `url`, which `absolute_url` made. Touches nothing yet.

    Raises `InvalidOption` for a kind of store that this version does not have.
    """
    if "://" in url:
        scheme = url.partition("://")[0]
        message = f"this version cannot use {scheme}:// stores ({url!r}); give a local or mounted folder"
        raise InvalidOption("path", message)
    from pyspark_log_storage import layout
    from pyspark_log_storage.local import LocalStore

    return LocalStore(url, marker=layout.KEY, first=layout.SELF_TEST)
