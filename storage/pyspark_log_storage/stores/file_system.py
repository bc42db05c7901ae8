"""A connection through fsspec's implementation of a scheme, shared by the stores of a process with the same options.

The implementation brings its options, its credentials, and fsspec's event loop in a thread. This module adds how long
to wait and when to try again; the retries of implementations are switched off, because they take longer, and hide whose
object it is that exists.

An operation is a method of `FileSystem` that does one attempt. A scheme may do some in its own way (`s3.S3`).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import importlib
import itertools
import random
import re
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.registry import known_implementations

from pyspark_log_storage.errors import InvalidOption, StoreError, StoreRefused, StoreUnavailable
from pyspark_log_storage.stores import schemes
from pyspark_log_storage.stores.bucket_errors import CONNECT, WRITES, facts_of, meaning_of, store_error
from pyspark_log_storage.stores.connections import LastingThreads, silence
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import OPTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from pyspark_log_storage.stores.bucket_errors import Meaning

T = TypeVar("T")

RETRY_SECONDS = 14.0
"""After this time no further attempt begins, so that a small call ends within 30 s."""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
"""How long a server may be silent."""
LIST_SECONDS = 30.0
"""How long a list may take. That of most implementations is whole: many requests."""
CREDENTIALS_SECONDS = 30.0
"""How long the first credentials may take, which a program prints or a server gives."""
_BYTES_PER_SECOND_MIN = 1024 * 1024
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 4.0
_BUSY_SECONDS = 0.5
"""The least pause after the server asked for fewer requests."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_ELSEWHERE = {
    "memory": "it is in the memory of one process, and others see another one; use a folder",
    "local": "write a folder as /data/log or file:///data/log",
}
_CLASSES = {"gs": "gcsfs.core.GCSFileSystem"}
"""What is used instead of fsspec's choice: gcsfs's other class asks with each write of what kind the bucket is."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "abfs": {"connection_timeout": CONNECT_SECONDS, "read_timeout": ANSWER_SECONDS},
}
_READING: dict[str, dict[str, Any]] = {"gs": {"concurrency": 1}}
"""Arguments of `cat_file`: gcsfs would ask for the parts of a range at once, and fail if the object is shorter."""
_OWN = {"use_listings_cache": False, "skip_instance_cache": True}
"""Options that the log depends on."""
_RESERVED = ("asynchronous", "loop", "protocol", "fo", "target_protocol", *_OWN)
_LOGGERS = ("gcsfs", "azure.identity", "aiobotocore.credentials", "botocore.credentials", "botocore.tokens")
"""They log errors, with stacks, that pyspark_log raises itself."""
_TIMES = ("LastModified", "last_modified", "mtime", "created")
"""What implementations call the time at which an object was modified: S3's, Azure's, Google's, and that in memory."""
_MISSING = {"404", "FileNotFoundError"}
_OCCUPIED = {"412", "FileExistsError"}
_NOT_IN_RANGE = 416


class Occupied(Exception):
    """The key has an object. `doubtful` says whether an earlier attempt of this call may have made it."""

    def __init__(self, *, doubtful: bool) -> None:
        super().__init__()
        self.doubtful = doubtful


class Head(NamedTuple):
    """What is known of an object without reading it."""

    size: int
    time_ms: int | None
    """The server's time, or when the object was modified; None if that is not told."""
    nonce: str = ""


class Page(NamedTuple):
    """A part of a list: paths. `more` is what to ask for the next part, of greater keys; None if this is the last."""

    objects: Sequence[str]
    folders: Sequence[str] = ()
    more: Any = None


def implementation(scheme: str, url: str) -> type[Any]:
    """Return fsspec's class for a scheme. Raises `InvalidOption` if none can create an object only once."""
    chained = "" if _SCHEME.fullmatch(scheme) else "the scheme is not a word; addresses cannot be chained"
    if reason := _ELSEWHERE.get(scheme, chained):
        raise InvalidOption("path", f"there are no {scheme}:// stores ({url!r}): {reason}")
    known = known_implementations.get(scheme, {"class": "fsspec"} if scheme in fsspec.registry else None)
    if known is None:
        message = f"{scheme}:// is no scheme that fsspec knows ({url!r}); use s3://, gs://, abfs://, or a folder"
        raise InvalidOption("path", message)
    try:
        if scheme in _CLASSES:
            module, _, name = _CLASSES[scheme].rpartition(".")
            found = getattr(importlib.import_module(module), name)
        else:
            found = fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise schemes.missing(scheme, str(known["class"]).partition(".")[0], error) from None
    if not _is_own(found, "pipe_file"):
        why = "it looks whether an object exists, and then writes, so that two processes could create the same one"
        raise InvalidOption("path", f"{scheme}:// stores cannot hold a log ({url!r}): {why}; use s3:// or a folder")
    return found  # type: ignore[no-any-return]


