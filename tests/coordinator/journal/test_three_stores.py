"""A journal on three stores, any one of which is unreachable, lost, wiped or damaged: all goes on."""

import random
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, registers, snapshot, trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.inbox import Inbox
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownVersion,
)
from pyspark_log_storage.layout import number
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment, with_journal_threads
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems, open_list
from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.journal_objects import ENTRIES, EVERY, KEPT, SNAPSHOTS, add, fill
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.three_stores import ThreeStores, marked_stores
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


class Store(BreakableStore):
    """A store in memory that may be away, for all processes at once; a test looks at what it has all the same."""

    def keys(self, folder=""):
        return [key for key in MemoryStore.list(self, "") if key.startswith(folder)]


class Cluster:
    """Three stores, and processes that open the journal on them."""

    def __init__(self, seed=0):
        self.stores = marked_stores(Store)
        self._chance = random.Random(seed)
        self._calls = []

    def open(self):
        calls = ShuffledThreads(self._chance.getrandbits(32))
        self._calls.append(calls)
        members = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(self.stores)]
        environment = with_journal_threads(fake_environment(), calls)
        return Journal(SeveralStores(members, environment, patience_ms=10_000), FOLDER, MACHINE)

    def finish(self):
        """Make all calls that were begun."""
        for calls in self._calls:
            calls.finish()

    def away(self, *stores):
        self.finish()
        for i, store in enumerate(self.stores):
            store.broken = StoreUnavailable if i in stores else None


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


@pytest.fixture
def cluster():
    return Cluster()


# What it costs


def test_a_commit_of_who_wrote_last_and_a_refresh_without_news_are_one_call_at_each_store(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 256)
    store = ThreeStores()
    journal = open_list(store)
    fill(journal, 3)
    vote, next_vote = f"{ENTRIES}{number(4)}.0", f"{ENTRIES}{number(5)}.0"
    for act, reads, creates in (
        (lambda: add(journal, "book"), [layout.MARKER], [vote]),
        (journal.refresh, [next_vote, layout.MARKER], []),
    ):
        store.keys()
        for each in store.connections:
            each.reads.clear(), each.creates.clear(), each.lists.clear()
        act()
        store.keys()
        for each in store.connections:
            assert (each.reads, each.creates, each.lists) == (reads, creates, [SNAPSHOTS])


# A store fails


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_stores_that_come_and_go_one_at_a_time_do_no_harm(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
        patch.setattr(trimming, "SNAPSHOTS_KEPT", 2)
        cluster = Cluster(data.draw(st.integers(0, 2**32)))
        journals = [cluster.open() for _ in range(3)]
        items = []
        for step in range(data.draw(st.integers(5, 25))):
            match data.draw(st.sampled_from(["place", "place", "place", "trim", "away", "open", "read", "history"])):
                case "place":
                    for i in range(data.draw(st.integers(1, 6))):
                        items.append(f"{step}-{i}")
                        try:
                            assert add(data.draw(st.sampled_from(journals)), items[-1]).number == len(items)
                        except OutcomeUnknown:  # it was suspended while its slot was trimmed
                            found = list(cluster.open().refresh().items)
                            assert found in (items, items[:-1])
                            items = found
                case "trim":
                    trimming.trim(data.draw(st.sampled_from(journals)))
                case "away":
                    cluster.away(*data.draw(st.sampled_from([(), (0,), (1,), (2,)])))
                case "open":
                    journals[data.draw(st.integers(0, 2))] = cluster.open()
                case "read":
                    assert data.draw(st.sampled_from(journals)).refresh().items == tuple(items)
                case "history":
                    assert_whole(cluster, items)
        cluster.away()
        assert_whole(cluster, items)


def test_a_store_whose_disk_fails_to_read_one_file_is_passed_over(cluster):
    journal = cluster.open()
    fill(journal, 3 * KEPT)
    trimming.trim(journal)
    cluster.finish()
    reading = cluster.stores[1].read

    def read(key, start=0, length=None):
        if key.startswith((SNAPSHOTS, ENTRIES)):
            raise StoreError("store-b", key, "a bad sector")
        return reading(key, start, length)

    cluster.stores[1].read = read
    assert_whole(cluster, journal.state.items)
    assert add(cluster.open(), "book").number == 3 * KEPT + 1


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


def refuse_snapshots(store, key, data, creating=None):
    if key.startswith(SNAPSHOTS):
        raise StoreRefused(store.url, key, "the disk is full")
    return MemoryStore.create(store, key, data)


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
        returned.stores[returned.back].put(f"{ENTRIES}{number(7)}.0", registers.encode(stray))
    assert returned.open().refresh().items == returned.items
    inbox = Inbox(returned.sleeper.place, FOLDER, lambda body: body)
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


# Damage


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_copy_of_a_snapshot_is_passed_over(cluster, damaged):
    journal = cluster.open()
    fill(journal, 3 * KEPT)
    cluster.finish()
    for key in cluster.stores[damaged].keys(SNAPSHOTS):
        cluster.stores[damaged].put(key, cluster.stores[damaged].read(key)[:-1])
    assert_whole(cluster, journal.state.items)
    trimming.trim(journal)
    assert_whole(cluster, journal.state.items)
    cluster.finish()
    for store in cluster.stores:
        for key in store.keys(SNAPSHOTS):
            store.put(key, store.read(key)[:-1])
    with pytest.raises(CorruptObject, match=SNAPSHOTS):
        cluster.open().refresh()
