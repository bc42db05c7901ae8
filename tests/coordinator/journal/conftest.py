"""Fixtures of the tests of journals."""

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from tests.coordinator.item_list import open_list
from tests.coordinator.journal_objects import EVERY
from tests.coordinator.three_stores import ThreeStores
from tests.coordinator.troubled_store import TroubledStore


@pytest.fixture(params=[TroubledStore, ThreeStores], ids=["one store", "three stores"])
def store(request):
    return request.param()


@pytest.fixture
def journal(store):
    return open_list(store)


@pytest.fixture
def snapshots_are_close(monkeypatch):
    """Let a snapshot follow every few entries."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
