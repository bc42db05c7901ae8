"""What the tests of the storage share."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pyspark_log_storage.local import LocalStore
from tests.memory_store import MemoryStore

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


@pytest.fixture(params=["local", "memory"])
def store(request):
    """Each kind of store in turn: what a test says of one holds for all."""
    return MemoryStore() if request.param == "memory" else request.getfixturevalue("local")
