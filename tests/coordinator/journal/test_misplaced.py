"""An object of a journal under the key of another one is damage of its store, and is mended from the others."""

import pytest

from pyspark_log_coordinator.journal import registers, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_HASH
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_coordinator.journal.trimming import trim
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.layout import newest_first
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from tests.coordinator.journal.conftest import TroubledBucket
from tests.support.coordinator.item_list import FOLDER, open_list
from tests.support.coordinator.journal_objects import ENTRIES, SNAPSHOTS, add, entry_key, fill, raw_entry
from tests.support.coordinator.three_stores import ThreeStores
from tests.support.coordinator.troubled_store import TroubledStore

three_stores = pytest.mark.parametrize("store", [ThreeStores], indirect=True, ids=["three stores"])
no_majority = pytest.mark.parametrize(
    "store", [TroubledStore, TroubledBucket], indirect=True, ids=["one store", "a bucket"]
)


def vote(n, ballot=0):
    return f"{ENTRIES}{n:020d}.{ballot}"


def found(store):
    return [(each.key, each.good is not None) for each in open_list(store).objects.damage(0)]


def repair(store):
    return open_list(store).objects.repair(0)


@three_stores
def test_an_entry_under_the_next_number_of_one_store_is_no_vote_there(journal, store):
    fill(journal, 3)
    first, second, _ = store.inner
    first.create(vote(4), first.read(vote(3)))
    assert open_list(store).refresh() == journal.refresh()
    assert found(store) == [(vote(4), False)], "told before the next entry is written, which alone shows what belongs"
    for name in ("by a process that does not lead", "and by another one"):
        add(open_list(store), name)
    assert len(open_list(store).refresh().items) == 5
    assert found(store) == [(vote(4), True)]
    assert repair(store) == [f"{first.url}/{vote(4)}"]
    assert first.read(vote(4)) == second.read(vote(4))
    assert found(store) == []


@three_stores
def test_a_store_whose_register_is_damaged_gets_what_the_others_decided_and_no_more(journal, store):
    fill(journal, 3)
    first, second, third = store.inner
    first.put(vote(2), first.read(vote(3)))
    second.delete(vote(2))
    assert found(store) == [(vote(2), False)], "one of three is no majority"
    second.put(vote(2), third.read(vote(2)))
    assert found(store) == [(vote(2), True)]
    repair(store)
    assert first.read(vote(2)) == third.read(vote(2))


@three_stores
@pytest.mark.parametrize("register", [Register(1, is_claim=True), Register(1), Register(0)])
def test_a_claim_or_a_closed_vote_of_another_entry_is_none_of_this_one(store, register):
    content = b"f" * 32 if register.is_claim else NIL
    first = store.inner[0]
    entries = open_list(store).entries
    key, other = entries.key(1, register), entries.key(2, register)
    data = registers.encode(content, key)
    assert registers.decode(data, "it", key) == content
    with pytest.raises(CorruptObject, match=f"it was written as {key}"):
        registers.decode(data, "it", other)
    first.put(other, data)
    fill(open_list(store), 3)
    assert len(open_list(store).refresh().items) == 3


def test_an_entry_of_an_older_version_is_read_and_followed(journal, store):
    store.create(entry_key(1), seal(b"PLJE", 1, raw_entry(NO_HASH, ["ItemAdded", "old"])[HEADER_BYTES:]))
    add(journal, "new")
    assert open_list(store).refresh().items == journal.refresh().items
    assert len(journal.refresh().items) == 2


@no_majority
@pytest.mark.parametrize("beside", [0, 1])
def test_a_copy_of_another_entry_on_the_one_store_is_an_error(journal, store, beside):
    fill(journal, 3)
    store.put(entry_key(3 + beside), store.read(entry_key(2)))
    for act in (open_list(store).refresh, lambda: add(open_list(store), "more")):
        with pytest.raises(CorruptObject, match=f"{entry_key(3 + beside)}.*it does not belong here"):
            act()
    assert len(list(store.list(ENTRIES))) == 3 + beside


@three_stores
@pytest.mark.parametrize("beside", [-1, 1, 90])
def test_a_snapshot_under_the_key_of_another_on_one_of_three_stores_changes_nothing(store, snapshots_are_close, beside):
    fill(open_list(store), 8)
    key = f"{SNAPSHOTS}{newest_first(8 + beside)}"
    store.inner[0].create(key, store.inner[0].read(snapshot.key(FOLDER, 8)))
    running = open_list(store)
    running.refresh()
    assert found(store) == [(key, False)]
    fill(open_list(store), 12)
    add(running, "one more")
    trim(open_list(store))
    state = open_list(store).refresh()
    assert (len(state.items), state) == (21, running.refresh())


@no_majority
@pytest.mark.parametrize("beside", [-1, 90])
def test_a_snapshot_under_the_key_of_another_on_the_one_store_is_passed_over_or_an_error(
    store, snapshots_are_close, beside
):
    fill(open_list(store), 9)
    store.create(f"{SNAPSHOTS}{newest_first(8 + beside)}", store.read(snapshot.key(FOLDER, 8)))
    if beside < 0:
        assert len(open_list(store).refresh().items) == 9
    else:
        with pytest.raises(CorruptObject, match="it does not belong here"):
            open_list(store).refresh()
