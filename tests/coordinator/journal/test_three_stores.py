"""A journal on three stores, any one of which is away, lost, wiped, damaged or comes back: nobody notices."""

import contextlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, registers, snapshot
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.journal import SNAPSHOTS_KEPT, Journal
from pyspark_log_coordinator.journal.paxos import Register
from pyspark_log_coordinator.journal.place import SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import (
    CorruptObject,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownVersion,
)
from pyspark_log_storage.layout import number
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.calls import ShuffledCalls
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.item_list import FOLDER, MACHINE, AddItems, open_list
from tests.coordinator.spares import spare_of
from tests.coordinator.three_stores import ThreeStores, mark, marked_stores

ENTRIES, SNAPSHOTS, MANIFESTS = f"{FOLDER}entries/", f"{FOLDER}snapshots/", f"{FOLDER}manifests/"
EVERY = 4
KEPT = EVERY * SNAPSHOTS_KEPT


class Killed(BaseException):
    """The process has ended."""


class Store(MemoryStore):
    """A store in memory that may be away, for all processes at once."""

    def __init__(self, url):
        super().__init__(url)
        self.away = False
        self.calls = 0
        self.away_from = 10**9
        """The call from which on it is away."""
        self.deletes_left = 10**9
        """How many objects may be removed before the process ends that removes the next one."""

    def _answer(self):
        self.calls += 1
        if self.away or self.calls >= self.away_from:
            raise StoreUnavailable(self.url, "", "it is away")

    def create(self, key, data):
        self._answer()
        return super().create(key, data)

    def read(self, key, start=0, length=None):
        self._answer()
        return super().read(key, start, length)

    def list(self, prefix, after=""):
        self._answer()
        yield from super().list(prefix, after)

    def delete(self, key):
        self._answer()
        if self.deletes_left == 0:
            raise Killed
        self.deletes_left -= 1
        super().delete(key)

    def keys(self, folder=""):
        return sorted(key for key in self._objects if key.startswith(folder))

    def get(self, key):
        return self._objects[key]


class Cluster:
    """Three stores, and processes that open the journal on them."""

    def __init__(self, seed=0):
        self.stores = [Store(f"store-{letter}") for letter in "abc"]
        for i, store in enumerate(self.stores):
            mark(store, i)
        self._chance = random.Random(seed)
        self._calls = []

    def open(self):
        calls = ShuffledCalls(self._chance.getrandbits(32))
        self._calls.append(calls)
        members = [Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(self.stores)]
        return Journal(SeveralStores(Members(members, calls)), FOLDER, MACHINE, fake_environment(), 10_000)

    def finish(self):
        """Make all calls that were begun."""
        for calls in self._calls:
            calls.finish()

    def away(self, *stores):
        self.finish()
        for i, store in enumerate(self.stores):
            store.away = i in stores

    def wipe(self, store):
        self.stores[store]._objects.clear()


@pytest.fixture(autouse=True)
def snapshots_are_close(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)


@pytest.fixture
def cluster():
    return Cluster()


def fill(journal, count, name="item"):
    start = len(journal.refresh().items)
    for i in range(start, start + count):
        journal.submit(AddItems((f"{name}-{i}",)))


def add(journal, *items):
    return journal.submit(AddItems(items))


def assert_whole(cluster, items):
    """Whoever opens the journal now finds the items, and every version that is said to be kept."""
    journal = cluster.open()
    assert journal.refresh().items == tuple(items)
    told = [state.items for _, _, state in history(cluster.open())]
    assert not told or told[-1] == tuple(items)
    with pytest.raises(UnknownVersion) as refused:
        state_at(journal, len(items) + 1)
    if not items:
        return
    oldest = int(refused.value.message.split("versions ")[1].split()[0])
    for version in {oldest, len(items)}:
        assert state_at(journal, version).items == tuple(items)[:version]


# What it costs


def test_a_commit_of_who_wrote_last_is_one_call_at_each_store(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 256)
    store = ThreeStores()
    journal = open_list(store)
    fill(journal, 3)
    store.keys()
    for each in store.connections:
        each.reads.clear(), each.creates.clear(), each.lists.clear()
    add(journal, "book")
    store.keys()
    for each in store.connections:
        assert (each.reads, each.creates, each.lists) == (
            [spare_of(f"{ENTRIES}{number(4)}.0"), layout.KEY],
            [f"{ENTRIES}{number(4)}.0"],
            [SNAPSHOTS],
        )


