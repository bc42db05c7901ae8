"""A connection through fsspec's implementation of a scheme, shared by the stores of a process with the same options.

The implementation brings its options, its credentials, and fsspec's event loop in a thread. This module adds how long
to wait and when to try again; the retries of gcsfs and adlfs are switched off, because they take longer, and hide whose
object it is that exists.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import warnings
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import InvalidOption, LogError, StoreRefused
from pyspark_log_storage.stores import schemes
from pyspark_log_storage.stores.connections import LastingThreads, PerProcess, silence
from pyspark_log_storage.stores.fsspec_errors import OCCUPIED, is_busy, is_refused_login, status_of, translated
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import OPTION

try:
    import fsspec
    from fsspec.asyn import AsyncFileSystem, get_loop
    from fsspec.registry import known_implementations

    from pyspark_log_storage.stores.attempts import (
        ANSWER_SECONDS,
        CONNECT_SECONDS,
        Again,
        in_doubt,
        result_of,
        seconds_for,
        until_answered,
    )
except ImportError as missing:
    raise InvalidOption(
        "path", f"this address needs fsspec, and it cannot be imported ({missing}); pip install fsspec tenacity"
    ) from None

if TYPE_CHECKING:
    from pyspark_log_storage.stores.storage_options import StorageOptions

LIST_SECONDS = 30.0
"""How long one list may take, which is whole: many requests."""
_CLASSES = {"gs": "gcsfs.core.GCSFileSystem"}
"""What is used instead of fsspec's choice: gcsfs's other class asks with each write of what kind the bucket is."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "abfs": {"connection_timeout": CONNECT_SECONDS, "read_timeout": ANSWER_SECONDS},
}
_PARTS = {"sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "hdfs": "pyarrow", "http": "aiohttp"}
"""What fsspec's own implementations of some schemes need."""
_OWN = {"use_listings_cache": False, "skip_instance_cache": True}
"""Options that the log depends on."""
_RESERVED = ("asynchronous", "loop", "protocol", "fo", "target_protocol", *_OWN)
_WRITES = {"pipe_file", "put_file"}
_LOGGERS = ("gcsfs", "azure.identity")
"""They log errors, with stacks, that pyspark_log raises itself."""


class Exists(Exception):
    """The key has an object. `doubtful` says whether an earlier attempt of this call may have made it."""

    def __init__(self, *, doubtful: bool) -> None:
        super().__init__()
        self.doubtful = doubtful


def implementation(scheme: str, url: str) -> type[Any]:
    """Return fsspec's class for a scheme. Raises `InvalidOption` if none can create an object only once."""
    reason = schemes.refusal(scheme)
    if reason:
        raise InvalidOption("path", f"there are no {scheme}:// stores ({url!r}): {reason}")
    package = schemes.PACKAGES.get(scheme) or _package_of(scheme)
    if not package:
        message = f"{scheme}:// is no scheme that fsspec knows ({url!r}); use s3://, gs://, abfs://, or a folder"
        raise InvalidOption("path", message)
    try:
        if scheme in _CLASSES:
            module, _, name = _CLASSES[scheme].rpartition(".")
            found = getattr(importlib.import_module(module), name)
        else:
            found = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError):
        message = f"{scheme}:// addresses need {package}, and it cannot be imported; pip install {package} tenacity"
        raise InvalidOption("path", message) from None
    if not _writes_by_itself(found):
        why = "it looks whether an object exists, and then writes, so that two processes could create the same one"
        raise InvalidOption("path", f"{scheme}:// stores cannot hold a log ({url!r}): {why}; use s3:// or a folder")
    return found  # type: ignore[no-any-return]


def _writes_by_itself(kind: type[Any]) -> bool:
    """Return whether an implementation has its own way to write an object: fsspec's looks first, or cannot write."""
    if issubclass(kind, AsyncFileSystem):
        return kind._pipe_file is not AsyncFileSystem._pipe_file  # noqa: SLF001 -- fsspec's name for async
    return kind.pipe_file is not fsspec.AbstractFileSystem.pipe_file


def _package_of(scheme: str) -> str:
    """Return the package that fsspec names for a scheme, or "" if it knows no such scheme."""
    known = known_implementations.get(scheme)
    if known is not None:
        of_fsspec = _PARTS.get(scheme, "fsspec")
        return str(known["class"]).partition(".")[0].replace("fsspec", of_fsspec)
    return "fsspec" if scheme in fsspec.registry else ""


