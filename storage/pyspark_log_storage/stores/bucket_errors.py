"""What the errors of fsspec's implementations mean: each becomes a `StoreError` of one line that says what to do.

An error is known by names: the server's code and HTTP status, and Python's classes, all of it also of its causes. A
table has a row for each meaning, with its names; the first row that has one of an error's names tells what it means.
Each scheme may have a table of its own, which precedes the general one.

Messages have the code, the status and the class, and never a text, which may repeat addresses, keys and signatures.
Therefore nothing is chained: `raise ... from None`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Mapping

CONNECT = "connect"
"""The operation that makes a connection."""
WRITES = {"put_object", "put_file"}
_SERVER_ERROR = 500
_NETWORK = ("aiohttp", "requests", "urllib3", "azure.core", "google.auth")
"""Packages whose errors without an answer are the network's."""


class Meaning(NamedTuple):
    """What an error is, what is said of it, and whether renewed credentials or a longer pause may help."""

    kind: type[StoreError]
    says: str
    is_login: bool = False
    is_busy: bool = False


_MISSING = Meaning(ObjectMissing, "")
_CREDENTIALS = "check storage_options, the environment and the role of this machine"
_LOGIN = Meaning(StoreRefused, f"{{server}} refuses the credentials ({{code}}); {_CREDENTIALS}", is_login=True)
_AGAIN = "{server} answered {code}; try again; if this goes on, look at the server"
_BUSY = Meaning(StoreUnavailable, _AGAIN, is_busy=True)
_CHECK_NETWORK = "check the network and the endpoint (storage_options, environment), then try again"
_AWAY = Meaning(StoreUnavailable, f"{{server}} cannot be reached ({{code}}); {_CHECK_NETWORK}")
_SILENT = Meaning(StoreUnavailable, f"{{server}} does not answer in time; {_CHECK_NETWORK}")
_FULL = Meaning(StoreUnwritable, "the storage quota is used up; free some space or raise it")
_NO_BUCKET = Meaning(NodeMissing, "the bucket does not exist at {server}; create it, or correct the address")
_UNKNOWN = Meaning(StoreRefused, "{server} refused {operation} ({code}); check the address and storage_options")
_UNHEARD = Meaning(StoreRefused, "{package} failed with {code}; check the address and storage_options")
_NOT_MADE = Meaning(
    StoreRefused, "{package} refuses its options or credentials ({code}); check storage_options and the environment"
)

Table = dict[Meaning, str]
_GENERAL: Table = {
    _MISSING: "FileNotFoundError 404",
    _LOGIN: "401",
    Meaning(
        StoreRefused,
        f"the credentials have no right to do this ({{operation}}, {{code}}); grant it to them, or {_CREDENTIALS}",
    ): "PermissionError 403",
    Meaning(
        StoreRefused,
        "the server says that a condition does not hold ({code}); end the lease or lock of the object, or ask who "
        "holds it",
    ): "412",
    _FULL: "507",
    _BUSY: "429 503",
    Meaning(
        StoreUnfit, "{package} or {server} does not support {operation} as it is used here; use another store"
    ): "405 501 NotImplementedError TypeError AttributeError",
    Meaning(StoreUnavailable, _AGAIN): "408 409 425 5xx",
    _SILENT: "TimeoutError ClientPayloadError",
    _AWAY: "network",
}