def test_a_refresh_without_news_is_one_call_at_each_store():
    store = ThreeStores()
    journal = open_list(store)
    fill(journal, 3)
    journal.refresh()
    store.keys()
    for each in store.connections:
        each.reads.clear(), each.lists.clear()
    journal.refresh()
    store.keys()
    for each in store.connections:
        vote = f"{ENTRIES}{number(4)}.0"
        assert (each.reads, each.lists) == ([vote, spare_of(vote), layout.KEY], [SNAPSHOTS])


def test_who_leads_and_is_refused_has_seen_the_newest_entry(cluster):
    one, other = cluster.open(), cluster.open()
    add(one, "book")
    add(other, "vase")
    assert add(one, "vase").events == []
    assert one.number == 2


# A store fails


@pytest.mark.parametrize("store", [0, 1, 2])
def test_any_store_may_be_lost_at_any_call(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 40)  # some entries have manifests
    monkeypatch.setattr(journal_module, "SNAPSHOTS_KEPT", 2)
    healthy = Cluster()
    live_through(healthy)
    healthy.finish()
    calls = healthy.stores[store].calls
    for call in range(1, calls + 1, 3):
        cluster = Cluster(seed=call)
        cluster.stores[store].away_from = call
        items = live_through(cluster)
        cluster.finish()
        assert_whole(cluster, items)
        cluster.stores[store].away_from = 10**9
        assert_whole(cluster, items)


