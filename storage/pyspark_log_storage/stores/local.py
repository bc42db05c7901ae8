"""A store in a folder of a shared file system (POSIX: link, rename, fsync of folders).

    <root>/<key>            the objects
    <root>/.tmp/<nonce>     objects that are being written, and those of killed writers, for a day
    <root>/.tmp/reserve     space for a full disk (`reserve`)

The first write creates the folder `.tmp`, when the name of the root is durable. So if it is missing, nothing was ever
written or the disk is not mounted. A node's store then requires its marker, and does not write into the empty folder
below the mount point.

`create` writes a temporary file, flushes it, and links it to its name. `link` fails if the name exists, so one of many
concurrent processes wins and none sees half an object. `put` renames over the name instead. Both flush the folder of
the name, and once the folders above it. Reads are `pread` into buffers: a memory map of a damaged disk would kill the
process with SIGBUS.

No key leads out of the root (`check_key`), and no file that is a symbolic link is opened. Folders are ordinary paths.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import stat
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_log_storage.errors import (
    NodeAway,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
    StoreUnwritable,
)
from pyspark_log_storage.stores.store import TEMPORARY, check_key, check_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

EARLY_BYTES = 4 * 1024 * 1024
"""Write-back begins whenever so many bytes were written, so never for smaller files."""
_SYNC_FILE_RANGE_WRITE = 2
_NS_PER_MS = 1_000_000
_TRUSTED_BYTES = 1024 * 1024
"""A longer read looks at the size of the file first, before it allocates memory."""
STILL_SECONDS = 86_400
"""A writer counts as dead when it has written nothing to its temporary file for so long."""
_NONCE = re.compile(r"[0-9a-f]{32}")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space or raise it",
    errno.EMFILE: "this process has too many open files; close some, or raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many open files; close some, or raise its limit (sysctl fs.file-max)",
    errno.EFBIG: "the file would be too large for the file system, or for the process; raise its limit (ulimit -f)",
    errno.EROFS: "the file system is read-only; mount it for writing",
    errno.EACCES: "permission is denied; check the owner and mode of {place}",
    errno.EPERM: "the operation is not permitted; check the owner and mode of {place}",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "the path is a folder; choose another path",
    errno.ELOOP: "it is a symbolic link, and the log makes none; replace it by the file that it leads to",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter one",
}
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Errors that every process gets, not this one alone."""
# Errors of `link` on a file system without hard links. FAT on Linux raises EPERM.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS}
_NO_FLUSHES = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
"""Errors of `fsync` of a folder on a file system that cannot do it."""


class _NoFolderFlush(OSError):
    """The file system cannot flush folders."""


