"""A journal whose trimming or snapshots are cut short or come late is not taken for damaged."""

import contextlib

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_storage.errors import UnknownVersion
from pyspark_log_storage.layout import newest_first
from tests.support.coordinator.item_list import FOLDER, AddItems, open_list
from tests.support.memory_store import MemoryStore

SNAPSHOTS, ENTRIES = f"{FOLDER}snapshots/", f"{FOLDER}entries/"


class Killed(BaseException):
    """The process has ended."""


class MortalStore(MemoryStore):
    """Ends the process at a delete."""

    def __init__(self):
        super().__init__()
        self.deletes_left = 10**9

    def delete(self, key):
        if self.deletes_left == 0:
            raise Killed
        self.deletes_left -= 1
        super().delete(key)


@pytest.fixture(autouse=True)
def snapshots_are_close(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 2)


@pytest.fixture
def store():
    return MortalStore()


def fill(journal, count):
    for i in range(count):
        journal.submit(AddItems((f"{len(journal.refresh().items)}-{i}",)))


def assert_readable(store):
    """Every version that is said to be kept can be read, and the history is whole."""
    journal = open_list(store)
    items = journal.refresh().items
    with pytest.raises(UnknownVersion) as refused:
        state_at(journal, len(items) + 1)
    oldest = int(refused.value.message.split("versions ")[1].split()[0])
    for version in range(oldest, len(items) + 1):
        assert state_at(journal, version).items == items[:version]
    told = list(history(journal))
    assert told[-1][2].items == items


@pytest.mark.parametrize("deletes", range(15))
def test_trimming_may_end_at_any_object_and_the_next_one_deletes_what_it_left(store, deletes):
    journal = open_list(store)
    fill(journal, 18)
    store.deletes_left = deletes
    with contextlib.suppress(Killed):
        trimming.trim(journal)
    store.deletes_left = 10**9
    assert_readable(store)
    trimming.trim(open_list(store))
    assert [int(key.removeprefix(ENTRIES)) for key in store.list(ENTRIES)] == [*range(12, 19)]
    assert_readable(store)


def test_a_snapshot_that_comes_after_its_entries_have_been_trimmed_is_no_version_to_begin_at(store):
    journal = open_list(store)
    fill(journal, 8)
    key = f"{SNAPSHOTS}{newest_first(8)}"
    late = store.read(key)
    store.delete(key)
    fill(journal, 12)
    trimming.trim(journal)
    assert store.create(key, late)
    assert_readable(store)
