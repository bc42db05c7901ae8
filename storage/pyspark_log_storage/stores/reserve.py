"""The reserve of a local store: `.tmp/reserve`, of 1 MiB, which is given up if a deletion finds the disk full.

To delete rows or a topic takes a journal entry, which a full disk has no room for. So the file is deleted, the entry is
written, and what is left of the room is reserved again at once, so that writers do not take it. An object store has no
reserve: it is never full.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

RESERVE_BYTES, _PIECE_BYTES = 1024 * 1024, 64 * 1024
"""Room for about a hundred entries, and for a snapshot or two."""


def fill(store: Store, *, rest: bool = False) -> None:
    """Make or fill up the reserve, where twice the room is free; with `rest` also with the last room. Never raises."""
    path = _path(store)
    with contextlib.suppress(OSError):  # full, or never written to
        size = os.lstat(path).st_size if os.path.lexists(path) else 0
        if size < RESERVE_BYTES and (rest or _free(path) >= 2 * (RESERVE_BYTES - size)):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                for at in range(size, RESERVE_BYTES, _PIECE_BYTES):  # a file system may not store zeros
                    os.pwrite(fd, os.urandom(min(_PIECE_BYTES, RESERVE_BYTES - at)), at)
            finally:
                os.close(fd)


def release(store: Store) -> bool:
    """Give up the reserve of a store; return whether that made room."""
    try:
        had_room = os.lstat(_path(store)).st_size > 0
        os.unlink(_path(store))
    except OSError:
        return False
    return had_room


def free_bytes(store: Store) -> int | None:
    """Return how much room the disk of a store has, None if that is not known or has no limit."""
    try:
        return _free(_path(store))
    except OSError:
        return None


def _path(store: Store) -> str:
    folder = getattr(store, "temporary_folder", "")
    return folder and f"{folder}/reserve"  # no file has an empty path


def _free(path: str) -> int:
    return (found := os.statvfs(os.path.dirname(path))).f_bavail * found.f_frsize
