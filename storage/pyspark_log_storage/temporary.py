"""Temporary files: objects that are being written, and how one knows that nobody writes them any more.

    <folder>/<place>-<nonce>     place: 16 hex digits, of where its writer sees the folder
    <folder>/<nonce>             where that is unknown, or files cannot be locked

A writer holds a lock (`flock`) on its file until the file has its name or is given up, and the system lets go of the
lock when the process ends, however it ends. So who gets the lock knows that the writer is dead, and may remove the
file; a writer that only sleeps keeps it. No clock decides this.

That holds where the writer's lock can be seen: in the same run of the same machine (its boot id), through the same
mount (its device). These two make the place. A file of another place, or of none, is removed when nothing has been
written to it for a day: a batch that waits so long is refused anyway (`orphan.retention.ms` by default). Were its
writer alive after all, it would have no file to give a name to, and fail with an error: no row is lost.

Whatever else lies in the folder is not the store's: a file of another name, a folder, a link. It stays, however old.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
import uuid

STILL_SECONDS = 86_400
"""How long nothing was written to a file whose writer cannot be asked for, until it counts as dead."""
_NAME = re.compile(r"([0-9a-f]{16}-)?[0-9a-f]{32}")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Temporary:
    """A file that is being written. Its writer has a descriptor of its own, and may close that at any time."""

    def __init__(self, path: str, lock: int) -> None:
        """`lock` is a descriptor of the locked file, which belongs to this object now."""
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the file's temporary name and let go of it; nothing the second time, and no error in any case."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        # One that stays only takes space, and goes with the next sweep.
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.close(lock)


class TemporaryFolder:
    """The folder of a store's temporary files, which the store makes. Its methods may raise `OSError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._place: str | None = None
        """What the names of this object's files begin with; None before the first one."""

    def open(self) -> tuple[int, Temporary]:
        """Return a new file: a descriptor to write with, and the file itself."""
        if self._place is None:
            self._place = _place_of(self.path)
        while True:
            path = f"{self.path}/{self._place}{uuid.uuid4().hex}"
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            try:
                temporary = Temporary(path, os.dup(fd))
            except OSError:
                os.close(fd)
                os.unlink(path)
                raise
            is_locked = _lock(fd)
            if is_locked or not self._place:
                return fd, temporary
            # Another name: a sweep was quicker, or there are no locks here.
            temporary.remove()
            os.close(fd)
            if is_locked is None:
                self._place = ""

    def sweep(self, *, dry_run: bool) -> list[str]:
        """Remove the files of dead writers; return the names of those that were removed, or would be."""
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            names, place = sorted(filter(_NAME.fullmatch, os.listdir(folder))), _place_of(self.path)
            return [name for name in names if _removed(folder, name, place, dry_run=dry_run)]
        finally:
            os.close(folder)


def _removed(folder: int, name: str, place: str, *, dry_run: bool) -> bool:
    """Return whether the writer of a file is dead, and the file gone unless it is a dry run. `folder` is open."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return False  # it has its name by now, or is none of a store's
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return False
        is_dead = _lock(fd) if place and name.startswith(place) else None
        if is_dead is None:
            is_dead = found.st_mtime < time.time() - STILL_SECONDS
        if is_dead:
            try:
                # Before the lock goes: who gets it next sees that the file has no name.
                os.stat(name, dir_fd=folder) if dry_run else os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False  # its writer has just ended
        return is_dead
    finally:
        os.close(fd)


def _lock(fd: int) -> bool | None:
    """Return whether a file is locked now, by this call, and has a name; None where files cannot be locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return os.fstat(fd).st_nlink > 0


def _place_of(folder: str) -> str:
    """Return what the names of files begin with whose locks this process can see; empty where that is unknown."""
    device = os.stat(folder).st_dev
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return ""
    return hashlib.blake2b(f"{boot} {device}".encode(), digest_size=8).hexdigest() + "-"
