"""Fixtures of the tests of journals."""

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from tests.support.coordinator.item_list import open_list
from tests.support.coordinator.journal_objects import EVERY
from tests.support.coordinator.three_stores import ThreeStores
from tests.support.coordinator.troubled_store import TroubledStore


class TroubledBucket(TroubledStore):
    """An object store: one list tells where a journal ends."""

    is_object_store = True


@pytest.fixture(params=[TroubledStore, ThreeStores, TroubledBucket], ids=["one store", "three stores", "a bucket"])
def store(request):
    return request.param()


@pytest.fixture
def journal(store):
    return open_list(store)


@pytest.fixture
def snapshots_are_close(monkeypatch):
    """Let a snapshot follow every few entries."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
