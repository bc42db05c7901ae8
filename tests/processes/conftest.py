"""What the tests with real processes share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.fork_server import ForkServer
from tests.processes.small_topic import make_constants_small

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A warm process that forks workers."""
    started = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield started
    started.end()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a process that dies loses nothing that it has written to a file."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="pyspark-log-", dir=MEMORY))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's constants are small in this process too, as they are in its workers."""
    make_constants_small(monkeypatch.setattr)