class FileSystemClient:
    """Calls methods of a file system, from any thread of this process."""

    def __init__(self, kind: type[Any], scheme: str, options: dict[str, Any], url: str) -> None:
        """Raises `InvalidOption`, `StoreError`, without the options' values."""
        for name in _RESERVED:
            if name in options:
                message = f"option {OPTION} has {name!r}, which the log sets itself; leave it out"
                raise InvalidOption(OPTION, message)
        self.package = schemes.PACKAGES.get(scheme) or kind.__module__.partition(".")[0]
        silence(*_LOGGERS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.fs: Any = kind(**{**_DEFAULTS.get(scheme, {}), **options, **_OWN})
        except Exception as error:  # noqa: BLE001 -- whatever an implementation finds wrong with its options
            kind_of = type(error).__name__
            cure = "check storage_options and the environment"
            message = f"cannot use {url}: {self.package} refuses its options or credentials ({kind_of}); {cure}"
        else:
            self.loop = self.fs.loop if self.fs.async_impl else get_loop()
            self.loop.set_default_executor(LastingThreads())
            _retry_only_here(self.fs)
            return
        raise StoreRefused(url, "", message)

    def call(
        self, at: tuple[str, str], method: str, *arguments: Any, sent: int = 0, received: int = 0, **options: Any
    ) -> Any:
        """Return what a method of the file system returns. Raises `StoreError`; with `mode="create"` also `Exists`.

        Repeats it after a failure that may be transient, until `RETRY_SECONDS` have passed. `at` are the URL and the
        key for messages, `sent` and `received` are the numbers of bytes, as far as they are known.
        """
        start = functools.partial(self._start, method, *arguments, **options)
        call = _Call(self, at, method, start, sent, received)
        call.creates = options.get("mode") == "create"
        return result_of(asyncio.run_coroutine_threadsafe(until_answered(call.attempt), self.loop))

    async def _start(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self.fs.async_impl:
            return await getattr(self.fs, f"_{method}")(*arguments, **options)
        return await asyncio.to_thread(getattr(self.fs, method), *arguments, **options)


class _Call:
    """One call, with its attempts."""

    def __init__(
        self, client: FileSystemClient, at: tuple[str, str], method: str, start: Any, sent: int, received: int
    ) -> None:
        self._client, self._at, self._method, self._start = client, at, method, start
        self.creates = False
        """Whether that the key is occupied is an expected answer."""
        self._sent, self._received, self._doubtful = sent, 0, False
        self._counts = counts_of(at[0])
        self._seconds = LIST_SECONDS if method in {"find", "ls"} else seconds_for(sent + received)

    async def attempt(self) -> Any:
        try:
            answer = await asyncio.wait_for(self._start(), self._seconds)
            self._received = len(answer) if isinstance(answer, bytes) else 0
            return answer
        except LogError:
            raise
        except Exception as caught:  # noqa: BLE001 -- whatever the implementation and its clients raise
            outcome = self._outcome(caught)
        finally:
            self._counts.add(self._method, sent=self._sent, received=self._received)
        raise outcome from None

    def _outcome(self, caught: Exception) -> Exception:
        """Return what to raise instead of an implementation's error."""
        if self.creates and (isinstance(caught, FileExistsError) or status_of(caught) == OCCUPIED):
            return Exists(doubtful=self._doubtful)
        # Python 3.10 has two kinds of TimeoutError.
        error = TimeoutError() if isinstance(caught, asyncio.TimeoutError) else caught
        outcome = translated(error, *self._at, self._method, self._client.package)
        if is_refused_login(error):
            _clients.forget(self._client)  # somebody may have renewed them since
        if not outcome.retriable:
            return in_doubt(outcome) if self._doubtful and self._method in _WRITES else outcome
        self._doubtful = True
        return Again(outcome, busy=is_busy(caught))


def _retry_only_here(fs: Any) -> None:
    """Switch off the retries of gcsfs and adlfs, if this version of them has them where they are known to be."""
    once = getattr(getattr(type(fs), "_request", None), "__wrapped__", None)
    if once is not None:
        fs._request = functools.partial(once, fs)  # noqa: SLF001 -- gcsfs's retries cannot be configured
    policy = getattr(getattr(getattr(fs, "service_client", None), "_config", None), "retry_policy", None)
    if policy is not None and hasattr(policy, "total_retries"):
        policy.total_retries = 0


_clients: PerProcess[FileSystemClient] = PerProcess()


def client_of(kind: type[Any], scheme: str, options: StorageOptions, url: str) -> FileSystemClient:
    """Return the process's client for the store at a URL. Raises `InvalidOption`, `StoreError`."""
    own = options.only_of(url)
    return _clients.get((kind, own), lambda: FileSystemClient(kind, scheme, own.at(url), url))
