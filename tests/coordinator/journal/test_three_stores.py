"""A journal on three stores, any one of which is unreachable, lost, wiped or damaged: all goes on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    NodeMissing,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
)
from pyspark_log_storage.layout import number
from tests.support.coordinator.item_list import open_list
from tests.support.coordinator.journal_objects import ENTRIES, EVERY, KEPT, SNAPSHOTS, add, fill
from tests.support.coordinator.journal_stores import Cluster, assert_whole
from tests.support.coordinator.three_stores import ThreeStores, marked_stores

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


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


def test_a_store_whose_disk_is_unmounted_does_not_say_that_an_object_is_missing():
    stores = marked_stores()
    place = SeveralStores([Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(stores)])
    with pytest.raises(ObjectMissing):
        place._visit(0, lambda store: store.read("manifest"))
    stores[0].delete(layout.MARKER)
    with pytest.raises(NodeMissing):
        place._visit(0, lambda store: store.read("manifest"))
