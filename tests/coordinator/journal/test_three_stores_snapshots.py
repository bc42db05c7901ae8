"""Snapshots and trimming of a journal on three stores, with one of them damaged or back after an outage."""

import contextlib
from functools import partial

import msgspec
import pytest

from pyspark_log_coordinator.journal import journal_entry, registers, snapshot, trimming
from pyspark_log_coordinator.journal.inbox import Inbox
from pyspark_log_coordinator.journal.paxos import Register
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.layout import number
from tests.support.coordinator.item_list import FOLDER, AddItems
from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.journal_objects import ENTRIES, EVERY, KEPT, SNAPSHOTS, fill
from tests.support.coordinator.journal_stores import Cluster, assert_whole
from tests.support.memory_store import MemoryStore
from tests.support.rings import sample

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


@pytest.fixture
def cluster():
    return Cluster()


# Snapshots


@pytest.mark.parametrize("one", [0, 1, 2])
def test_a_snapshot_on_one_store_is_good_to_read_and_stands_for_nothing(cluster, one):
    journal = cluster.open()
    fill(journal, 30)
    cluster.finish()
    newest = snapshot.key(FOLDER, 28)
    for i, store in enumerate(cluster.stores):
        if i != one:
            MemoryStore.delete(store, newest)
    assert_whole(cluster, journal.state.items)
    # Who trims by it gives it to a majority first, or leaves everything where it is.
    refused = [i for i in range(3) if i != one]
    for i in refused:
        cluster.stores[i].create = partial(refuse_snapshots, cluster.stores[i])
    before = [store.keys(ENTRIES) for store in cluster.stores]
    with pytest.raises((StoreRefused, StoreUnavailable)):
        journal.objects.delete_before(28)
    assert [store.keys(ENTRIES) for store in cluster.stores] == before
    del cluster.stores[refused[0]].create
    journal.objects.delete_before(28)
    cluster.finish()
    # The one that has not got it keeps its entries.
    assert [bool(store.keys(f"{ENTRIES}{number(5)}")) for store in cluster.stores] == [
        i == refused[1] for i in range(3)
    ]
    assert_whole(cluster, journal.state.items)


def test_entries_stay_where_a_majority_has_damaged_copies_of_the_snapshot(cluster):
    journal = cluster.open()
    fill(journal, 30)
    cluster.finish()
    for store in cluster.stores[:2]:
        store.put(snapshot.key(FOLDER, 28), b"rotten")
    with pytest.raises(StoreRefused, match=r"is damaged.*Repair a store"):
        journal.objects.delete_before(28)
    assert all(store.keys(f"{ENTRIES}{number(5)}") for store in cluster.stores)


def refuse_snapshots(store, key, data, creating=None):
    if key.startswith(SNAPSHOTS):
        raise StoreRefused(store.url, key, "the disk is full")
    return MemoryStore.create(store, key, data)


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_copy_of_a_snapshot_is_passed_over(cluster, damaged):
    journal = cluster.open()
    fill(journal, 3 * KEPT)
    cluster.finish()
    for key in cluster.stores[damaged].keys(SNAPSHOTS):
        cluster.stores[damaged].put(key, cluster.stores[damaged].get(key)[:-1])
    assert_whole(cluster, journal.state.items)
    trimming.trim(journal)
    assert_whole(cluster, journal.state.items)
    cluster.finish()
    for store in cluster.stores:
        for key in store.keys(SNAPSHOTS):
            store.put(key, store.get(key)[:-1])
    with pytest.raises(CorruptObject, match=SNAPSHOTS):
        cluster.open().refresh()


@pytest.mark.parametrize("seed", sample(range(30), 5))  # of the order in which the stores answer
def test_a_snapshot_is_done_without_if_the_only_store_that_has_it_answers_only_the_second_time(seed):
    # As while its writer is at work. That it can be read the second time does not make the first answer an error.
    cluster = Cluster(seed)
    journal = cluster.open()
    fill(journal, EVERY + 2)
    cluster.finish()
    newest = snapshot.key(FOLDER, EVERY)
    only, *others = cluster.stores
    for store in others:
        MemoryStore.delete(store, newest)
    read, answers = only.read, iter([StoreUnavailable(only.url, newest, "the answer was lost")])

    def lose_one_answer(wanted, *where):
        if wanted == newest and (error := next(answers, None)) is not None:
            raise error
        return read(wanted, *where)

    only.read = lose_one_answer
    assert cluster.open().refresh() == journal.state


@pytest.mark.parametrize("seed", range(3))  # of the order in which the stores answer
def test_a_snapshot_of_which_nobody_tells_whether_a_majority_has_it_is_no_damage(seed):
    # One store has it, one lacks it, and the third does not say: whoever has listed it tries again.
    cluster = Cluster(seed)
    journal = cluster.open()
    fill(journal, EVERY + 2)
    cluster.finish()
    newest = snapshot.key(FOLDER, EVERY)
    only, lacking, silent = cluster.stores
    for store in (lacking, silent):
        MemoryStore.delete(store, newest)

    def lose_answers(act, key, *more):
        if key == newest:
            raise StoreUnavailable("store", key, "the answer was lost")
        return act(key, *more)

    only.read, silent.exists = partial(lose_answers, only.read), partial(lose_answers, silent.exists)
    with contextlib.suppress(StoreUnavailable):
        assert cluster.open().refresh() == journal.state


# A store that was away while others trimmed


@pytest.fixture(params=[(0, 1), (1, 2), (2, 0)], ids=str)
def returned(request, cluster):
    """A cluster of which one store slept through much writing and trimming, and now another one is away."""
    cluster.back, away = request.param
    cluster.sleeper = cluster.open()
    fill(cluster.sleeper, 6)
    cluster.away(cluster.back)
    fill(cluster.open(), 3 * KEPT, "later")
    assert trimming.trim(cluster.open()) > 0
    cluster.items = cluster.open().refresh().items
    cluster.away(away)
    return cluster


@pytest.mark.parametrize("is_stray", [False, True])
def test_what_it_has_is_not_shown_and_what_was_never_decided_is_not_believed(returned, is_stray):
    """A vote that lost long ago, in a slot of which the winners' votes have been trimmed."""
    void = msgspec.Raw(msgspec.msgpack.encode([["ItemAdded", "void"]]))
    stray = journal_entry.encode(journal_entry.Entry("0" * 32, 0, returned.sleeper.last_hash, void))
    if is_stray:
        returned.stores[returned.back].put(f"{ENTRIES}{number(7)}.0", registers.encode(Register(0), stray))
    assert returned.open().refresh().items == returned.items
    inbox = Inbox(FOLDER, lambda body: body, returned.sleeper._environment)
    assert returned.sleeper.submit(AddItems(("late",)), inbox).number == len(returned.items) + 1
    assert_whole(returned, (*returned.items, "late"))
    returned.away()
    assert_whole(returned, (*returned.items, "late"))


def test_a_burial_reaches_it_the_next_time(returned):
    journal = returned.open()
    journal.refresh()
    trimming.delete_history(journal)
    returned.away()
    assert returned.open().refresh().items == returned.items
    trimming.delete_history(journal)
    returned.finish()
    for store in returned.stores:
        assert set(store.keys()) - {layout.MARKER} <= set(end_keys(journal))
    assert returned.open().refresh().items == returned.items
