"""What the errors of fsspec's implementations mean: each becomes a `StoreError` of one line that says what to do.

Each implementation raises errors of its own, of its client's and of its HTTP client's. They are known by Python's
classes, by the HTTP status that they have as an attribute, and by the package that they come from. Messages have that
status and the error's class, and never its text, which may repeat addresses with keys. Therefore nothing is chained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
    StoreUnwritable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OCCUPIED = 412
"""The condition that no object exists does not hold."""
_BUSY = {429, 503}
_TRY_AGAIN = {408, 409, 425}
_SERVER_ERROR = 500
_FULL = 507
_CREDENTIALS = "check storage_options, the environment and the role of this machine"
_LOGIN_CODES = {"authenticationfailed", "invalidauthenticationinfo", "noauthenticationinformation"}
"""Azure's codes for credentials that are wrong; it answers 403 to them, too."""
_WRITES = {"pipe_file", "put_file"}


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error or of its cause; 0 if there is none."""
    for each in _causes(error):
        for name in ("status_code", "status", "code"):
            value = getattr(each, name, None)
            if isinstance(value, (int, str)) and str(value).isdecimal():
                return int(value)
        answer = getattr(each, "response", None)  # botocore's
        if isinstance(answer, dict):
            return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if isinstance(each, OSError) and str(each).startswith("Forbidden"):  # gcsfs
            return 403
    return 0


def is_busy(error: BaseException) -> bool:
    """Return whether the server asks for fewer requests."""
    return status_of(error) in _BUSY


def translated(error: Exception, url: str, key: str, call: str, package: str) -> StoreError:
    """Return the error to raise instead of an implementation's. `call` is the method, `package` the implementation."""
    where = f"{url}/{key}" if key else url
    begin, status, kind = f"cannot use {where}:", status_of(error), type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:  # noqa: PLR2004
        if call in _WRITES:
            return NodeMissing(url, key, f"{begin} the bucket or container does not exist; create it, or correct it")
        return ObjectMissing(url, key)
    if is_refused_login(error):
        return StoreRefused(url, key, f"{begin} the server refuses the credentials ({status or kind}); {_CREDENTIALS}")
    if isinstance(error, PermissionError) or status == 403:  # noqa: PLR2004
        cure = f"grant it to them, or {_CREDENTIALS}"
        return StoreRefused(url, key, f"{begin} the credentials have no right to do this ({call}); {cure}")
    if status == OCCUPIED:
        cure = "end the lease or lock of the object, or ask who holds it"
        return StoreRefused(url, key, f"{begin} the server says that a condition does not hold ({status}); {cure}")
    if status == _FULL:
        return StoreUnwritable(url, key, f"{begin} the storage quota is used up; free some space or raise it")
    if status in _BUSY or status in _TRY_AGAIN or status >= _SERVER_ERROR:
        return StoreUnavailable(url, key, f"{begin} the server answered {status}; try again, or look at the server")
    if isinstance(error, (NotImplementedError, TypeError, AttributeError)):
        return StoreUnfit(url, key, f"{begin} {package} does not support {call} as it is used here; use another store")
    if not status and _is_of_network(error):
        what = "does not answer in time" if isinstance(error, TimeoutError) else f"cannot be reached ({kind})"
        cure = "check the network and the endpoint in storage_options, then try again"
        return StoreUnavailable(url, key, f"{begin} the server {what}; {cure}")
    answer = f"{package} failed with {kind}" + (f", status {status}" if status else "")
    return StoreRefused(url, key, f"{begin} {answer}; check the address and storage_options")


def is_refused_login(error: Exception) -> bool:
    """Return whether an error is about how a process proves who it is."""
    modules = ("google.auth", "azure.identity")
    return status_of(error) == 401 or any(  # noqa: PLR2004
        (type(each).__module__.startswith(modules) and type(each).__name__ != "TransportError")
        or str(getattr(each, "error_code", "")).rpartition(".")[2].replace("_", "").lower() in _LOGIN_CODES
        for each in _causes(error)
    )


def _is_of_network(error: Exception) -> bool:
    modules = ("aiohttp", "requests", "urllib3", "azure.core", "google.auth")
    return any(isinstance(each, OSError) or type(each).__module__.startswith(modules) for each in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
