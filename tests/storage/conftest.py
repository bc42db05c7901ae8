"""What the tests of the storage share."""

import importlib
import os
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.memory_store import MemoryStore
from tests.support.rings import deep

# A property is tested as long as it takes: a busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def disk():
    """A folder on a disk, not in memory: the local store is tested on the file system that it is made for."""
    with tempfile.TemporaryDirectory(prefix="pyspark-log-") as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(disk):
    """A folder of the test on the disk. It stays until the end of the run: a test may have replaced `os.unlink`."""
    return Path(tempfile.mkdtemp(dir=disk))


@pytest.fixture
def local(tmp_path):
    """A local store whose folder does not exist yet."""
    return LocalStore(str(tmp_path / "disk" / "root"))


KINDS = ["local", "memory", "moto", "fsspec", *map(deep, ["ceph", "s3 through fsspec"])]
TEST_URL = os.environ.get("PYSPARK_LOG_TEST_URL")
"""The address of one more store to test, such as abfs://container; its options are in PYSPARK_LOG_STORAGE_OPTIONS."""


@pytest.fixture(params=KINDS if TEST_URL is None else [TEST_URL])
def store(request):
    """Each kind of store in turn: what a test says of one holds for all."""
    if request.param == TEST_URL:
        return open_store(absolute_url(f"{TEST_URL}/{uuid.uuid4().hex}"))
    if request.param == "fsspec":
        importlib.import_module("tests.support.fsspec_kinds")
        return open_store(f"once://{uuid.uuid4().hex}/log")
    if request.param == "s3 through fsspec":
        importlib.import_module("tests.support.fsspec_kinds")
        server, bucket = (request.getfixturevalue(each) for each in ("ceph", "ceph_bucket"))
        return open_store(f"s3again://{bucket}/{uuid.uuid4().hex}/log", StorageOptions.given(server.options))
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return request.getfixturevalue("local")
    from pyspark_log_storage.stores.bucket import BucketStore

    server = request.getfixturevalue(request.param)
    bucket = request.getfixturevalue(f"{request.param}_bucket")
    return BucketStore(f"s3://{bucket}/{uuid.uuid4().hex}/log", StorageOptions.given(server.options))


@pytest.fixture(scope="session")
def moto_bucket(moto):
    """A bucket of moto's."""
    return moto.new_bucket()


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """A folder with the files of AWS. The credentials of the machine take no part."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ENDPOINT_URL", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path