def live_through(cluster):
    """Let two processes write by turns and trim; return the items as they must be."""
    journals, items = [cluster.open(), cluster.open()], []
    for i in range(14):
        item = f"item-{i}" + "x" * (40 if i % 5 == 0 else 0)
        items.append(item)
        assert add(journals[i // 3 % 2], item).number == i + 1
        if i % 6 == 5:
            journals[i % 2].trim()
    return items


@pytest.mark.parametrize("away", [0, 1, 2])
def test_with_one_store_away_everything_goes_on(cluster, away):
    journal = cluster.open()
    fill(journal, 10)
    cluster.away(away)
    fill(cluster.open(), 3 * KEPT, "later")
    assert cluster.open().trim() > 0
    assert_whole(cluster, cluster.open().refresh().items)
    assert journal.refresh() == cluster.open().refresh()


def test_with_two_stores_away_nothing_is_said_and_nothing_lost(cluster):
    journal = cluster.open()
    fill(journal, 10)
    cluster.away(0, 2)
    for what in (journal.refresh, cluster.open().refresh, journal.trim, lambda: list(history(journal))):
        with pytest.raises(StoreUnavailable):
            what()
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        add(journal, "late")
    cluster.away()
    assert add(journal, "late").state.items.count("late") == 1


@pytest.mark.parametrize("wiped", [0, 1, 2])
def test_a_store_that_was_wiped_counts_for_nothing_and_is_left_empty(cluster, wiped):
    fill(cluster.open(), 2 * KEPT)
    cluster.finish()
    cluster.wipe(wiped)
    journal = cluster.open()
    fill(journal, 2 * KEPT)
    journal.trim()
    cluster.finish()
    assert cluster.stores[wiped].keys() == []
    assert_whole(cluster, journal.state.items)


# Snapshots


def snapshots_on(store):
    return sorted(snapshot.decode(store.get(key), key).number for key in store.keys(SNAPSHOTS))


@pytest.mark.parametrize("one", [0, 1, 2])
def test_a_snapshot_on_one_store_is_good_to_read_and_stands_for_nothing(cluster, one):
    journal = cluster.open()
    fill(journal, 30)
    cluster.finish()
    newest = snapshot.key(FOLDER, 28)
    for i, store in enumerate(cluster.stores):
        if i != one:
            del store._objects[newest]
    assert_whole(cluster, journal.state.items)
    # Who trims by it gives it to a majority first, or leaves everything where it is.
    refused = [i for i in range(3) if i != one]
    for i in refused:
        refuse_snapshots(cluster.stores[i])
    before = [store.keys(ENTRIES) for store in cluster.stores]
    with pytest.raises((StoreRefused, StoreUnavailable)):
        journal._remove_before(28)
    assert [store.keys(ENTRIES) for store in cluster.stores] == before
    allow_snapshots(cluster.stores[refused[0]])
    journal._remove_before(28)
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
        journal._remove_before(28)
    assert all(store.keys(f"{ENTRIES}{number(5)}") for store in cluster.stores)


def refuse_snapshots(store):
    creating = store.create

    def create(key, data):
        if key.startswith(SNAPSHOTS):
            raise StoreRefused(store.url, key, "the disk is full")
        return creating(key, data)

    store.create = create


def allow_snapshots(store):
    del store.create


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_copy_of_a_snapshot_is_passed_over(cluster, damaged):
    journal = cluster.open()
    fill(journal, 3 * KEPT)
    cluster.finish()
    store = cluster.stores[damaged]
    for key in store.keys(SNAPSHOTS):
        store.put(key, store.get(key)[:-1])
    assert_whole(cluster, journal.state.items)
    journal.trim()
    assert_whole(cluster, journal.state.items)


def test_a_newest_snapshot_that_only_one_store_has_damaged_is_done_without(cluster):
    journal = cluster.open()
    fill(journal, 10)
    cluster.finish()
    newest = snapshot.key(FOLDER, 8)
    for store in cluster.stores[1:]:
        del store._objects[newest]
    cluster.stores[0].put(newest, b"rotten")
    assert cluster.open().refresh() == journal.state
    assert add(cluster.open(), "book").number == 11


def test_a_snapshot_that_is_damaged_everywhere_is_an_error_that_names_it(cluster):
    journal = cluster.open()
    fill(journal, 3 * KEPT)
    journal.trim()
    cluster.finish()
    for store in cluster.stores:
        for key in store.keys(SNAPSHOTS):
            store.put(key, store.get(key)[:-1])
    with pytest.raises(CorruptObject, match=SNAPSHOTS):
        cluster.open().refresh()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_manifest_is_read_from_any_store_that_has_it_whole(cluster, monkeypatch, lost):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    journal = cluster.open()
    fill(journal, 3)
    cluster.finish()
    for i, key in enumerate(cluster.stores[lost].keys(MANIFESTS)):
        if i == 0:
            del cluster.stores[lost]._objects[key]
        else:
            cluster.stores[lost].put(key, b"rotten")
    assert cluster.open().refresh() == journal.state


def test_a_manifest_that_only_a_store_has_that_did_not_answer_is_worth_another_try(cluster, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    fill(cluster.open(), 1)
    cluster.finish()
    only, without, lost = cluster.stores
    (key,) = only.keys(MANIFESTS)
    without.delete(key)
    cluster.wipe(cluster.stores.index(lost))
    read, answers = only.read, iter([StoreUnavailable(only.url, key, "the answer was lost")])

    def lose_one_answer(wanted, *where):
        if wanted == key and (error := next(answers, None)) is not None:
            raise error
        return read(wanted, *where)

    only.read = lose_one_answer
    with pytest.raises(StoreUnavailable, match="3 of 3 stores do not answer, and 1 must"):
        cluster.open().refresh()
    assert cluster.open().refresh().items == ("item-0",)


def test_a_manifest_that_no_majority_takes_leaves_no_entry(cluster, monkeypatch):
    journal = cluster.open()
    fill(journal, 1)
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    cluster.away(0, 1)
    with pytest.raises(StoreUnavailable):
        add(journal, "late")
    cluster.away()
    assert journal.refresh().items == ("item-0",)
    assert not any(number(2) in key for store in cluster.stores for key in store.keys(ENTRIES))


# A store that was away while others trimmed


@pytest.fixture(params=[(0, 1), (1, 2), (2, 0)], ids=str)
def returned(request, cluster):
    """A cluster of which one store slept through much writing and trimming, and now another one is away."""
    back, away = request.param
    sleepers = [cluster.open(), cluster.open()]
    fill(sleepers[0], 6)
    for journal in sleepers:
        journal.refresh()
    cluster.away(back)
    fill(cluster.open(), 3 * KEPT, "later")
    assert cluster.open().trim() > 0
    cluster.sleepers = sleepers
    cluster.back = back
    cluster.items = cluster.open().refresh().items
    cluster.away(away)
    return cluster


def test_what_it_still_has_is_not_shown(returned):
    assert_whole(returned, returned.items)
    returned.away()
    assert_whole(returned, returned.items)


def test_a_reader_that_slept_too_shows_the_newest(returned):
    assert returned.sleepers[0].refresh().items == returned.items


def test_a_writer_that_slept_too_writes_behind_the_newest(returned):
    assert add(returned.sleepers[0], "late").number == len(returned.items) + 1
    assert_whole(returned, (*returned.items, "late"))
    returned.away()
    assert_whole(returned, (*returned.items, "late"))


def test_what_it_took_that_was_never_decided_is_not_believed(returned):
    """A vote that lost long ago, in a slot of which the winners' votes have been trimmed."""
    stray = journal_entry.encode(journal_entry.Entry("0" * 32, 0, returned.sleepers[0].last_hash, raw("void"), None))
    key = f"{ENTRIES}{number(7)}.0"
    returned.stores[returned.back].put(key, registers.encode(Register(0), stray))
    for journal in (returned.sleepers[0], returned.open()):
        assert journal.refresh().items == returned.items
    assert add(returned.sleepers[1], "late").number == len(returned.items) + 1
    returned.away()
    assert_whole(returned, (*returned.items, "late"))


def raw(item):
    return msgspec.Raw(msgspec.msgpack.encode([["ItemAdded", item]]))


def test_it_is_trimmed_with_the_others_the_next_time(returned):
    returned.away()
    journal = returned.open()
    fill(journal, EVERY)
    journal.trim()
    returned.finish()
    oldest = snapshots_on(returned.stores[returned.back])[0]
    slots = {registers.slot_of(key.removeprefix(ENTRIES)) for key in returned.stores[returned.back].keys(ENTRIES)}
    assert min(slots) >= oldest
    assert_whole(returned, journal.state.items)


def test_a_burial_reaches_it_the_next_time(returned):
    journal = returned.open()
    journal.refresh()
    journal.bury()
    returned.away()
    assert returned.open().refresh().items == returned.items
    journal.bury()
    returned.finish()
    for store in returned.stores:
        assert set(store.keys()) - {layout.KEY} <= set(journal.end_keys())
    assert returned.open().refresh().items == returned.items


# A process that ends, and power failures


@pytest.mark.parametrize("store", [0, 1, 2])
def test_trimming_may_end_at_any_object(store, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOTS_KEPT", 2)
    for deletes in range(0, 40, 3):
        cluster = Cluster(seed=deletes)
        journal = cluster.open()
        fill(journal, 18)
        cluster.finish()
        cluster.stores[store].deletes_left = deletes
        with contextlib.suppress(Killed):
            journal.trim()
        cluster._calls.clear()  # what the process had begun ends with it
        cluster.stores[store].deletes_left = 10**9
        assert_whole(cluster, journal.state.items)
        other = cluster.open()
        fill(other, 4)
        other.trim()
        assert_whole(cluster, other.state.items)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_stores_that_come_and_go_one_at_a_time_do_no_harm(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
        patch.setattr(journal_module, "SNAPSHOTS_KEPT", 2)
        cluster = Cluster(data.draw(st.integers(0, 2**32)))
        journals = [cluster.open() for _ in range(3)]
        items = []
        for step in range(data.draw(st.integers(5, 25))):
            match data.draw(st.sampled_from(["place", "place", "place", "trim", "away", "open", "read", "history"])):
                case "place":
                    for i in range(data.draw(st.integers(1, 6))):
                        items.append(f"{step}-{i}")
                        assert add(data.draw(st.sampled_from(journals)), items[-1]).number == len(items)
                case "trim":
                    data.draw(st.sampled_from(journals)).trim()
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
    journal.trim()
    cluster.finish()
    reading = cluster.stores[1].read

    def read(key, start=0, length=None):
        if key.startswith((SNAPSHOTS, ENTRIES)):
            raise StoreError("store-b", key, "a bad sector")
        return reading(key, start, length)

    cluster.stores[1].read = read
    assert_whole(cluster, journal.state.items)
    assert add(cluster.open(), "book").number == 3 * KEPT + 1


def test_marked_stores_belong_together():
    for i, store in enumerate(marked_stores()):
        node.require_marker(store, str(i), f"incarnation-{i}")


# One register is lost


@pytest.mark.parametrize("seed", range(10))
def test_an_entry_that_two_of_three_stores_have_outlives_the_loss_of_a_register(seed):
    cluster = Cluster(seed)
    fill(cluster.open(), 2)
    cluster.away(2)
    fill(cluster.open(), 1)
    cluster.away()
    for key in [key for key in cluster.stores[1].keys(ENTRIES) if number(3) in key]:
        MemoryStore.delete(cluster.stores[1], key)
    other = cluster.open()
    other.submit(AddItems(("other",)))
    assert cluster.open().refresh().items == ("item-0", "item-1", "item-2", "other")


def test_who_led_does_not_overrule_a_vote_that_was_closed_and_lost():
    cluster = Cluster()
    leader = cluster.open()
    fill(leader, 2)
    cluster.away(2)
    fill(cluster.open(), 1, "other")
    cluster.away()
    MemoryStore.delete(cluster.stores[1], f"{ENTRIES}{number(3)}.0")
    leader.submit(AddItems(("late",)))
    assert cluster.open().refresh().items == ("item-0", "item-1", "other-2", "late")


def test_a_register_that_is_lost_is_made_again_by_mending(cluster):
    journal = cluster.open()
    fill(journal, 3)
    cluster.finish()
    before = cluster.stores[1].keys()
    MemoryStore.delete(cluster.stores[1], f"{ENTRIES}{number(2)}.0")
    assert journal.mend() == [f"store-b/{ENTRIES}{number(2)}.0"]
    assert cluster.stores[1].keys() == before
