"""What an S3 server's answers mean: each becomes a `StoreError` of one line that says what to do.

Messages have the answer's code and never its text, which may repeat keys, tokens and signatures. Therefore nothing is
chained: `raise ... from None`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from botocore import exceptions as boto

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

RIGHTS = {
    "get_object": "s3:GetObject, and s3:ListBucket to tell missing objects from hidden ones",
    "head_object": "s3:GetObject, and s3:ListBucket to tell missing objects from hidden ones",
    "list_objects_v2": "s3:ListBucket",
    "get_bucket_versioning": "s3:GetBucketVersioning",
    "put_object": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "upload_part": "s3:PutObject",
    "complete_multipart_upload": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
}
"""The right that each call needs."""
_GET_NEW_KEYS = "give the right ones in storage_options, a profile or the environment (AWS_ACCESS_KEY_ID and others)"
_SET_REGION = 'set it with AWS_DEFAULT_REGION or {"client_kwargs": {"region_name": "..."}}'
_LOGIN = {
    "InvalidAccessKeyId": f"the access key is unknown; {_GET_NEW_KEYS}",
    "SignatureDoesNotMatch": f"the secret key is wrong; {_GET_NEW_KEYS}",
    "ExpiredToken": "the session token has expired; get a new one, or use a profile or role that renews it",
    "ExpiredTokenException": "the session token has expired; get a new one, or use a profile or role that renews it",
    "TokenRefreshRequired": "the session token has expired; get a new one, or use a profile or role that renews it",
    "InvalidToken": "the session token is not valid; get a new one, or leave it out",
    "InvalidIdentityToken": "the web identity token is not valid; check its file, and which issuers the role trusts",
    "InvalidClientTokenId": f"the credentials are unknown; {_GET_NEW_KEYS}",
    "RequestTimeTooSkewed": "the clock of this machine is wrong; correct it (NTP)",
    "AccountProblem": "the account of the credentials has a problem; ask its owner",
}
_DENIED = {"AccessDenied", "AllAccessDisabled", "Forbidden", "403", "401", "Unauthorized"}
_ELSEWHERE = {
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "IncorrectEndpoint",
    "301",
    "307",
}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "507"}
_BUSY = {"SlowDown", "RequestLimitExceeded", "Throttling", "ThrottlingException", "429", "503", "ServiceUnavailable"}
_TRY_AGAIN = {
    "RequestTimeout",
    "RequestTimeoutException",
    "IncompleteBody",
    "OperationAborted",
    "ConditionalRequestConflict",
    "409",
}
_NO_BUCKET = {"NoSuchBucket"}
_NO_OBJECT = {"NoSuchKey", "404", "NotFound", "NoSuchVersion"}
_UNSUPPORTED = {"NotImplemented", "501", "MethodNotAllowed", "405"}
_BUSY_STATUS = {429, 503}
_TRY_AGAIN_STATUS = {408, 425}
_SERVER_ERROR = 500


def code_of(error: Exception) -> tuple[str, int]:
    """Return the code and the HTTP status of an answer, or ("", 0) for any other error."""
    if not isinstance(error, boto.ClientError):
        return "", 0
    found = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(found), int(status)


def is_busy(error: Exception) -> bool:
    """Return whether the server asks for fewer requests."""
    code, status = code_of(error)
    return code in _BUSY or status in _BUSY_STATUS


def is_refused_login(error: Exception) -> bool:
    """Return whether the server refuses the credentials. They may have been renewed since they were read."""
    return code_of(error)[0] in _LOGIN


def translated(error: Exception, url: str, key: str, call: str, endpoint: str) -> StoreError:
    """Return the error to raise instead of s3fs's or botocore's. `call` is the method, `endpoint` the server's name."""
    where = f"{url}/{key}" if key else url
    if isinstance(error, boto.ClientError):
        return _of_answer(error, url, key, call, endpoint)
    if isinstance(error, boto.SSLError):
        cure = "check that the endpoint speaks HTTPS and that its certificate is trusted (AWS_CA_BUNDLE, or http://)"
        return StoreRefused(url, key, f"cannot use {where}: no secure connection (TLS) to {endpoint}; {cure}")
    if isinstance(error, (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError)):
        cure = f'{_GET_NEW_KEYS}, or {{"anon": true}} for a public bucket'
        return StoreRefused(url, key, f"cannot use {where}: there are no complete credentials; {cure}")
    if isinstance(error, boto.ProfileNotFound):
        cure = "correct the profile in storage_options or AWS_PROFILE, or add it to ~/.aws/config"
        return StoreRefused(url, key, f"cannot use {where}: the AWS profile does not exist; {cure}")
    if isinstance(error, (boto.SSOError, boto.TokenRetrievalError)):
        cure = "log in again with: aws sso login"
        return StoreRefused(url, key, f"cannot use {where}: there is no valid SSO session; {cure}")
    if isinstance(error, boto.NoRegionError):
        cure = "set AWS_DEFAULT_REGION, or region in the profile"
        return StoreRefused(
            url, key, f"cannot use {where}: the region in which to assume the role is not known; {cure}"
        )
    if isinstance(error, (boto.InvalidConfigError, boto.ConfigParseError, boto.ConfigNotFound)):
        cure = "check the profiles in ~/.aws/config, or give credentials in storage_options"
        return StoreRefused(url, key, f"cannot use {where}: AWS's configuration is not complete; {cure}")
    if isinstance(error, (FileNotFoundError, PermissionError)):
        cure = "check web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE) and ca_bundle (AWS_CA_BUNDLE)"
        return StoreRefused(url, key, f"cannot use {where}: a file of AWS's configuration cannot be read; {cure}")
    inner = error.kwargs.get("error") if isinstance(error, boto.HTTPClientError) else None
    is_circle = isinstance(inner, aiohttp.TooManyRedirects)
    if isinstance(error, _CONNECTION) and not is_circle:
        what = "cannot be reached" if isinstance(error, _NO_CONNECTION) else "does not answer"
        cure = "check the network and the endpoint (endpoint_url, AWS_ENDPOINT_URL), then try again"
        return StoreUnavailable(url, key, f"cannot use {where}: {endpoint} {what}; {cure}")
    kind = type(error).__name__
    what, cure = f"the S3 client failed with {kind}", "check storage_options, ~/.aws/config and the environment"
    if is_circle:
        what = f"{endpoint} redirects again and again"
        cure = "check the endpoint (endpoint_url, AWS_ENDPOINT_URL) and what is in front of it"
    return StoreRefused(url, key, f"cannot use {where}: {what}; {cure}")


