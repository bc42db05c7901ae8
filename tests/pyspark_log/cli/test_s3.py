"""The program on S3: the credentials that it is given, and what it says if they cannot be used."""

import json
import uuid

import pytest

from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.deep
TOKEN = "canary-token-81c3"


@pytest.fixture
def options(ceph, monkeypatch):
    """The credentials of the owner, with a session token, which Ceph does not look at."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")  # the program sets it
    return {**ceph.options, "token": TOKEN}


@pytest.fixture
def cli(ceph_bucket):
    return CommandLine(f"s3://{ceph_bucket}/{uuid.uuid4().hex}")


def test_the_options_are_given_as_an_argument_or_in_the_environment(cli, options, monkeypatch):
    text = json.dumps(options)
    assert TOKEN not in cli.out("--storage-options", text, "topics", "create", "t")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, text)
    cli.out("produce", "t", stdin="one\n")
    assert cli.out("consume", "t") == "one\n"
    described = cli.out("cluster", "describe") + cli.out("topics", "describe", "t") + cli.out("nodes", "list")
    assert TOKEN not in described
    assert options["secret"] not in described


def test_options_that_cannot_be_read_are_not_repeated(cli, options):
    assert "not a JSON object" in cli.error("--storage-options", TOKEN, "topics", "list")
    for place in (["topics", "list", "--storage-options", TOKEN], ["topics", f"--storage-options={TOKEN}", "list"]):
        assert TOKEN not in cli.run(*place, code=2).stderr
    unknown = json.dumps({"tokken": TOKEN})
    said = cli.error("--storage-options", unknown, "topics", "list")
    assert "'tokken'" in said
    assert TOKEN not in said
