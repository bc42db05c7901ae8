"""The fixtures of several test files about the Python clients."""

import pytest

from tests.pyspark_log.clients.troubled_cluster import TroubledCluster


@pytest.fixture
def cluster(monkeypatch):
    return TroubledCluster(monkeypatch)
