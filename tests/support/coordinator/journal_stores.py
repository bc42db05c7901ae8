"""Three stores that a journal is on, and processes that open it there."""

import random

import pytest

from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_storage.errors import (
    StoreUnavailable,
    UnknownVersion,
)
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, MACHINE
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.three_stores import mark
from tests.support.memory_store import MemoryStore, wipe


class Store(BreakableStore):
    """A store in memory that may be away, for all processes at once; a test looks at what it has all the same."""

    def keys(self, folder=""):
        return [key for key in MemoryStore.list(self, "") if key.startswith(folder)]

    def get(self, key):
        return MemoryStore.read(self, key)


class Cluster:
    """Three stores, and processes that open the journal on them."""

    def __init__(self, seed=0):
        self.stores = [Store(f"store-{letter}") for letter in "abc"]
        for i, store in enumerate(self.stores):
            mark(store, i)
        self._chance = random.Random(seed)
        self._calls = []

    def open(self):
        calls = ShuffledThreads(self._chance.getrandbits(32))
        self._calls.append(calls)
        members = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(self.stores)]
        return Journal(SeveralStores(members, calls), FOLDER, MACHINE, fake_environment(), 10_000)

    def finish(self):
        """Make all calls that were begun."""
        for calls in self._calls:
            calls.finish()

    def away(self, *stores):
        self.finish()
        for i, store in enumerate(self.stores):
            store.broken = StoreUnavailable if i in stores else None

    def wipe(self, store):
        wipe(self.stores[store])


def assert_whole(cluster, items):
    """Whoever opens the journal now finds the items, and every version that is said to be kept."""
    journal = cluster.open()
    assert journal.refresh().items == tuple(items)
    told = [step.state.items for step in history(cluster.open())]
    assert not told or told[-1] == tuple(items)
    with pytest.raises(UnknownVersion) as refused:
        state_at(journal, len(items) + 1)
    if not items:
        return
    oldest = int(refused.value.message.split("versions ")[1].split()[0])
    for version in {oldest, len(items)}:
        assert state_at(journal, version).items == tuple(items)[:version]