class LocalStore:
    """The objects in a folder. Safe for any number of processes and threads."""

    def __init__(self, root: str, *, marker: str = "", first: str = "") -> None:
        """`root` is an absolute path; raises `StoreRefused` if not. Touches nothing yet.

        `marker` is the key of an object without which a new store accepts only keys that begin with `first`. Empty: it
        accepts any key.
        """
        if not os.path.isabs(root) or "\0" in root:
            raise StoreRefused(root, "", f"{root!r} is not an absolute path; correct the address of the store")
        self.url = root
        self._root = root
        self._marker, self._first = marker, first
        self.temporary_folder = f"{root}/{TEMPORARY}"
        """Where files are that are not objects. It exists once anything was written."""
        self._reachable: set[str] = set()
        """Folders, relative to the root, whose names this object has flushed."""
        self._flushes_folders = False
        """Whether the file system is known to flush folders."""

    def create(self, key: str, data: bytes) -> bool:
        return self._write(key, data, replace=False)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def create_unflushed(self, key: str, data: bytes) -> bool:
        with _errors(self.url, key):
            try:
                path = self._path(key)
                # Without the temporary folder the disk is not mounted any more.
                fd = self._in_folder(path, lambda: os.open(path, _NEW_FILE, 0o666), self.temporary_folder)
            except FileExistsError:
                return False
            try:
                _write_all(fd, data)
            finally:
                os.close(fd)
        return True

    def put(self, key: str, data: bytes) -> None:
        self._write(key, data, replace=True)

    def _write(self, key: str, data: bytes, *, replace: bool) -> bool:
        writer = self.open_write(key, replace=replace)
        writer.write(data)
        return writer.finish()

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with _errors(self.url, key):
            try:
                fd = os.open(self._path(key), _FILE)
            except FileNotFoundError as error:
                raise ObjectMissing(self.url, key) from error
            try:
                if length is None or length > _TRUSTED_BYTES:
                    available = max(0, os.fstat(fd).st_size - start)
                    length = available if length is None else min(length, available)
                data = os.pread(fd, length, start)
                while len(data) < length:
                    more = os.pread(fd, length - len(data), start + len(data))
                    if not more:
                        break
                    data += more
                return data
            except IsADirectoryError as error:
                raise ObjectMissing(self.url, key) from error
            finally:
                os.close(fd)

    def size(self, key: str) -> int:
        with _errors(self.url, key):
            try:
                found = os.lstat(self._path(key))
            except FileNotFoundError as error:
                raise ObjectMissing(self.url, key) from error
            if stat.S_ISLNK(found.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if not stat.S_ISREG(found.st_mode):
                raise ObjectMissing(self.url, key)
            return found.st_size

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        check_prefix(self.url, prefix)
        with _errors(self.url, prefix):
            yield from self._walk(prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(self.url, prefix)
        with _errors(self.url, prefix):
            yield from sorted(name[:-1] for name in self._names(prefix) if name.endswith("/"))

    def delete(self, key: str) -> None:
        with _errors(self.url, key), contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            os.unlink(self._path(key))

    def make_folder(self, prefix: str) -> None:
        check_prefix(self.url, prefix)
        folder = prefix.removesuffix("/")
        with _errors(self.url, folder):
            os.stat(self.temporary_folder)  # fails if the disk is not mounted
            self._make_folders(f"{self._root}/{folder}", below=self._root)

    def remove_folders(self, prefix: str) -> None:
        check_prefix(self.url, prefix)
        with _errors(self.url, prefix):
            for folder, _, _ in os.walk(self._path(prefix.removesuffix("/")), topdown=False):
                try:
                    os.rmdir(folder)
                except OSError as error:
                    if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
                        raise

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> LocalWriter:
        check_key(self.url, key)
        with _errors(self.url, key):
            try:
                fd, temporary = self._new_temporary()
            except FileNotFoundError:
                if self._marker and not key.startswith(self._first) and not os.path.exists(self._path(self._marker)):
                    raise NodeAway(
                        self.url,
                        key,
                        f"the store at {self.url} has no marker: is its disk mounted, or was it wiped? Mount the right "
                        f"one; {key} was not written",
                    ) from None
                self._make_root()
                fd, temporary = self._new_temporary()
            return LocalWriter(self, key, fd, temporary, durable=durable, replace=replace)

    def clock_ms(self) -> int | None:
        """Return when a file that was just created was created: on a network file system the server says so."""
        with _errors(self.url, TEMPORARY):
            fd, temporary = self._new_temporary()
            try:
                return os.fstat(fd).st_mtime_ns // _NS_PER_MS
            finally:
                os.close(fd)
                _remove(temporary)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        found = []
        with _errors(self.url, TEMPORARY), contextlib.suppress(FileNotFoundError):
            # Compared with the newest change of the folder, of which the file system says when it was, not a process.
            still_since = os.stat(self.temporary_folder).st_mtime - STILL_SECONDS
            for name in sorted(filter(_NONCE.fullmatch, os.listdir(self.temporary_folder))):
                path = f"{self.temporary_folder}/{name}"
                with contextlib.suppress(FileNotFoundError):  # its writer, or another cleanup, has just removed it
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode) and status.st_mtime < still_since:
                        if not dry_run:
                            os.unlink(path)
                        found.append(f"{TEMPORARY}/{name}")
        return found

    def publish(self, temporary: str, key: str, *, durable: bool, replace: bool) -> bool:
        """Give a complete file its name. Return False if the name belongs, or just belonged, to another file.

        With `replace` an existing file loses its name. If `durable`, the name is durable afterwards either way, so that
        the loser may rely on the winner's bytes.
        """
        path = self._path(key)
        self._check_flushes()
        created = True
        try:
            give = os.rename if replace else os.link
            # Without the temporary file the disk is not mounted any more, or a cleanup took the writer for dead.
            self._in_folder(path, lambda: give(temporary, path), temporary)
        except FileExistsError:
            # A network file system may lose the answer to a successful link: then the name is our file's.
            mine = os.stat(temporary)
            try:
                created = os.path.samestat(mine, os.lstat(path))
            except FileNotFoundError:
                created = False  # the other file has been deleted since
        except OSError as error:
            if error.errno in _NO_LINKS and not replace:
                raise StoreUnfit(
                    self.url,
                    key,
                    f"the file system of {self._root} has no hard links ({error.strerror}); use another one",
                ) from error
            raise
        if durable:
            self._flush_name(key)
        return created

    def _path(self, key: str) -> str:
        """Return the path of an object. Raises `StoreRefused` if it would lead out of the store."""
        check_key(self.url, key)
        return f"{self._root}/{key}"

    def _names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder, sorted as keys are: the name of a folder ends with "/". Links are skipped."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                return sorted(name for name in map(_name, entries) if name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _walk(self, folder: str, after: str) -> Iterator[str]:
        """Yield the files below `folder`, which is empty or ends with "/", that sort after `after`."""
        for name in self._names(folder):
            key = folder + name
            if not name.endswith("/"):
                if key > after:
                    yield key
            elif key != f"{TEMPORARY}/" and (key > after or after.startswith(key)):
                yield from self._walk(key, after)

    def _new_temporary(self) -> tuple[int, str]:
        """Return a descriptor for writing a new file in the folder of temporary ones, and its path."""
        path = f"{self.temporary_folder}/{uuid.uuid4().hex}"
        return os.open(path, _NEW_FILE, 0o666), path

    def _check_flushes(self) -> None:
        """Flush the root once, before a file gets a name: where folders cannot be flushed nothing must be written."""
        if not self._flushes_folders:
            _flush_folder(self._root)
            self._flushes_folders = True

    def _flush_name(self, key: str) -> None:
        """Make the name of an existing object durable.

        Raises `StoreUnavailable` for every error: the object may survive, so another error, which promises that nothing
        was written, would be wrong.
        """
        try:
            self._flush(key.rpartition("/")[0])
        except OSError as error:
            raise StoreUnavailable(
                self.url,
                key,
                f"cannot flush the folder of {self._root}/{key}: {_advice(error)}, then try again",
            ) from error

    def _flush(self, folder: str) -> None:
        """Make the names in `folder`, relative to the root, durable; the first time also the folders above.

        Another process may have created the folders above and died before it flushed them.
        """
        _flush_folder(f"{self._root}/{folder}")
        if folder and folder not in self._reachable:
            self._flush(folder.rpartition("/")[0])
            self._reachable.add(folder)

    def _in_folder(self, path: str, act: Callable[[], T], needed: str) -> T:
        """Do what needs the folder of a path. If that is missing, create it, unless what is `needed` is missing."""
        try:
            return act()
        except FileNotFoundError:
            os.stat(needed)
            self._make_folders(os.path.dirname(path), below=self._root)
            return act()

    def _make_root(self) -> None:
        """Create the root, and `.tmp` when the name of the root is durable: nobody flushes that later.

        Another process may have created the root or folders above it, and died before it flushed them.
        """
        self._make_folders(self._root)
        folder = os.path.realpath(self._root)
        device = os.stat(folder).st_dev
        while folder != "/":
            folder = os.path.dirname(folder)
            if os.stat(folder).st_dev != device or not os.access(folder, os.W_OK):
                break  # no process of ours made a folder there
            _flush_folder(folder)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.temporary_folder)

    def _make_folders(self, folder: str, *, below: str = "/") -> None:
        """Create a folder and its parents. `_flush` makes their names durable.

        Raises `FileNotFoundError` if the folder `below` is missing: a root that was unmounted or moved in this moment
        is not made again.
        """
        if folder == below:
            return
        parent = os.path.dirname(folder)
        if parent != below and not os.path.isdir(parent):
            self._make_folders(parent, below=below)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        self._reachable.discard(folder[len(self._root) + 1 :])


