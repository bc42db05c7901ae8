"""Trimming a journal: what stays, and the end of a deleted topic's journal."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import objects, trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_coordinator.journal.trimming import SNAPSHOTS_KEPT
from tests.support.coordinator.item_list import FOLDER, MACHINE, open_list
from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.journal_objects import (
    EVERY,
    KEPT,
    add,
    another,
    entries_in,
    fill,
    snapshots_in,
)
from tests.support.coordinator.three_stores import marked_stores
from tests.support.coordinator.troubled_store import TroubledStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


# What trimming leaves


def test_the_newest_snapshots_stay_with_the_entries_from_the_oldest_of_them_on(store):
    journal = open_list(store)
    fill(journal, 50)
    before = len(store.keys())
    assert trimming.trim(journal) == before - len(store.keys())
    assert trimming.trim(journal) == 0
    assert snapshots_in(store) == [36, 40, 44, 48]
    assert entries_in(store) == list(range(36, 51))
    opened = open_list(another(store))
    assert (opened.refresh(), opened.number) == (journal.state, 50)
    for _ in range(2):
        fill(opened, 30)
        trimming.trim(opened)
    assert len(open_list(another(store)).refresh().items) == 110
    assert len(list(store.list(""))) <= KEPT + EVERY + SNAPSHOTS_KEPT


def test_stores_that_delete_slowly_keep_no_other_call_waiting_for_long(monkeypatch):
    """What is left behind a trimming that takes longer than the patience is deleted by the next calls."""
    monkeypatch.setattr(objects, "DELETING_SECONDS", 0.2)
    stores = marked_stores()
    members = [Member(each, str(number), f"incarnation-{number}") for number, each in enumerate(stores)]
    journal = Journal(SeveralStores(members, real_environment(), patience_ms=500), FOLDER, MACHINE)
    fill(journal, 40)
    for each in stores:
        monkeypatch.setattr(each, "delete", lambda key, delete=each.delete: (time.sleep(0.02), delete(key)))
    assert trimming.trim(journal) > 0
    assert add(journal, "book").number == 41
    assert not any(map(journal.entries.read, range(1, 28)))


# The end of a journal


def test_of_a_journal_that_is_buried_the_last_entry_and_its_snapshot_stay(store):
    journal = open_list(store)
    fill(journal, 50)
    before = store.keys()
    went = trimming.delete_history(journal) + trimming.delete_history(journal)
    assert went == len([key for key in before if key not in end_keys(journal)])
    assert set(store.keys()) <= set(end_keys(journal))
    assert open_list(another(store)).refresh() == journal.state
    assert trimming.delete_history(journal) == 0
    assert open_list(another(store)).refresh() == journal.state


@pytest.mark.parametrize("asleep_at", [0, 1, 5, 20, 49, 50])
def test_a_process_suspended_during_the_deletion_of_a_journal_finds_its_end(store, asleep_at):
    journal, sleeper = open_list(another(store)), open_list(another(store))
    fill(journal, asleep_at)
    sleeper.refresh()
    fill(journal, 50 - asleep_at)
    trimming.delete_history(journal)
    assert sleeper.refresh() == journal.state
    assert add(sleeper, "late").number == 51


# Power failures


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_removed_objects_that_come_back_in_any_order_do_no_harm(data):
    store = TroubledStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
        reader = open_list(another(store))
        journal = open_list(store)
        before = {}
        for _ in range(3):
            fill(journal, data.draw(st.integers(0, 30)))
            if data.draw(st.booleans()):
                reader.refresh()
            before |= {key: store.read(key) for key in store.list("")}
            trimming.trim(journal)
        gone = sorted(set(before) - set(store.list("")))
        for key in data.draw(st.lists(st.sampled_from(gone), unique=True)) if gone else []:
            store.create(key, before[key])
        expected = journal.refresh().items
        assert reader.refresh().items == expected
        opened = open_list(another(store))
        assert opened.refresh().items == expected
        told = [step.state.items for step in history(opened)]
        assert not told or told[-1] == expected
        for version in range(max(1, len(expected) - 3), len(expected) + 1):
            assert state_at(opened, version).items == expected[:version]
        fill(opened, 1, "after")
        trimming.trim(opened)
        assert journal.refresh().items == (*expected, f"after-{len(expected)}")
