"""A connection to an S3 server, shared by the stores of a process that have the same options.

It is s3fs's: its options, its credentials, its event loop in a thread of its own. This module adds how long to wait and
when to try again; the retries of s3fs and botocore are switched off, because they would take longer.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import CorruptObject, InvalidOption, LogError, StoreError, StoreRefused
from pyspark_log_storage.stores.connections import LastingThreads, PerProcess, silence
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import OPTION

try:
    import s3fs

    from pyspark_log_storage.stores.attempts import (
        ANSWER_SECONDS,
        CONNECT_SECONDS,
        READ_BYTES_MAX,
        Again,
        in_doubt,
        result_of,
        seconds_for,
        until_answered,
    )
    from pyspark_log_storage.stores.s3_errors import code_of, is_busy, is_refused_login, translated
except ImportError as missing:
    raise InvalidOption(
        "path",
        f"s3:// addresses need s3fs, and it cannot be imported ({missing}); pip install s3fs aiobotocore tenacity",
    ) from None

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from pyspark_log_storage.stores.storage_options import StorageOptions

CREDENTIALS_SECONDS = 30.0
"""How long the first credentials may take, which a program prints or a server gives."""
_CONNECTIONS_MAX = 32
_CONFIG = {
    "connect_timeout": CONNECT_SECONDS,
    "read_timeout": ANSWER_SECONDS,
    "max_pool_connections": _CONNECTIONS_MAX,
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # Chunks and journal objects have checksums of their own, and not every server knows S3's newer ones.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
_LOGGERS = ("aiobotocore.credentials", "botocore.credentials", "botocore.tokens")
"""They log errors, with stacks, that pyspark_log raises itself."""
_REFUSED = {400, 403}
_OPTIONS = (
    "key",
    "secret",
    "token",
    "anon",
    "profile",
    "endpoint_url",
    "use_ssl",
    "requester_pays",
    "client_kwargs",
    "config_kwargs",
    "s3_additional_kwargs",
)


class Answered(Exception):
    """An answer of a status that the caller expects."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class S3Client:
    """Calls methods of S3, from any thread of this process."""

    def __init__(self, options: Mapping[str, Any], url: str) -> None:
        """Raises `InvalidOption` for an unknown option, and `StoreError` for one that botocore refuses."""
        for name in options:
            if name not in _OPTIONS:
                known = ", ".join(_OPTIONS)
                message = f"option {OPTION} has {name!r}, which s3:// stores do not have; available: {known}"
                raise InvalidOption(OPTION, message)
        settings = options.get("client_kwargs") or {}
        given = options.get("endpoint_url") or settings.get("endpoint_url")
        by_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self.endpoint = str(given or by_environment or "Amazon S3").rpartition("@")[2]
        """The name of the server in messages."""
        silence(*_LOGGERS)
        config = {**_CONFIG, **(options.get("config_kwargs") or {})}
        try:
            self.fs: Any = s3fs.S3FileSystem(
                **{**options, "config_kwargs": config}, skip_instance_cache=True, use_listings_cache=False
            )
            self.fs.retries = 1
            self.fs.loop.set_default_executor(LastingThreads())
            result_of(asyncio.run_coroutine_threadsafe(self._connect(), self.fs.loop))
        except asyncio.TimeoutError:
            cure = "check credential_process in ~/.aws/config, and the server that gives credentials to this machine"
            message = f"cannot use {url}: there were no credentials within {CREDENTIALS_SECONDS:g} s; {cure}"
            refused: StoreError = StoreRefused(url, "", message)
        except Exception as error:  # noqa: BLE001 -- whatever botocore finds wrong with options and profiles
            refused = translated(error, url, "", "connect", self.endpoint)
        else:
            return
        raise refused from None

    async def _connect(self) -> None:
        await asyncio.wait_for(self.fs.set_session(), CREDENTIALS_SECONDS)

    def call(self, url: str, key: str, method: str, expects: Collection[int] = (), **arguments: Any) -> Any:
        """Return the answer to a call, with the bytes of its body. Raises `StoreError`.

        Repeats it after a failure that may be transient, until `RETRY_SECONDS` have passed. Raises `Answered` for a
        status that the caller `expects`. `url` and `key` are for messages.
        """
        return result_of(self.start(url, key, method, expects, **arguments))

    def start(self, url: str, key: str, method: str, expects: Collection[int] = (), **arguments: Any) -> Future[Any]:
        """Start a call; see `call`. Give its result to `result_of`."""
        call = _Call(self, (url, key), method, arguments, expects)
        return asyncio.run_coroutine_threadsafe(call.until_answered(), self.fs.loop)


