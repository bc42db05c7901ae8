"""The folders and files below a store's root, accessed without following symbolic links.

The root itself may be a link or below one: operators mount disks so. Below the root the product creates no links, so a
link would lead to files that are not the log's, and nothing is read, written, listed or deleted through one. To list
and to delete, each folder is opened relative to its parent (`dir_fd`), so that it cannot be replaced by a link
meanwhile. For reads and writes each folder of a path is checked once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_MAX = 64
"""How deep a tree is listed. The product creates fewer than ten levels."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """The files below a root. Names are relative to it, with "/" between their parts. Methods may raise `OSError`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()
        """Folders whose paths have no link."""

    def check(self, folder: str) -> None:
        """Raise `StoreRefused` if a folder or one above it is a symbolic link."""
        if folder in self._known or not folder:
            return
        path = self._root
        for part in folder.split("/"):
            path = f"{path}/{part}"
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                return  # checked again when it exists
            if stat.S_ISLNK(found.st_mode):
                raise self.refused(path[len(self._root) + 1 :])
        self._known.add(folder)

    def refused(self, key: str) -> StoreRefused:
        """Return the error for a symbolic link."""
        return StoreRefused(
            self._root,
            key,
            f"{self._root}/{key} is a symbolic link, and links below a store's root are not followed; replace it by "
            "the file or folder it leads to",
        )

    def open(self, key: str) -> int:
        """Open a file for reading; do not block on a pipe. Raises `StoreRefused` if it is a link."""
        try:
            return os.open(f"{self._root}/{key}", _FILE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self.refused(key) from error
            raise

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; none if it does not exist."""
        return sorted(name[:-1] for name in self._names(folder) if name.endswith("/"))

    def walk(self, folder: str, after: str, hidden: str, depth: int = 0) -> Iterator[str]:
        """Yield the regular files below `folder`, which is empty or ends with "/", that sort after `after`.

        Files in the folder `hidden` are skipped.
        """
        for name in self._names(folder):
            key = folder + name
            if key == hidden:
                continue
            if not name.endswith("/"):
                if key > after:
                    yield key
            elif (key > after or after.startswith(key)) and depth < DEPTH_MAX:
                yield from self.walk(key, after, hidden, depth + 1)

    def delete(self, key: str) -> None:
        """Delete a file or a link, if it exists."""
        folder, _, name = key.rpartition("/")
        with contextlib.suppress(FileNotFoundError, IsADirectoryError), self._opened(folder) as fd:
            os.unlink(name, dir_fd=fd)

    def remove_folders(self, folder: str) -> None:
        """Remove a folder and those in it, unless they contain a file."""
        above, _, name = folder.rpartition("/")
        with contextlib.suppress(FileNotFoundError):
            with self._opened(folder):
                pass  # raises if it is a link
            with self._opened(above) as fd:
                _remove_empty(fd, name, 0)

    def _names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted as keys are: the name of a folder ends with "/"."""
        try:
            with self._opened(folder.rstrip("/")) as fd, os.scandir(fd) as entries:
                return sorted(name for name in map(_name, entries) if name)
        except FileNotFoundError:
            return []

    @contextlib.contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """Open a folder step by step from the root."""
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in folder.split("/") if folder else ():
                try:
                    inner = os.open(part, _FOLDER, dir_fd=fd)
                except OSError as error:
                    if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                        self._known.discard(folder)
                        self.check(folder)
                    if error.errno == errno.ENOTDIR:  # a file has the name, so there is no such folder
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder) from error
                    raise
                outer, fd = fd, inner  # before the close: an interrupt after it would close the number twice
                os.close(outer)
            yield fd
        finally:
            os.close(fd)


def _name(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/"
    return entry.name if entry.is_file(follow_symlinks=False) else ""


def _remove_empty(parent: int, name: str, depth: int) -> bool:
    """Remove a folder and those in it, unless they contain a file; return whether it does not exist any more."""
    if depth > DEPTH_MAX:
        return False
    try:
        fd = os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return True
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        left = [each for each, is_folder in found if not (is_folder and _remove_empty(fd, each, depth + 1))]
    finally:
        os.close(fd)
    if left:
        return False
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        if error.errno != errno.ENOENT:
            raise
    return True
