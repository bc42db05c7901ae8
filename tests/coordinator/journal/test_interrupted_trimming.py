"""A journal whose trimming or snapshots are cut short or come late is not taken for damaged."""

import contextlib

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_storage.errors import UnknownVersion
from pyspark_log_storage.layout import newest_first, number
from tests.support.coordinator.item_list import FOLDER, AddItems, open_list
from tests.support.elsewhere import PlainStore

SNAPSHOTS, ENTRIES = f"{FOLDER}snapshots/", f"{FOLDER}entries/"


class Killed(BaseException):
    """The process has ended."""


class MortalStore(PlainStore):
    """Ends the process at a delete, and lets others act before a read."""

    def __init__(self):
        super().__init__()
        self.deletes_left = 10**9
        self.before_read = {}

    def delete(self, key):
        if self.deletes_left == 0:
            raise Killed
        self.deletes_left -= 1
        super().delete(key)

    def read(self, key, start=0, length=None):
        meanwhile = self.before_read.pop(key, None)
        if meanwhile is not None:
            meanwhile()
        return super().read(key, start, length)


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


@pytest.mark.parametrize("deletes", range(20))
def test_trimming_may_end_at_any_object(store, deletes):
    journal = open_list(store)
    fill(journal, 18)
    store.deletes_left = deletes
    with contextlib.suppress(Killed):
        trimming.trim(journal)
    store.deletes_left = 10**9
    assert_readable(store)
    fill(open_list(store), 4)
    trimming.trim(open_list(store))
    assert_readable(store)


@pytest.mark.parametrize("deletes", range(20))
def test_the_next_trimming_deletes_what_an_interrupted_one_left(store, monkeypatch, deletes):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    journal = open_list(store)
    fill(journal, 18)
    store.deletes_left = deletes
    with contextlib.suppress(Killed):
        trimming.trim(journal)
    store.deletes_left = 10**9
    trimming.trim(open_list(store))
    kept = [*range(12, 19)]
    assert [int(key.removeprefix(ENTRIES)) for key in store.list(ENTRIES)] == kept
    assert len(list(store.list(f"{FOLDER}manifests/"))) == len(kept)
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


def test_a_writer_whose_slot_has_an_entry_that_is_trimmed_before_it_is_read_decides_again(store):
    sleeper, other = open_list(store), open_list(store)
    fill(other, 3)
    sleeper.refresh()

    def meanwhile():
        fill(other, 20)
        trimming.trim(other)

    # The slot is seen free, then it is taken when the entry is created, and empty again when that is read.
    slot = f"{ENTRIES}{number(4)}"
    real_create = store.create

    def create(key, data):
        if key == slot and not hasattr(store, "woken"):
            store.woken = True
            fill(other, 1)
            store.before_read = {slot: meanwhile}
        return real_create(key, data)

    store.create = create
    outcome = sleeper.submit(AddItems(("late",)))
    assert outcome.state.items[-1] == "late"
    assert open_list(store).refresh().items == outcome.state.items
    assert len(outcome.state.items) == outcome.number
