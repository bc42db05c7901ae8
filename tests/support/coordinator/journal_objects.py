"""The objects of a journal of items, and what tests do with the journal."""

import msgspec
import pytest

from pyspark_log_coordinator.journal import journal_entry, snapshot
from pyspark_log_coordinator.journal.journal_entry import Entry
from pyspark_log_coordinator.journal.trimming import SNAPSHOTS_KEPT
from pyspark_log_storage.layout import number
from tests.support.coordinator.item_list import FOLDER, AddItems
from tests.support.coordinator.troubled_store import TroubledStore

ENTRIES, SNAPSHOTS = f"{FOLDER}entries/", f"{FOLDER}snapshots/"
EVERY = 4
"""Entries between two snapshots, with the fixture `snapshots_are_close`."""
KEPT = EVERY * SNAPSHOTS_KEPT


def add(journal, *items):
    return journal.submit(AddItems(items))


def another(store):
    """Return the same store as another process sees it, with no trouble of its own."""
    return type(store)(store.inner)


def fill(journal, count, name="item"):
    """Add `count` items, one entry each."""
    start = len(journal.refresh().items)
    for i in range(start, start + count):
        add(journal, f"{name}-{i}")


def entry_key(n):
    return f"{ENTRIES}{number(n)}"


def raw_entry(previous, *events):
    encoded = msgspec.Raw(msgspec.msgpack.encode(list(events)))
    return journal_entry.encode(Entry("0" * 32, 0, previous, encoded))


one_store = pytest.mark.parametrize("store", [TroubledStore], indirect=True, ids=["one store"])
"""For what differs: what it costs, and what is known after a doubtful answer."""


def snapshots_in(store):
    """Return the numbers of the snapshots, lowest first."""
    return sorted(snapshot.decode(store.read(key), key).number for key in store.list(SNAPSHOTS))


def entries_in(store):
    """Return the numbers of the entries that there are."""
    return [int(key.removeprefix(ENTRIES)) for key in store.list(ENTRIES)]
