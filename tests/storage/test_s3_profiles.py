"""Profiles of AWS that get their credentials elsewhere: by assuming a role, or from another program."""

import sys
import time
import uuid

import boto3
import pytest

from pyspark_log_storage.errors import StoreError, StoreRefused
from pyspark_log_storage.stores import file_system
from pyspark_log_storage.stores.bucket import BucketStore
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.broken_link import BrokenLink

SECRET = "canary-4711"
ROLE = "arn:aws:iam::123456789012:role/writer"
CONFIG = """
[profile writer]
role_arn = {role}
source_profile = base
role_session_name = log
region = us-east-1

[profile nowhere]
role_arn = {role}
source_profile = base

[profile program]
credential_process = {python} {folder}/program.py
region = us-east-1

[profile sso]
sso_session = company
sso_account_id = 123456789012
sso_role_name = writer
region = us-east-1

[sso-session company]
sso_start_url = https://company.invalid/start
sso_region = us-east-1

[profile web]
role_arn = {role}
web_identity_token_file = {folder}/token
region = us-east-1

[profile orphan]
role_arn = {role}
source_profile = nobody
region = us-east-1
"""
PROGRAM = """
import json
print(json.dumps({"Version": 1, "AccessKeyId": "ASIAOFTHEPROGRAM", "SecretAccessKey": "s", "SessionToken": "t",
                  "Expiration": "2999-01-01T00:00:00Z"}))
"""


@pytest.fixture
def profiles(moto, monkeypatch, aws):
    """The files of AWS with the profiles, and STS at moto."""
    (aws / "config").write_text(CONFIG.format(role=ROLE, python=sys.executable, folder=aws))
    (aws / "credentials").write_text(
        f"[base]\naws_access_key_id = {uuid.uuid4().hex}\naws_secret_access_key = {SECRET}\n"
    )
    (aws / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    return aws


@pytest.fixture
def store_of(moto, moto_bucket):
    """Return a store with a profile, and a connection of its own."""

    def made(profile):
        own = {"user_agent_extra": uuid.uuid4().hex}
        options = {"profile": profile, "endpoint_url": moto.endpoint, "config_kwargs": own}
        return BucketStore(f"s3://{moto_bucket}/log", StorageOptions.given(options))

    return made


@pytest.fixture
def sts(moto, monkeypatch):
    """The way to STS, which can be broken."""
    link = BrokenLink(moto.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", link.endpoint)
    yield link
    link.close()


def credentials_of(store):
    return store.connection().fs._s3._request_signer._credentials


def expire(store):
    """Let the credentials of a store be older than they may be."""
    credentials = credentials_of(store)
    credentials._expiry_time = credentials._expiry_time.replace(year=2001)
    credentials._refresh_using.__self__._cache.clear()


def used_by(store):
    """Return the access key, secret key and token with which a store signs its requests."""
    credentials = credentials_of(store)
    return credentials._access_key, credentials._secret_key, credentials._token


def refused(store):
    with pytest.raises(StoreError) as caught:
        store.read("a")
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    assert isinstance(caught.value, StoreRefused)
    return message


def test_a_profile_may_assume_a_role(profiles, store_of, moto):
    store = store_of("writer")
    assert store.create("a", b"bytes")
    assert store.read("a") == b"bytes"
    names = zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), used_by(store), strict=True)
    sts = boto3.client("sts", endpoint_url=moto.endpoint, region_name="us-east-1", **dict(names))
    assert sts.get_caller_identity()["Arn"] == "arn:aws:sts::123456789012:assumed-role/writer/log"


@pytest.mark.deep
def test_a_profile_may_ask_a_program_which_may_fail_or_hang(profiles, store_of, monkeypatch):
    store = store_of("program")
    store.put("b", b"bytes")
    assert used_by(store) == ("ASIAOFTHEPROGRAM", "s", "t")
    (profiles / "program.py").write_text(f"raise SystemExit('{SECRET}')")
    assert "there are no complete credentials" in refused(store_of("program"))
    monkeypatch.setattr(file_system, "CREDENTIALS_SECONDS", 0.3)
    (profiles / "program.py").write_text("import time; time.sleep(5)")
    began = time.monotonic()
    assert "check credential_process" in refused(store_of("program"))
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    ("profile", "cure"),
    [
        ("none", "the AWS profile does not exist; correct the profile"),
        ("nowhere", "set AWS_DEFAULT_REGION, or region in the profile"),
        ("orphan", "check the profiles in ~/.aws/config"),
        ("sso", "log in again with: aws sso login"),
        ("web", "check web_identity_token_file (AWS_WEB_IDENTITY_TOKEN_FILE)"),
    ],
)
def test_a_profile_that_cannot_be_used_is_told_with_the_cure(profiles, store_of, profile, cure):
    assert cure in refused(store_of(profile))


def answer(status, code):
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{SECRET}</Message></Error></ErrorResponse>".encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def test_a_role_that_must_not_be_assumed_is_told_with_the_right_to_grant(profiles, store_of, sts):
    sts.always = answer(403, "AccessDenied")
    assert "grant sts:AssumeRole" in refused(store_of("writer"))


def test_a_web_identity_token_that_is_refused_is_told(profiles, store_of, sts):
    (profiles / "token").write_text(SECRET)
    sts.always = answer(400, "InvalidIdentityToken")
    assert "the web identity token is not valid" in refused(store_of("web"))
    sts.always = answer(400, "ExpiredTokenException")
    assert "the session token has expired" in refused(store_of("web"))


def test_a_role_is_renewed_before_it_expires_and_one_that_cannot_be_is_told_once(profiles, store_of, sts, caplog):
    store = store_of("writer")
    assert not store.exists("none")
    before = used_by(store)
    expire(store)
    store.put("d", b"")
    assert used_by(store) != before
    expire(store)
    sts.always = answer(403, "ExpiredToken")
    assert "the session token has expired" in refused(store)
    assert "Traceback" not in caplog.text
    sts.always = b""
    store.put("c", b"")