def _s3() -> Table:
    new_keys = "give the right ones in storage_options, a profile or the environment (AWS_ACCESS_KEY_ID and others)"
    expired = "the session token has expired; get a new one, or use a profile or role that renews it"
    logins = {
        "InvalidAccessKeyId": f"the access key is unknown; {new_keys}",
        "SignatureDoesNotMatch": f"the secret key is wrong; {new_keys}",
        "ExpiredToken ExpiredTokenException TokenRefreshRequired": expired,
        "InvalidToken": "the session token is not valid; get a new one, or leave it out",
        "InvalidIdentityToken": "the web identity token is not valid; check its file, and whom the role trusts",
        "InvalidClientTokenId": f"the credentials are unknown; {new_keys}",
        "RequestTimeTooSkewed": "the clock of this machine is wrong; correct it (NTP)",
        "AccountProblem": "the account of the credentials has a problem; ask its owner",
    }
    refusals = {
        "PermanentRedirect TemporaryRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException "
        "IncorrectEndpoint 301 307": "the bucket is in another region{region}; set it with AWS_DEFAULT_REGION or "
        '{{"client_kwargs": {{"region_name": "..."}}}}',
        "KMS": "the encryption key cannot be used ({code}); check s3_additional_kwargs and the rights to the key",
        "TooManyRedirects": "{server} redirects again and again; check the endpoint (endpoint_url, AWS_ENDPOINT_URL) "
        "and what is in front of it",
        "SSLError": "no secure connection (TLS) to {server}; check that the endpoint speaks HTTPS and that its "
        "certificate is trusted (AWS_CA_BUNDLE, or http://)",
        "NoCredentialsError PartialCredentialsError CredentialRetrievalError": "there are no complete credentials; "
        f'{new_keys}, or {{{{"anon": true}}}} for a public bucket',
        "ProfileNotFound": "the AWS profile does not exist; correct the profile in storage_options or AWS_PROFILE, or "
        "add it to ~/.aws/config",
        "SSOError TokenRetrievalError": "there is no valid SSO session; log in again with: aws sso login",
        "NoRegionError": "the region in which to assume the role is not known; set AWS_DEFAULT_REGION, or region in "
        "the profile",
        "InvalidConfigError ConfigParseError ConfigNotFound": "AWS's configuration is not complete; check the profiles "
        "in ~/.aws/config, or give credentials in storage_options",
        "FileNotFoundError PermissionError": "a file of AWS's configuration cannot be read; check "
        "web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE) and ca_bundle (AWS_CA_BUNDLE)",
        "AccessDenied AllAccessDisabled Forbidden Unauthorized 401 403": "the credentials have no right to do this; "
        "grant {right}",
    }
    return {
        _NO_BUCKET: "NoSuchBucket",
        _MISSING: "NoSuchKey NotFound NoSuchVersion NoSuchUpload 404",
        **{
            Meaning(StoreRefused, f"{{server}} refuses the credentials ({{code}}): {says}", is_login=True): codes
            for codes, says in logins.items()
        },
        _FULL: "QuotaExceeded InsufficientStorage XMinioStorageFull 507",
        _BUSY: "SlowDown RequestLimitExceeded Throttling ThrottlingException ServiceUnavailable 429 503",
        Meaning(
            StoreUnavailable, _AGAIN
        ): "RequestTimeout RequestTimeoutException IncompleteBody OperationAborted ConditionalRequestConflict 409",
        Meaning(
            StoreUnfit, "{server} does not support {operation}; use another store"
        ): "NotImplemented MethodNotAllowed",
        **{Meaning(StoreRefused, says): names for names, says in refusals.items()},
        _AWAY: "EndpointConnectionError ConnectTimeoutError ProxyConnectionError",
        _SILENT: "HTTPClientError IncompleteReadError",
    }


TABLES: Mapping[str, Table] = {
    "s3": _s3(),
    "gs": {_AWAY: "TransportError", _LOGIN: "GoogleAuthError"},
    "abfs": {
        _LOGIN: "AuthenticationFailed InvalidAuthenticationInfo NoAuthenticationInformation ClientAuthenticationError",
    },
}


class Facts(NamedTuple):
    """What an error is known by."""

    code: str
    """The server's code, or the status, or Python's class."""
    status: int
    names: set[str]


def facts_of(error: BaseException) -> Facts:
    """Return what an error and its causes are known by."""
    codes, statuses, names, is_of_network = list[str](), list[int](), set[str](), False
    each: BaseException | None = error
    while each is not None:
        names |= {kind.__name__ for kind in type(each).__mro__}
        is_of_network |= isinstance(each, OSError) or type(each).__module__.startswith(_NETWORK)
        inner = each.__cause__
        if (answer := getattr(each, "response", None)) and isinstance(answer, dict):  # botocore's
            codes.append(str(answer.get("Error", {}).get("Code", "")))
            statuses.append(int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)))
        elif hasattr(each, "kwargs") and isinstance(
            each.kwargs.get("error"), Exception
        ):  # botocore's, without an answer
            inner = inner or each.kwargs["error"]
        elif hasattr(each, "error_code"):  # Azure's
            codes.append(str(getattr(each.error_code, "value", each.error_code) or ""))
        elif isinstance(each, OSError) and str(each).startswith("Forbidden"):  # gcsfs's
            statuses.append(403)
        told = next((name for name in ("status_code", "status", "code") if hasattr(each, name)), "")
        if str(getattr(each, told, "")).isdecimal():
            statuses.append(int(getattr(each, told)))
        each = inner
    code, status = next(filter(None, codes), ""), next(filter(None, statuses), 0)
    names |= {*codes, *(each.partition(".")[0] for each in codes), str(status)}
    if status >= _SERVER_ERROR:
        names.add("5xx")
    if is_of_network and not status:
        names.add("network")
    return Facts(code or str(status or type(error).__name__), status, names)


def meaning_of(facts: Facts, scheme: str, operation: str) -> Meaning:
    """Return what an error of an operation means."""
    tables = [TABLES.get(scheme, {})] + ([_GENERAL] if operation != CONNECT else [])
    rows = (row for table in tables for row in table.items())
    found = next((meaning for meaning, names in rows if facts.names & set(names.split())), None)
    if found is _MISSING and operation in WRITES:
        return _NO_BUCKET
    if found is None:
        return _NOT_MADE if operation == CONNECT else _UNKNOWN if facts.status else _UNHEARD
    return found


def store_error(meaning: Meaning, at: tuple[str, str], **facts: str) -> StoreError:
    """Return the error to raise for a URL and a key. `facts` are what the messages name."""
    if meaning.kind is ObjectMissing:
        return ObjectMissing(*at)
    return meaning.kind(*at, f"cannot use {'/'.join(filter(None, at))}: {meaning.says.format(**facts)}")
