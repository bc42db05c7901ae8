"""A journal on three stores, any one of which is unreachable, lost, wiped or damaged: all goes on."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, spare_repair, trimming
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from pyspark_log_storage.layout import number
from pyspark_log_storage.objects import node
from tests.support.coordinator.item_list import AddItems, open_list
from tests.support.coordinator.journal_objects import ENTRIES, EVERY, KEPT, SNAPSHOTS, add, fill
from tests.support.coordinator.journal_stores import Cluster, Killed, assert_whole
from tests.support.coordinator.spares import spare_of
from tests.support.coordinator.three_stores import ThreeStores, marked_stores
from tests.support.elsewhere import PlainStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


@pytest.fixture
def cluster():
    return Cluster()


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
            [spare_of(f"{ENTRIES}{number(4)}.0"), layout.MARKER],
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
        assert (each.reads, each.lists) == ([vote, spare_of(vote), layout.MARKER], [SNAPSHOTS])


def test_a_leader_whose_command_is_refused_has_seen_the_newest_entry(cluster):
    one, other = cluster.open(), cluster.open()
    add(one, "book")
    add(other, "vase")
    assert add(one, "vase").events == []
    assert one.number == 2


# A store fails


@pytest.mark.no_faults("one of three stores is away, so a fault of another is one too many")
@pytest.mark.parametrize("store", [0, 1, 2])
def test_any_store_may_be_lost_at_any_call(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 40)  # some entries have manifests
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 2)
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
            trimming.trim(journals[i % 2])
    return items


@pytest.mark.parametrize("away", [0, 1, 2])
def test_a_journal_works_with_one_store_unreachable(cluster, away):
    journal = cluster.open()
    fill(journal, 10)
    cluster.away(away)
    fill(cluster.open(), 3 * KEPT, "later")
    assert trimming.trim(cluster.open()) > 0
    assert_whole(cluster, cluster.open().refresh().items)
    assert journal.refresh() == cluster.open().refresh()


def test_with_two_stores_away_nothing_is_said_and_nothing_lost(cluster):
    journal = cluster.open()
    fill(journal, 10)
    cluster.away(0, 2)
    for what in (
        journal.refresh,
        cluster.open().refresh,
        lambda: trimming.trim(journal),
        lambda: list(history(journal)),
    ):
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
    trimming.trim(journal)
    cluster.finish()
    assert cluster.stores[wiped].keys() == []
    assert_whole(cluster, journal.state.items)


# A process that ends, and power failures


@pytest.mark.parametrize("store", [0, 1, 2])
def test_trimming_may_end_at_any_object(store, monkeypatch):
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 2)
    for deletes in range(0, 40, 3):
        cluster = Cluster(seed=deletes)
        journal = cluster.open()
        fill(journal, 18)
        cluster.finish()
        cluster.stores[store].deletes_left = deletes
        with contextlib.suppress(Killed):
            trimming.trim(journal)
        cluster._calls.clear()  # what the process had begun ends with it
        cluster.stores[store].deletes_left = 10**9
        assert_whole(cluster, journal.state.items)
        other = cluster.open()
        fill(other, 4)
        trimming.trim(other)
        assert_whole(cluster, other.state.items)


@pytest.mark.no_faults("one of three stores is away, so a fault of another is one too many")
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
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
                        assert add(data.draw(st.sampled_from(journals)), items[-1]).number == len(items)
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


def test_marked_stores_belong_together():
    for i, store in enumerate(marked_stores()):
        node.require_marker(store, str(i), f"incarnation-{i}")


# One register is lost


@pytest.mark.on_disk("an object store has no spares")
@pytest.mark.parametrize("seed", range(10))
def test_an_entry_that_two_of_three_stores_have_outlives_the_loss_of_a_register(seed):
    cluster = Cluster(seed)
    fill(cluster.open(), 2)
    cluster.away(2)
    fill(cluster.open(), 1)
    cluster.away()
    for key in [key for key in cluster.stores[1].keys(ENTRIES) if number(3) in key]:
        PlainStore.delete(cluster.stores[1], key)
    other = cluster.open()
    other.submit(AddItems(("other",)))
    assert cluster.open().refresh().items == ("item-0", "item-1", "item-2", "other")


@pytest.mark.on_disk("an object store has no spares")
def test_a_former_leader_does_not_overrule_a_vote_that_was_closed_and_lost():
    cluster = Cluster()
    leader = cluster.open()
    fill(leader, 2)
    cluster.away(2)
    fill(cluster.open(), 1, "other")
    cluster.away()
    PlainStore.delete(cluster.stores[1], f"{ENTRIES}{number(3)}.0")
    leader.submit(AddItems(("late",)))
    assert cluster.open().refresh().items == ("item-0", "item-1", "other-2", "late")


@pytest.mark.on_disk("an object store has no spares")
def test_a_register_that_is_lost_is_made_again_by_mending(cluster):
    journal = cluster.open()
    fill(journal, 3)
    cluster.finish()
    before = cluster.stores[1].keys()
    PlainStore.delete(cluster.stores[1], f"{ENTRIES}{number(2)}.0")
    assert spare_repair.repair(journal) == [f"store-b/{ENTRIES}{number(2)}.0"]
    assert cluster.stores[1].keys() == before


def test_a_store_whose_disk_is_unmounted_does_not_say_that_an_object_is_missing():
    stores = marked_stores()
    members = Members([Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(stores)])
    with pytest.raises(ObjectMissing):
        members._visit(0, lambda store: store.read("manifest"))
    stores[0].delete(layout.MARKER)
    with pytest.raises(NodeMissing):
        members._visit(0, lambda store: store.read("manifest"))
