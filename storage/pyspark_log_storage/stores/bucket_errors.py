"""What the errors of fsspec's implementations mean: each becomes a `StoreError` of one line that says what to do.

An error is known by names: the server's code and HTTP status, and Python's classes, all of it also of its causes. A
table has a row for each meaning, with its names; the first row that has one of an error's names tells what it means.
Each scheme may have a table of its own, which precedes the general one.

Messages have the code, the status and the class, and never a text, which may repeat addresses, keys and signatures.
Therefore nothing is chained: `raise ... from None`.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
    StoreUnwritable,
)

CONNECT = "connect"
"""The operation that makes a connection."""
WRITES = {"put_object", "put_file"}
_SERVER_ERROR = 500
_NETWORK = ("aiohttp", "requests", "urllib3", "azure.core", "google.auth")
"""Packages whose errors without an answer are the network's."""


class Meaning(NamedTuple):
    """A row: what an error with one of the names is, what is said of it, and what may help."""

    names: str
    kind: type[StoreError]
    says: str = ""
    is_login: bool = False
    """Whether renewed credentials may help."""
    is_busy: bool = False
    """Whether a longer pause may help."""


def _refusal(names: str, says: str) -> Meaning:
    return Meaning(names, StoreRefused, says)


def _login(names: str, says: str) -> Meaning:
    return Meaning(names, StoreRefused, f"{{server}} refuses the credentials ({{code}}){says}", is_login=True)


def _again(names: str, *, is_busy: bool = False) -> Meaning:
    says = "{server} answered {code}; try again; if this goes on, look at the server"
    return Meaning(names, StoreUnavailable, says, is_busy=is_busy)


def _no_answer(names: str, what: str) -> Meaning:
    says = f"{{server}} {what}; check the network and the endpoint (storage_options, environment), then try again"
    return Meaning(names, StoreUnavailable, says)


def _unfit(names: str) -> Meaning:
    return Meaning(names, StoreUnfit, "{server} or {package} does not support {operation}; use another store")


def _full(names: str) -> Meaning:
    return Meaning(names, StoreUnwritable, "the storage quota is used up; free some space or raise it")