class LocalWriter:
    """A file that gets its name when it is complete."""

    def __init__(self, store: LocalStore, key: str, fd: int, temporary: str, *, durable: bool, replace: bool) -> None:
        self._store = store
        self._key = key
        self._fd = fd
        self._temporary = temporary
        self._durable = durable
        self._replace = replace
        self._written = 0
        self._flushing = 0
        """The number of bytes whose write-back has begun."""

    def write(self, *pieces: bytes) -> None:
        assert self._fd >= 0, "written to after its end"
        with _errors(self._store.url, self._key):
            try:
                for piece in pieces:
                    self._written += _write_all(self._fd, piece)
            except BaseException:
                self.discard()  # a retry would append to the part of a piece that was written
                raise
        if self._durable and self._written - self._flushing >= EARLY_BYTES:
            _begin_writeback(self._fd, self._flushing, self._written - self._flushing)
            self._flushing = self._written

    def finish(self) -> bool:
        """Publish the file. Return False if the name belongs to another one."""
        assert self._fd >= 0, "closed after its end"
        with _errors(self._store.url, self._key):
            try:
                if self._durable:
                    _flush_file(self._fd)
                self._close_file()  # before it has a name: a network file system may write now, and fail
                return self._store.publish(self._temporary, self._key, durable=self._durable, replace=self._replace)
            finally:
                self.discard()

    def close(self) -> None:
        if not self.finish():
            raise StoreError(
                self._store.url,
                self._key,
                f"{self._key!r} already exists in {self._store.url}; names are never reused",
            )

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._close_file()
        _remove(self._temporary)

    def _close_file(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1  # the descriptor is closed even if `close` fails
            os.close(fd)


@contextlib.contextmanager
def _errors(url: str, key: str) -> Iterator[None]:
    """Turn the operating system's errors into `StoreError`s that name the object and what to do.

    A file that is missing during a write is not `ObjectMissing`: a folder was moved away.
    """
    try:
        yield
    except _NoFolderFlush as error:
        raise StoreUnfit(
            url,
            key,
            f"the file system of {url} cannot flush folders ({error.strerror}), so that files may vanish after a power "
            "failure; use another one",
        ) from error
    except OSError as error:
        kind: type[StoreError] = StoreUnavailable
        if error.errno in _ADVICE:
            kind = StoreUnwritable if error.errno in _UNWRITABLE else StoreRefused
        raise kind(url, key, f"cannot use {url}/{key}: {_advice(error)}, then try again") from error


def _advice(error: OSError) -> str:
    """Return what went wrong, and what to do."""
    known = _ADVICE.get(error.errno or 0)
    return known.format(place=_place(error)) if known else f"{error.strerror or error}; check the disk or mount"


def _place(error: OSError) -> str:
    """Return what refused a call: the file, or the folder in which it is not. `.tmp` refuses before the file's own."""
    path = error.filename2 or error.filename
    if not isinstance(path, str) or not os.path.isabs(path):
        return "the folder"
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _name(entry: os.DirEntry[str]) -> str:
    """Return the name of a file, that of a folder with "/", and nothing for anything else."""
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name}/"
    return entry.name if entry.is_file(follow_symlinks=False) else ""


