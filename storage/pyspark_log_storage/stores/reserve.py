"""The reserve of a local store: a file of 1 MiB that is given up if a deletion finds the disk full.

    <root>/.tmp/reserve

To delete rows or a topic takes a journal entry, which a full disk has no room for. So the file is deleted, the entry is
written, and what is left of the room is reserved again at once, so that writers do not take it. The file grows to its
full size when the disk has room again. It has no content, and whoever deletes it loses nothing but the way out.

An object store has none: it is never full.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

RESERVE_BYTES = 1024 * 1024
"""Room for about a hundred entries with their spares, and for a snapshot or two."""
_NAME = "reserve"
_PIECE_BYTES = 64 * 1024


def fill(store: Store) -> None:
    """Make the reserve of a store, or fill it up, unless the disk has less than twice as much room. Never raises.

    Does nothing on a store that has none, or that nothing was written to.
    """
    path = _path(store)
    if path is None:
        return
    with contextlib.suppress(OSError):
        lacking = RESERVE_BYTES - _size(path)
        if lacking > 0 and _free(path) >= 2 * lacking:
            _grow(path, RESERVE_BYTES)


def release(store: Store) -> bool:
    """Give up the reserve of a store; return whether that made room."""
    path = _path(store)
    if path is None:
        return False
    try:
        is_filled = _size(path) > 0
        os.unlink(path)
    except OSError:
        return False
    return is_filled


def reserve_rest(store: Store) -> None:
    """Reserve what is left of the room that `release` has made. Never raises."""
    path = _path(store)
    if path is not None:
        with contextlib.suppress(OSError):
            _grow(path, min(RESERVE_BYTES, _size(path) + _free(path)))


def free_bytes(store: Store) -> int | None:
    """Return how much room the disk of a store has, None if that is not known or, in an object store, has no limit."""
    path = _path(store)
    if path is None:
        return None
    try:
        return _free(path)
    except OSError:  # nothing was written there yet
        return None


def _path(store: Store) -> str | None:
    """Return the path of the store's reserve, or None if it cannot have one."""
    folder = getattr(store, "temporary_folder", None)
    return f"{folder}/{_NAME}" if folder is not None and not os.path.islink(folder) else None


def _size(path: str) -> int:
    """Return how much space the file takes."""
    try:
        return os.lstat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def _free(path: str) -> int:
    found = os.statvfs(os.path.dirname(path))
    return found.f_bavail * found.f_frsize


def _grow(path: str, size: int) -> None:
    """Let the file take so much space, or as much of it as there is."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        if hasattr(os, "posix_fallocate"):
            with contextlib.suppress(OSError):
                os.posix_fallocate(fd, 0, max(size, 1))
                return
        # Not zeros, which a file system that compresses would not store.
        start = os.fstat(fd).st_size
        for at in range(start, size, _PIECE_BYTES):
            os.pwrite(fd, os.urandom(min(_PIECE_BYTES, size - at)), at)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
    finally:
        os.close(fd)