_NO_BUCKET = Meaning(
    "NoSuchBucket", NodeMissing, "the bucket does not exist at {server}; create it, or correct the address"
)
_UNKNOWN = _refusal("", "{server} refused {operation} ({code}); check the address and storage_options")
_UNHEARD = _refusal("", "{package} failed with {code}; check the address and storage_options")
_NOT_MADE = _refusal(
    "", "{package} refuses its options or credentials ({code}); check storage_options and the environment"
)
_CREDENTIALS = "check storage_options, the environment and the role of this machine"
_GENERAL = (
    Meaning("FileNotFoundError 404", ObjectMissing),
    _login("401", f"; {_CREDENTIALS}"),
    _refusal("PermissionError 403", "the credentials have no right to do this ({operation}, {code}); grant it to them"),
    _refusal("412", "{server} says that a condition does not hold ({code}); end the lease or lock of the object"),
    _full("507"),
    _again("429 503", is_busy=True),
    _unfit("405 501 NotImplementedError TypeError AttributeError"),
    _again("408 409 425 5xx"),
    _no_answer("TimeoutError ClientPayloadError", "does not answer in time"),
    _no_answer("network", "cannot be reached ({code})"),
)
_NEW_KEYS = "give the right ones in storage_options, a profile or the environment (AWS_ACCESS_KEY_ID and others)"
_S3 = (
    _NO_BUCKET,
    Meaning("NoSuchKey NotFound NoSuchVersion NoSuchUpload 404", ObjectMissing),
    _login("InvalidAccessKeyId", f": the access key is unknown; {_NEW_KEYS}"),
    _login("SignatureDoesNotMatch", f": the secret key is wrong; {_NEW_KEYS}"),
    _login(
        "ExpiredToken ExpiredTokenException TokenRefreshRequired",
        ": the session token has expired; get a new one, or use a profile or role that renews it",
    ),
    _login("InvalidToken", ": the session token is not valid; get a new one, or leave it out"),
    _login("InvalidIdentityToken", ": the web identity token is not valid; check its file, and whom the role trusts"),
    _login("InvalidClientTokenId", f": the credentials are unknown; {_NEW_KEYS}"),
    _login("RequestTimeTooSkewed", ": the clock of this machine is wrong; correct it (NTP)"),
    _login("AccountProblem", ": the account of the credentials has a problem; ask its owner"),
    _refusal(
        "PermanentRedirect TemporaryRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException "
        "IncorrectEndpoint 301 307",
        "the bucket is in another region{region}; set it with AWS_DEFAULT_REGION or "
        '{{"client_kwargs": {{"region_name": "..."}}}}',
    ),
    _full("QuotaExceeded InsufficientStorage XMinioStorageFull 507"),
    _unfit("NotImplemented MethodNotAllowed"),
    _again("SlowDown RequestLimitExceeded Throttling ThrottlingException ServiceUnavailable 429 503", is_busy=True),
    _again("RequestTimeout RequestTimeoutException IncompleteBody OperationAborted ConditionalRequestConflict 409"),
    _refusal("KMS", "the encryption key cannot be used ({code}); check s3_additional_kwargs and the rights to the key"),
    _refusal("TooManyRedirects", "{server} redirects again and again; check the endpoint, and what is in front of it"),
    _refusal(
        "SSLError", "no secure connection (TLS) to {server}; check the endpoint and its certificate (AWS_CA_BUNDLE)"
    ),
    _refusal(
        "NoCredentialsError PartialCredentialsError CredentialRetrievalError",
        f'there are no complete credentials; {_NEW_KEYS}, or {{{{"anon": true}}}} for a public bucket',
    ),
    _refusal("ProfileNotFound", "the AWS profile does not exist; correct the profile, or add it to ~/.aws/config"),
    _refusal("SSOError TokenRetrievalError", "there is no valid SSO session; log in again with: aws sso login"),
    _refusal("NoRegionError", "the region of the role is not known; set AWS_DEFAULT_REGION, or region in the profile"),
    _refusal(
        "InvalidConfigError ConfigParseError ConfigNotFound",
        "AWS's configuration is not complete; check the profiles in ~/.aws/config, or give credentials in "
        "storage_options",
    ),
    _refusal(
        "FileNotFoundError PermissionError",
        "a file of AWS's configuration cannot be read; check web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE) and "
        "ca_bundle (AWS_CA_BUNDLE)",
    ),
    _refusal(
        "AccessDenied AllAccessDisabled Forbidden Unauthorized 401 403",
        "the credentials have no right to do this; grant {right}",
    ),
    _no_answer("EndpointConnectionError ConnectTimeoutError ProxyConnectionError", "cannot be reached ({code})"),
    _no_answer("HTTPClientError IncompleteReadError", "does not answer in time"),
)
_TABLES = {
    "s3": _S3,
    "gs": (_no_answer("TransportError", "cannot be reached ({code})"), _login("GoogleAuthError", f"; {_CREDENTIALS}")),
    "abfs": (
        _login(
            "AuthenticationFailed InvalidAuthenticationInfo NoAuthenticationInformation ClientAuthenticationError",
            f"; {_CREDENTIALS}",
        ),
    ),
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
    rows = _TABLES.get(scheme, ()) + (() if operation == CONNECT else _GENERAL)
    found = next((row for row in rows if facts.names & set(row.names.split())), None)
    if found is None:
        return _NOT_MADE if operation == CONNECT else _UNKNOWN if facts.status else _UNHEARD
    return _NO_BUCKET if found.kind is ObjectMissing and operation in WRITES else found


def store_error(meaning: Meaning, at: tuple[str, str], **facts: str) -> StoreError:
    """Return the error to raise for a URL and a key. `facts` are what the messages name."""
    if meaning.kind is ObjectMissing:
        return ObjectMissing(*at)
    return meaning.kind(*at, f"cannot use {'/'.join(filter(None, at))}: {meaning.says.format(**facts)}")