_NO_CONNECTION = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
_CONNECTION = (
    *_NO_CONNECTION,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    aiohttp.ClientError,  # aiobotocore passes it on if an answer ends in its middle
    asyncio.TimeoutError,
    OSError,
)


def _of_answer(error: boto.ClientError, url: str, key: str, call: str, endpoint: str) -> StoreError:
    code, status = code_of(error)
    where = f"{url}/{key}" if key else url
    begin = f"cannot use {where}:"
    if code in _NO_BUCKET:
        cure = "create it, or correct the address"
        return NodeMissing(url, key, f"{begin} the bucket does not exist at {endpoint}; {cure}")
    if code in _NO_OBJECT:
        return ObjectMissing(url, key)
    if code in _LOGIN:
        return StoreRefused(url, key, f"{begin} {endpoint} refuses the credentials ({code}): {_LOGIN[code]}")
    if code in _ELSEWHERE:
        return StoreRefused(url, key, f"{begin} the bucket is in another region{_region(error.response)}")
    if code in _DENIED:
        cure = f"grant {RIGHTS.get(call, call)}"
        if error.operation_name.startswith("AssumeRole"):
            cure = f"grant sts:{error.operation_name} to the source of the profile, and let the role trust it"
        return StoreRefused(url, key, f"{begin} the credentials have no right to do this; {cure}")
    if code in _FULL:
        return StoreUnwritable(url, key, f"{begin} the storage quota is used up; free some space or raise it")
    if code in _UNSUPPORTED:
        return StoreUnfit(url, key, f"{begin} {endpoint} does not support {call}; use another store")
    if is_busy(error) or code in _TRY_AGAIN or status in _TRY_AGAIN_STATUS or status >= _SERVER_ERROR:
        cure = "try again; if this goes on, look at the server"
        return StoreUnavailable(url, key, f"{begin} {endpoint} answered {code or status}; {cure}")
    if code.startswith("KMS"):
        cure = "check s3_additional_kwargs and the rights to the key"
        return StoreRefused(url, key, f"{begin} the encryption key cannot be used ({code}); {cure}")
    answer = f"{endpoint} refused {call} ({code or status})"
    return StoreRefused(url, key, f"{begin} {answer}; check the address and storage_options")


def _region(response: Mapping[str, object]) -> str:
    """Return which region the answer names, and what to do."""
    found, metadata = response.get("Error"), response.get("ResponseMetadata")
    region = found.get("Region") if isinstance(found, dict) else None
    if not region and isinstance(metadata, dict):
        region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region")
    return f", {region}; {_SET_REGION}" if region else f" or at another endpoint; {_SET_REGION}"
