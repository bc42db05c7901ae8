"""Temporary files of objects that are being written, and how those of dead writers are found.

    <folder>/<host>-<nonce>      host: 16 hex digits, a hash of the boot id and the device of the folder
    <folder>/<nonce>             if these are unknown, or files cannot be locked

A writer holds a lock (`flock`) on its file until the file has its final name or is removed. The operating system
releases the lock when the process ends. So a process that gets the lock knows that the writer is dead, and may delete
the file; a suspended writer keeps its lock. No clock decides this.

A lock is visible only on the same host since its last boot, through the same mount. A file of another or an unknown
host is deleted when nothing was written to it for a day: a batch that waits so long is refused anyway (the default of
`orphan.retention.ms`). If its writer is alive after all, it cannot rename the file and fails, and no row is lost.

Other files, folders and links in the folder are not the store's, and are kept.
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
"""A writer whose lock is not visible counts as dead when it has written nothing for so long."""
_NAME = re.compile(r"([0-9a-f]{16}-)?[0-9a-f]{32}")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Temporary:
    """A file that is being written, through another descriptor, which its writer may close at any time."""

    def __init__(self, path: str, lock: int) -> None:
        """`lock` is a descriptor of the locked file, which this object will close."""
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the file's temporary name and release the lock, once. Never raises."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        # A file that stays costs only space, until unfinished objects are deleted.
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.close(lock)


class TemporaryFolder:
    """The folder of a store's temporary files, which the store creates. Methods may raise `OSError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._host: str | None = None
        """The first part of the names of this object's files; None before the first one."""

    def open(self) -> tuple[int, Temporary]:
        """Return a descriptor for writing a new file, and the file."""
        if self._host is None:
            self._host = _host_of(self.path)
        while True:
            path = f"{self.path}/{self._host}{uuid.uuid4().hex}"
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            try:
                temporary = Temporary(path, os.dup(fd))
            except OSError:
                os.close(fd)
                os.unlink(path)
                raise
            is_locked = _lock(fd)
            if is_locked or not self._host:
                return fd, temporary
            # Try another name: `delete_unfinished` has locked this one, or files cannot be locked.
            temporary.remove()
            os.close(fd)
            if is_locked is None:
                self._host = ""

    def delete_unfinished(self, *, dry_run: bool) -> list[str]:
        """Delete the files of dead writers, and return their names; a dry run only returns them."""
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            names, host = sorted(filter(_NAME.fullmatch, os.listdir(folder))), _host_of(self.path)
            return [name for name in names if _deleted(folder, name, host, dry_run=dry_run)]
        finally:
            os.close(folder)


def has_locks(path: str) -> bool:
    """Return whether a lock on a file in an existing folder is visible through another descriptor."""
    fd, temporary = TemporaryFolder(path).open()
    try:
        other = os.open(temporary.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _lock(other) is False
        finally:
            os.close(other)
    finally:
        temporary.remove()
        os.close(fd)


def _deleted(folder: int, name: str, host: str, *, dry_run: bool) -> bool:
    """Delete a file in the open `folder` if its writer is dead, unless it is a dry run; return whether it is dead."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return False  # it has its final name now, or is not the store's
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return False
        is_dead = _lock(fd) if host and name.startswith(host) else None
        if is_dead is None:
            is_dead = found.st_mtime < time.time() - STILL_SECONDS
        if is_dead:
            try:
                # Before the lock is released: the next process that gets it sees that the file has no name.
                os.stat(name, dir_fd=folder) if dry_run else os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False  # its writer has just ended
        return is_dead
    finally:
        os.close(fd)


def _lock(fd: int) -> bool | None:
    """Lock a file; return whether that succeeded and the file has a name, None if files cannot be locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return os.fstat(fd).st_nlink > 0


def _host_of(folder: str) -> str:
    """Return the first part of the names of files whose locks this process can see; empty if unknown."""
    device = os.stat(folder).st_dev
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return ""
    return hashlib.blake2b(f"{boot} {device}".encode(), digest_size=8).hexdigest() + "-"
