"""What is said if a bucket cannot be used: one line, with the cure, without secrets and without foreign tracebacks."""

import socket
import time
import traceback
import uuid

import pytest
from botocore.exceptions import ClientError

from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
    StoreUnwritable,
    is_node_failure,
)
from pyspark_log_storage.stores import file_system
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.bucket import BucketStore
from pyspark_log_storage.stores.bucket_errors import facts_of, meaning_of
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers import ceph as ceph_server
from tests.servers.broken_link import BrokenLink
from tests.support import fsspec_kinds

SECRET = "canary-4711"
pytestmark = pytest.mark.usefixtures("aws")


def answer(status, code, more="", header=""):
    body = f"<Error><Code>{code}</Code><Message>canary</Message>{more}</Error>"
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{header}\r\n{body}".encode()


BY_GET, BY_HEAD = (lambda store: store.read("a/b")), (lambda store: store.size("a/b"))
OTHER_REGION = "in another region, eu-south-2; set it with AWS_DEFAULT_REGION"


def said(store, call=BY_GET):
    """Return the error of a call, after checking that it is early, one line, and hides everything that it should."""
    began = time.monotonic()
    with pytest.raises(StoreError) as caught:
        call(store)
    assert time.monotonic() - began < 30
    message = str(caught.value)
    assert "\n" not in message
    assert store.url in message
    printed = "".join(traceback.format_exception(caught.value))
    assert "botocore/" not in printed
    assert "canary" not in printed
    return caught.value


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("QuotaExceeded", 403, StoreUnwritable),
        ("InsufficientStorage", 507, StoreUnwritable),
        ("SlowDown", 503, StoreUnavailable),
        ("RequestTimeout", 400, StoreUnavailable),
        ("OperationAborted", 409, StoreUnavailable),
        ("TooManyRequests", 429, StoreUnavailable),
        ("Unheard", 500, StoreUnavailable),
        ("Unheard", 400, StoreRefused),
        ("AccessDenied", 403, StoreRefused),
        ("NotImplemented", 501, StoreUnfit),
        ("NoSuchBucket", 404, NodeMissing),
        ("NoSuchKey", 404, ObjectMissing),
    ],
)
def test_an_answer_says_whether_the_store_is_full_or_away_or_refuses(code, status, kind):
    """A store that is full or away is left out; one that refuses stops the writer."""
    said = {"Error": {"Code": code, "Message": "canary"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    meaning = meaning_of(facts_of(ClientError(said, "PutObject")), "s3", "get_object")
    assert meaning.kind is kind
    assert meaning.is_busy == (status in {429, 503}), "it is asked again after a longer pause"


@pytest.fixture
def store_with(moto, moto_bucket):
    def made(bucket=moto_bucket, **options):
        return BucketStore(f"s3://{bucket}/log", StorageOptions.given({**moto.options, **options}))

    return made


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"key": "unknown"}, "the access key is unknown; give the right ones"),
        ({"secret": "canary-wrong"}, "the secret key is wrong; give the right ones"),
        ({"key": ceph_server.GUEST[0], "secret": ceph_server.GUEST[1]}, "no right to do this; grant s3:GetObject"),
        ({"key": None, "secret": None}, "there are no complete credentials; give the right ones"),
    ],
    ids=["wrong key", "wrong secret", "no rights", "no credentials"],
)
@pytest.mark.parametrize("call", [BY_GET, BY_HEAD], ids=["GET", "HEAD"])
def test_credentials_that_cannot_be_used_are_named_with_the_cure(ceph, ceph_bucket, options, cure, call):
    error = said(BucketStore(f"s3://{ceph_bucket}/log", StorageOptions.given({**ceph.options, **options})), call)
    assert isinstance(error, StoreRefused)
    assert cure in str(error)


def test_a_missing_bucket_is_a_node_that_is_gone(store_with):
    error = said(store_with(bucket="no-such-bucket"))
    assert isinstance(error, NodeMissing)
    assert "the bucket does not exist" in str(error)
    assert "create it, or correct the address" in str(error)
    assert is_node_failure(error)


