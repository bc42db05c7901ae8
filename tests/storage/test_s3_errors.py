"""What is said if S3 cannot be used: one line, with the cure, without secrets and without botocore's traceback."""

import socket
import time
import traceback
import uuid
from types import SimpleNamespace

import aiohttp
import pytest
from botocore.exceptions import ClientError, HTTPClientError

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
from pyspark_log_storage.stores import attempts, s3_errors
from pyspark_log_storage.stores.s3 import S3Store
from pyspark_log_storage.stores.s3_client import client_of
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers import ceph as ceph_server
from tests.servers.broken_link import BrokenLink


def answer(status, code, more="", header=""):
    body = f"<Error><Code>{code}</Code><Message>canary</Message>{more}</Error>"
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{header}\r\n{body}".encode()


BY_GET, BY_HEAD = (lambda store: store.read("a/b")), (lambda store: store.size("a/b"))
OTHER_REGION = "in another region, eu-south-2; set it with AWS_DEFAULT_REGION"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Let no credentials of the machine take part."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ENDPOINT_URL", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


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
    error = s3_errors.translated(ClientError(said, "PutObject"), "s3://b", "a", "put_object", "https://host")
    assert type(error) is kind


@pytest.fixture
def store_with(moto, moto_bucket):
    def made(bucket=moto_bucket, **options):
        return S3Store(f"s3://{bucket}/log", StorageOptions.given({**moto.options, **options}))

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
    error = said(S3Store(f"s3://{ceph_bucket}/log", StorageOptions.given({**ceph.options, **options})), call)
    assert isinstance(error, StoreRefused)
    assert cure in str(error)


def test_a_server_that_redirects_in_a_circle_is_named_as_such():
    error = HTTPClientError(error=aiohttp.TooManyRedirects(SimpleNamespace(real_url="canary"), ()))
    told = s3_errors.translated(error, "s3://bucket", "a", "get_object", "http://host")
    assert isinstance(told, StoreRefused)
    assert "http://host redirects again and again; check the endpoint" in told.message


def test_a_server_that_asks_for_fewer_requests_is_asked_after_a_longer_pause():
    answer = {"Error": {"Code": "TooManyRequests"}, "ResponseMetadata": {"HTTPStatusCode": 429}}
    assert s3_errors.is_busy(ClientError(answer, "PutObject"))


def test_a_missing_bucket_is_a_node_that_is_gone(store_with):
    error = said(store_with(bucket="no-such-bucket"))
    assert isinstance(error, NodeMissing)
    assert "the bucket does not exist" in str(error)
    assert "create it, or correct the address" in str(error)
    assert is_node_failure(error)


def test_a_server_that_cannot_be_reached_or_does_not_speak_tls_is_named_with_the_cure(store_with, moto, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = said(store_with(endpoint_url=f"http://127.0.0.1:{port}"))
    assert isinstance(error, StoreUnavailable)
    assert f"http://127.0.0.1:{port} cannot be reached; check the network and the endpoint" in str(error)
    error = said(store_with(endpoint_url=moto.endpoint.replace("http://", "https://")))
    assert isinstance(error, StoreRefused)
    assert "no secure connection (TLS)" in str(error)


def test_the_region_is_set_as_errors_say(store_with, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-south-2")
    by_environment = store_with(config_kwargs={"user_agent_extra": uuid.uuid4().hex})
    by_option = store_with(client_kwargs={"region_name": "eu-south-2"})
    for each in (by_environment, by_option):
        assert client_of(each._options, each.url).fs._s3.meta.region_name == "eu-south-2"


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
