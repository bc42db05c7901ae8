"""The fixtures of several test files about the Python clients."""

import pytest

from pyspark_log import Producer
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.clients.troubled_cluster import TroubledCluster


@pytest.fixture
def cluster(monkeypatch):
    return TroubledCluster(monkeypatch)


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 3)
    made.create("one")
    return made


@pytest.fixture
def producer(log):
    with Producer(log.path, linger_ms=0) as made:
        yield made