def test_a_server_that_cannot_be_reached_or_does_not_speak_tls_is_named_with_the_cure(store_with, moto, monkeypatch):
    monkeypatch.setattr(file_system, "RETRY_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = said(store_with(endpoint_url=f"http://127.0.0.1:{port}"))
    assert isinstance(error, StoreUnavailable)
    assert f"http://127.0.0.1:{port} cannot be reached (EndpointConnectionError); check the network" in str(error)
    error = said(store_with(endpoint_url=moto.endpoint.replace("http://", "https://")))
    assert isinstance(error, StoreRefused)
    assert "no secure connection (TLS)" in str(error)


def test_the_region_is_set_as_errors_say(store_with, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-2")
    by_environment = store_with(config_kwargs={"user_agent_extra": uuid.uuid4().hex})
    by_option = store_with(client_kwargs={"region_name": "eu-south-2"})
    for each in (by_environment, by_option):
        assert each.connection().fs._s3.meta.region_name == "eu-south-2"


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (answer(400, "ExpiredToken", "<Token-0>canary</Token-0>"), "the session token has expired; get a new one"),
        (answer(400, "InvalidToken", "<Token-0>canary</Token-0>"), "the session token is not valid; get a new one, or"),
        (answer(301, "PermanentRedirect", header="x-amz-bucket-region: eu-south-2\r\n"), OTHER_REGION),
        (answer(400, "AuthorizationHeaderMalformed", "<Region>eu-south-2</Region>"), OTHER_REGION),
        (answer(403, "RequestTimeTooSkewed"), "the clock of this machine is wrong"),
        (answer(400, "KMS.DisabledException"), "the encryption key cannot be used"),
        (answer(403, "QuotaExceeded"), "the storage quota is used up"),
        (answer(403, "AccessDenied"), "no right to do this; grant s3:GetObject"),
        (answer(400, "Something"), "_object (Something); check the address"),
    ],
    ids=["expired", "token", "redirect", "region", "clock", "key of encryption", "quota", "no rights", "anything else"],
)
@pytest.mark.parametrize("call", [BY_GET, BY_HEAD], ids=["GET", "HEAD"])
def test_answers_of_amazon_are_told_with_the_cure(store_with, given, cure, call):
    """An answer to HEAD has no body: of itself it does not say what is wrong."""
    link = BrokenLink("http://127.0.0.1:1")
    link.always = given
    error = said(store_with(endpoint_url=link.endpoint), call)
    link.close()
    assert isinstance(error, StoreRefused)
    assert cure in str(error)


@pytest.mark.parametrize(
    ("call", "right"),
    [
        (lambda store: store.create("a", b""), "s3:PutObject"),
        (lambda store: store.delete("a"), "s3:DeleteObject"),
        (lambda store: list(store.list("")), "s3:ListBucket"),
        (lambda store: store.delete_unfinished(), "s3:ListBucketMultipartUploads"),
    ],
)
def test_the_right_that_is_missing_is_named(store_with, call, right):
    link = BrokenLink("http://127.0.0.1:1")
    link.always = answer(403, "AccessDenied")
    assert f"grant {right}" in str(said(store_with(endpoint_url=link.endpoint), call))
    link.close()


def with_status(status):
    error = RuntimeError(f"https://host/x?sig={SECRET}")
    error.status_code = status
    return error


READ, PUT = (lambda store: store.read("a", 1, 2)), (lambda store: store.put("a", b""))
LEASE = r"condition does not hold \(412\); end the lease"


@pytest.mark.parametrize(
    ("error", "use", "kind", "says"),
    [
        (OSError(f"Forbidden: {SECRET}"), READ, StoreRefused, "no right to do this"),
        (with_status(401), READ, StoreRefused, "refuses the credentials"),
        (with_status(403), READ, StoreRefused, "no right to do this"),
        (with_status(404), READ, ObjectMissing, "there is no object"),
        (FileNotFoundError(SECRET), PUT, NodeMissing, "the bucket does not exist"),
        (with_status(412), PUT, StoreRefused, LEASE),
        (with_status(412), lambda store: store.delete("a"), StoreRefused, LEASE),
        (with_status(418), READ, StoreRefused, r"refused get_object \(418\)"),
        (with_status(503), READ, StoreUnavailable, "answered 503"),
        (with_status(408), READ, StoreUnavailable, "answered 408"),
        (with_status(507), READ, StoreUnwritable, "quota"),
        (ConnectionRefusedError(SECRET), READ, StoreUnavailable, "cannot be reached"),
        (TimeoutError(SECRET), READ, StoreUnavailable, "does not answer in time"),
        (NotImplementedError(SECRET), READ, StoreUnfit, "does not support get_object"),
        (ValueError(SECRET), READ, StoreRefused, "failed with ValueError"),
    ],
    ids=lambda each: str(getattr(each, "status_code", type(each).__name__)) if isinstance(each, Exception) else "",
)
def test_each_error_is_one_line_without_secrets_or_foreign_stack(monkeypatch, error, use, kind, says):
    monkeypatch.setattr(file_system, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(fsspec_kinds.Fails, "error", error)
    with pytest.raises(StoreError, match=says) as caught:
        use(open_store(f"fails://{uuid.uuid4().hex}/log"))
    assert isinstance(caught.value, kind)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def of_class(*names):
    """Return an error whose class and those above it have these names."""
    kind = Exception
    for name in reversed(names):
        kind = type(name, (kind,), {})
    return kind(SECRET)


@pytest.mark.parametrize(
    ("scheme", "error", "is_login"),
    [
        ("gs", of_class("RefreshError", "GoogleAuthError"), True),
        ("gs", of_class("TransportError", "GoogleAuthError"), False),
        ("abfs", of_class("ClientAuthenticationError", "HttpResponseError"), True),
        ("abfs", with_status(403), False),
    ],
)
def test_a_refused_login_is_told_from_other_errors_of_the_scheme(scheme, error, is_login):
    assert meaning_of(facts_of(error), scheme, "get_object").is_login == is_login