def _remove(temporary: str) -> None:
    """Remove a temporary file, or its name if it has another one now. Never raises: one that stays costs only space."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)


def _write_all(fd: int, data: bytes) -> int:
    """Write bytes, or any contiguous buffer, and return their number."""
    view = memoryview(data).cast("B")
    size = view.nbytes
    while view.nbytes:
        view = view[os.write(fd, view) :]
    return size


def _flush_file(fd: int) -> None:
    """Write a file's bytes to the disk itself."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fdatasync(fd)
        return
    # macOS has no fdatasync, and its fsync leaves the bytes in the disk's cache.
    try:
        fcntl.fcntl(fd, full)
    except OSError:
        os.fsync(fd)  # a mount that does not know the call


def _begin_writeback(fd: int, start: int, length: int) -> None:
    """Begin to write back `length` bytes from `start`, without waiting, so that the flush at the end takes less time.

    Linux only (sync_file_range); elsewhere nothing happens. Only the flush makes a file durable, and it reports errors:
    this never raises.
    """
    call = _sync_file_range()
    if call is not None:
        call(fd, start, length, _SYNC_FILE_RANGE_WRITE)


@functools.lru_cache
def _sync_file_range() -> Callable[..., Any] | None:
    import ctypes  # needed only for large files

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


def _flush_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno in _NO_FLUSHES:
            raise _NoFolderFlush(error.errno, error.strerror) from error
        raise
    finally:
        os.close(fd)