class _Call:
    """One call, with its attempts."""

    def __init__(self, client: S3Client, at: tuple[str, str], method: str, arguments: Any, expects: Any) -> None:
        """`at` are the URL and the key, for messages."""
        self._client, self._at, self._method = client, at, method
        self._arguments, self._expects = arguments, expects
        self._counts, self._sent, self._received = counts_of(at[0]), len(arguments.get("Body", b"")), 0
        self._doubtful = False
        """Whether an earlier attempt may have had its effect."""

    async def until_answered(self) -> Any:
        return await until_answered(self._attempt)

    async def _attempt(self) -> Any:
        try:
            began = time.monotonic()
            answer = await asyncio.wait_for(self._answer(), seconds_for(self._sent))
            if self._method == "get_object":
                await self._read_body(answer, time.monotonic() - began)
            return answer
        except LogError:
            raise
        except Exception as caught:  # noqa: BLE001 -- whatever s3fs, botocore and aiohttp raise
            cause = _cause(caught)
            code, status = code_of(cause)
            if status in self._expects:
                outcome: Exception = Answered(status)
            else:
                outcome = translated(cause if code else caught, *self._at, self._method, self._client.endpoint)
                if is_refused_login(cause):
                    _clients.forget(self._client)
            if isinstance(outcome, StoreError) and outcome.retriable:
                self._doubtful = True
                outcome = Again(outcome, busy=is_busy(cause))
            elif isinstance(outcome, StoreError) and self._doubtful and self._method == "put_object":
                outcome = in_doubt(outcome)
        finally:
            self._counts.add(self._method, sent=self._sent, received=self._received)
        raise outcome from None

    async def _answer(self) -> Any:
        send = self._client.fs._call_s3  # noqa: SLF001 -- fsspec's name for async
        try:
            answer = await send(self._method, **self._arguments)
        except Exception as refused:
            if self._method == "head_object" and code_of(_cause(refused))[1] in _REFUSED:
                # An answer to HEAD has no body, and so does not say why; one to GET does.
                (await send("get_object", **self._arguments, Range="bytes=0-0"))["Body"].close()
            raise
        return answer

    async def _read_body(self, answer: Any, passed: float) -> None:
        """Replace the stream of an answer by its bytes. `passed` are the seconds that the attempt took so far."""
        body, size = answer["Body"], answer["ContentLength"]
        try:
            if size > READ_BYTES_MAX:
                detail = f"it has {size} bytes; the maximum for objects of its kind is {READ_BYTES_MAX}"
                raise CorruptObject("/".join(self._at), detail)
            answer["Body"] = await asyncio.wait_for(body.read(), seconds_for(size) - passed)
            self._received = len(answer["Body"])
        finally:
            body.close()


def _cause(error: Exception) -> Exception:
    """Return the error of botocore's that s3fs has wrapped, if it has."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


_clients: PerProcess[S3Client] = PerProcess()


def known_client(options: StorageOptions, url: str) -> S3Client | None:
    """Return the process's client for the store at a URL, if there is one."""
    return _clients.known(options.only_of(url))


def client_of(options: StorageOptions, url: str) -> S3Client:
    """Return the process's client for the store at a URL. Raises `InvalidOption`, `StoreError`."""
    own = options.only_of(url)
    return _clients.get(own, lambda: S3Client(own.at(url), url))