def _is_own(kind: type[Any], method: str) -> bool:
    """Return whether an implementation has its own way to do something: fsspec's promise less."""
    if issubclass(kind, AsyncFileSystem):
        return getattr(kind, f"_{method}") is not getattr(AsyncFileSystem, f"_{method}")
    return getattr(kind, method) is not getattr(fsspec.AbstractFileSystem, method)


class FileSystem:
    """Calls methods of a file system, from any thread of this process."""

    server = "the server"
    """Its name in messages."""
    is_s3 = False
    """Whether the server keeps a nonce with an object, which tells who created it, and `head_object` has its time.

    Then a large object may be sent in parts, too: by the operations of `s3.S3` with "part" in their names.
    """

    def __init__(self, scheme: str, kind: type[Any], options: Mapping[str, Any], url: str) -> None:
        """Raises `InvalidOption`, `StoreError`, without the options' values."""
        self.scheme = scheme
        self.package = kind.__module__.partition(".")[0]
        self._kind, self._options = kind, {**self._settings(options), **_OWN}
        silence(*_LOGGERS)
        self.loop = get_loop()
        self.loop.set_default_executor(LastingThreads())
        try:
            result_of(asyncio.run_coroutine_threadsafe(self._open(), self.loop))
        except asyncio.TimeoutError:
            cure = "check credential_process, and the server that gives credentials to this machine"
            message = f"cannot use {url}: there were no credentials within {CREDENTIALS_SECONDS:g} s; {cure}"
            refused: StoreError = StoreRefused(url, "", message)
        except Exception as error:  # noqa: BLE001 -- whatever an implementation finds wrong with its options
            _, refused = self._told(error, (url, ""), CONNECT)
        else:
            return
        raise refused from None

    async def _open(self) -> None:
        """Open the implementation, with the credentials as they are now."""

        def make() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._kind(**self._options)

        self.fs = await asyncio.wait_for(asyncio.to_thread(make), CREDENTIALS_SECONDS)
        await asyncio.wait_for(self._connect(), CREDENTIALS_SECONDS)

    def _settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what to open the implementation with. Raises `InvalidOption`."""
        for name in _RESERVED:
            if name in options:
                message = f"option {OPTION} has {name!r}, which the log sets itself; leave it out"
                raise InvalidOption(OPTION, message)
        return {**_DEFAULTS.get(self.scheme, {}), **options}

    async def _connect(self) -> None:
        """Switch off the retries of gcsfs and adlfs, if they are where they are known to be."""
        fs: Any = self.fs
        once = getattr(getattr(type(fs), "_request", None), "__wrapped__", None)
        if once is not None:
            fs._request = functools.partial(once, fs)  # noqa: SLF001 -- gcsfs's retries cannot be configured
        policy = getattr(getattr(getattr(fs, "service_client", None), "_config", None), "retry_policy", None)
        if policy is not None and hasattr(policy, "total_retries"):
            policy.total_retries = 0

    def start(
        self, at: tuple[str, str], operation: str, *arguments: Any, sent: int = 0, received: int = 0, **options: Any
    ) -> Future[Any]:
        """Start an operation. `result_of` returns what it returns, and raises `StoreError`.

        It is repeated after a failure that may be transient, until `RETRY_SECONDS` have passed, and once after a
        refused login with the credentials as they are now: somebody may have renewed them. With `create` it raises
        `Occupied` if the key has an object. `at` are the URL and the key for messages, `sent` and `received` the
        numbers of bytes, as far as they are known.
        """
        run = functools.partial(getattr(self, operation), *arguments, **options)
        seconds: float | None = LIST_SECONDS if operation == "list_objects" else seconds_for(sent + received)
        if operation == "get_object" and self.is_s3:
            seconds = None  # it limits its time itself
        call = self._until_answered(at, operation, run, seconds, sent)
        return asyncio.run_coroutine_threadsafe(call, self.loop)

    async def _until_answered(
        self, at: tuple[str, str], operation: str, run: functools.partial[Any], seconds: float | None, sent: int
    ) -> Any:
        counts, began = counts_of(at[0]), time.monotonic()
        doubtful = False  # whether an earlier attempt may have had its effect
        used = refused = None
        for number in itertools.count():
            received = 0
            try:
                if refused is not None and self.fs is refused:  # else another call has read the credentials
                    await self._open()
                used = self.fs
                answer = await asyncio.wait_for(run(), seconds)
                received = len(answer) if isinstance(answer, bytes) else 0
                return answer
            except Exception as caught:  # noqa: BLE001 -- whatever the implementation and its clients raise
                facts = facts_of(caught)
                if operation == "get_object" and facts.status == _NOT_IN_RANGE:
                    return b""
                if run.keywords.get("create") and facts.names & _OCCUPIED:
                    raise Occupied(doubtful=doubtful) from None
                meaning, error = self._told(caught, at, operation)
            finally:
                counts.add(operation, sent=sent, received=received)
            if meaning.is_login and refused is None:
                refused = used
                continue
            if not error.retriable and doubtful and operation in WRITES:
                raise in_doubt(error) from None
            if not error.retriable or time.monotonic() - began >= RETRY_SECONDS:
                raise error from None
            doubtful = True
            await asyncio.sleep(_pause(number, busy=meaning.is_busy))
        raise AssertionError

    def _told(
        self, error: Exception, at: tuple[str, str], operation: str, **details: str
    ) -> tuple[Meaning, StoreError]:
        """Return what an implementation's error means, and the error to raise instead, which may name details."""
        facts = facts_of(error)
        meaning = meaning_of(facts, self.scheme, operation)
        told = {"server": self.server, "package": self.package, "operation": operation, "code": facts.code}
        return meaning, store_error(meaning, at, **told, **details)

    async def put_object(self, path: str, data: bytes, *, create: bool = False, nonce: str = "") -> None:
        """Write an object, with `create` only if there is none."""
        del nonce
        await self._do("pipe_file", path, data, mode="create" if create else "overwrite")

    async def put_file(self, path: str, file: str, *, create: bool) -> None:
        await self._do("put_file", file, path, mode="create" if create else "overwrite")

    async def get_object(self, path: str, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` to `end`, or to its end."""
        limits = {} if (start, end) == (0, None) else {"start": start, "end": end}
        return bytes(await self._do("cat_file", path, **limits, **_READING.get(self.scheme, {})))

    async def head_object(self, path: str) -> Head:
        """Return what is known of an object."""
        found = await self._do("info", path)
        if found.get("type") != "file":
            raise FileNotFoundError
        times = (found[name] for name in _TIMES if isinstance(found.get(name), dt.datetime))
        return Head(int(found["size"]), next((int(each.timestamp() * 1000) for each in times), None))

    async def list_objects(self, path: str, after: str, more: Any, *, folders: bool) -> Page:
        """Return a part of what is in a folder and below; with `folders`, of the folders in it.

        `after` is the path after which the list begins, if the server can do that; "" for all. fsspec's own `find`
        leaves out silently what it fails to list, so each folder is listed instead.
        """
        del after, more
        self.fs.invalidate_cache()  # the options switch caches off; not every implementation heeds them
        path = path.rstrip("/")
        if not folders and _is_own(type(self.fs), "find"):
            return Page([str(each).lstrip("/") for each in await self._do("find", path)])
        objects, below, left = list[str](), list[str](), [path]
        while left:
            here = left.pop()
            try:
                found = {str(each["name"]).strip("/"): each["type"] for each in await self._do("ls", here, detail=True)}
            except Exception as error:
                if facts_of(error).names & _MISSING:
                    continue  # its last object was deleted meanwhile
                raise
            objects += [name for name, kind in found.items() if kind != "directory"]
            below = [name for name, kind in found.items() if kind == "directory" and name != here]
            left += [] if folders else below
        return Page(objects, below)

    async def delete_object(self, path: str) -> None:
        await self._do("rm_file", path)

    async def _do(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self.fs.async_impl:
            return await getattr(self.fs, f"_{method}")(*arguments, **options)
        return await asyncio.to_thread(getattr(self.fs, method), *arguments, **options)


def result_of(future: Future[T]) -> T:
    """Return the answer to a call that was started, and end the call if this thread is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def in_doubt(error: StoreError) -> StoreError:
    """Return the error of a `create` that an earlier attempt may have done: a retriable one, whatever the last says."""
    if error.retriable:
        return error
    message = f"{error.message}; an attempt before this answer may have written {error.key}, so try again"
    return StoreUnavailable(error.url, error.key, message)


def seconds_for(size: int) -> float:
    """Return how long an attempt may take that sends or receives so many bytes."""
    return CONNECT_SECONDS + ANSWER_SECONDS + size / _BYTES_PER_SECOND_MIN


def _pause(number: int, *, busy: bool) -> float:
    """Return how long to wait after an attempt: random, longer each time and if the server is busy."""
    least = _BUSY_SECONDS if busy else 0.0
    return least + random.uniform(0, min(_PAUSE_SECONDS * 2**number, _PAUSE_SECONDS_MAX))
