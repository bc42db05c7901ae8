"""Damaged, newer and lost objects of a journal: an error that names the object, unless other stores have it."""

import msgspec
import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import snapshot, trimming
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_entry import NO_HASH
from pyspark_log_coordinator.journal.pace import FRESH_SECONDS_REMOTE
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage.errors import (
    CorruptObject,
    NewerFormat,
    OutcomeUnknown,
)
from pyspark_log_storage.layout import newest_first, number
from pyspark_log_storage.objects.envelope import seal
from tests.coordinator.journal.conftest import TroubledBucket
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, MACHINE, open_list
from tests.support.coordinator.journal_objects import (
    ENTRIES,
    EVERY,
    KEPT,
    SNAPSHOTS,
    add,
    another,
    entry_key,
    fill,
    raw_entry,
)
from tests.support.coordinator.three_stores import ThreeStores
from tests.support.coordinator.troubled_store import TroubledStore

no_majority = pytest.mark.parametrize(
    "store", [TroubledStore, TroubledBucket], indirect=True, ids=["one store", "a bucket"]
)


# Damage


@pytest.mark.parametrize("replaced", [1, 2, 3])
@pytest.mark.parametrize("snapshot_every", [2, 256])
def test_an_entry_that_does_not_follow_the_one_before_is_an_error(store, monkeypatch, snapshot_every, replaced):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", snapshot_every)
    fill(open_list(store), 4 if snapshot_every == 256 else 3)
    if replaced <= 2 and snapshot_every == 2:
        store.delete(snapshot.key(FOLDER, 2))
    store.put(entry_key(replaced), raw_entry(b"x" * 16, ["ItemAdded", "forged"]))
    with pytest.raises(CorruptObject, match="does not follow"):
        open_list(store).refresh()


def test_a_snapshot_of_an_impossible_state_is_corrupt(store, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 2)
    fill(open_list(store), 2)

    def check(before, after):
        if not before.items and len(after.items) == 2:
            raise ValueError("it has too many items")

    machine = msgspec.structs.replace(MACHINE, check=check)
    opened = open_list(store)
    with pytest.raises(CorruptObject, match="it has too many items"):
        Journal(opened.place, FOLDER, machine).refresh()


def test_a_command_after_which_the_state_would_be_impossible_is_an_error_and_writes_nothing(store):
    def check(before, after):
        raise ValueError("it has too many items")

    opened = open_list(store)
    journal = Journal(opened.place, FOLDER, msgspec.structs.replace(MACHINE, check=check))
    with pytest.raises(CorruptObject, match="it has too many items"):
        add(journal, "book")
    assert open_list(another(store)).refresh().items == ()


@pytest.mark.parametrize("folder", [ENTRIES, SNAPSHOTS])
def test_a_flipped_bit_of_any_byte_and_a_cut_are_errors_that_name_the_object(journal, store, monkeypatch, folder):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 2 if folder == SNAPSHOTS else 256)
    add(journal, "a book of more than ten letters")
    add(journal, "a vase of more than ten letters")
    key = next(iter(store.list(folder)))
    whole = store.read(key)
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    for damaged in [*flipped, whole[:-1], b""]:
        store.put(key, damaged)
        with pytest.raises(CorruptObject, match=key.rpartition("/")[2]):
            open_list(store).refresh()


# Other versions


@pytest.mark.parametrize(
    "data",
    [
        raw_entry(NO_HASH, ["Burnt", "book"]),
        raw_entry(NO_HASH, ["ItemAdded", "book", "upside down"]),
        raw_entry(NO_HASH, ["ItemAdded"]),
        raw_entry(NO_HASH, ["ItemAdded", 7]),
        seal(b"PLJE", 1, msgspec.msgpack.encode(["0" * 32, 0, NO_HASH, [], "new"])),
        seal(b"PLJE", 4, b"whatever"),
    ],
    ids=["another event", "another field", "a field fewer", "another type", "a field of the entry", "a version"],
)
def test_an_entry_of_another_version_stops_this_one(journal, store, data):
    store.create(entry_key(1), data)
    before = list(store.list(""))
    with pytest.raises(NewerFormat, match=f"{number(1)}.*if it is older, use it"):
        add(journal, "vase")
    assert list(store.list("")) == before


def test_a_state_with_another_field_stops_this_version(store):
    state = msgspec.Raw(msgspec.msgpack.encode({"items": [], "colour": "red"}))
    data = snapshot.encode(snapshot.Snapshot(4, b"x" * 16, state))
    store.create(f"{SNAPSHOTS}{newest_first(4)}", data)
    with pytest.raises(NewerFormat, match="colour"):
        open_list(store).refresh()


# Loss


@pytest.mark.parametrize("n", [1, 5, 8])
def test_an_entry_that_is_lost_is_an_error_for_readers_and_writers(journal, store, n):
    fill(journal, 9)
    store.delete(entry_key(n))
    with pytest.raises(EntryMissing, match="it is missing, and entry 9 exists"):
        open_list(another(store)).refresh()
    with pytest.raises(EntryMissing, match="it is missing, and entry 9 exists"):
        add(open_list(another(store)), "new")


@no_majority
def test_a_process_that_does_not_know_a_lost_entry_yet_writes_nothing_in_its_place(journal, store):
    behind = open_list(another(store), environment := fake_environment())
    fill(journal, 5)
    behind.refresh()
    fill(journal, 2)
    lost = store.read(entry_key(6))
    store.delete(entry_key(6))
    environment.sleep(FRESH_SECONDS_REMOTE)
    for act in (behind.refresh, lambda: add(behind, "new")):
        with pytest.raises(EntryMissing, match=f"{number(6)}.*it is missing, and entry 7 exists"):
            act()
    store.create(entry_key(6), lost)
    assert add(behind, "new").number == 8


@no_majority
@pytest.mark.usefixtures("snapshots_are_close")
@pytest.mark.parametrize("key", [entry_key(9), entry_key(10), snapshot.key(FOLDER, 8)])
@pytest.mark.parametrize("kind", ["cut", "flipped", "misplaced"])
def test_a_damaged_object_of_the_one_store_is_named_and_tells_what_to_do(journal, store, key, kind):
    fill(journal, 10)
    data = store.read(key)
    other = store.read(entry_key(7))
    store.put(key, {"cut": data[:-1], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "misplaced": other}[kind])
    [found] = journal.objects.damage(0)
    assert (found.key, found.good) == (key, None)
    assert "restore it from a backup, or rebuild the log" in found.detail
    assert journal.objects.repair(0) == []
    if key != snapshot.key(FOLDER, 8):  # before it lies another one, and the entries
        with pytest.raises(CorruptObject, match=key):
            open_list(another(store)).refresh()
        with pytest.raises(CorruptObject, match=key):
            add(open_list(another(store)), "new")


@pytest.mark.parametrize("name", ["4913", "9" * 21])
def test_a_file_of_somebody_in_the_place_of_entries_is_no_entry(journal, store, name):
    fill(journal, 2)
    for each in store.inner if isinstance(store, ThreeStores) else [store]:
        each.create(f"{ENTRIES}{name}", b"somebody's")
    opened = open_list(another(store))
    assert opened.refresh() == journal.state
    assert add(opened, "book").number == 3


def test_the_newest_snapshot_that_is_damaged_gives_way_to_the_one_before(journal, store, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    fill(journal, 10)
    store.put(f"{SNAPSHOTS}{newest_first(8)}", b"damaged")
    assert open_list(another(store)).refresh() == journal.state


@no_majority
@pytest.mark.usefixtures("snapshots_are_close")
def test_nothing_is_trimmed_by_a_damaged_snapshot(journal, store):
    fill(journal, KEPT + EVERY)
    oldest = snapshot.key(FOLDER, 2 * EVERY)
    whole, before = store.read(oldest), len(store.keys())
    store.put(oldest, whole[:-1])
    with pytest.raises(CorruptObject, match=oldest):
        trimming.trim(journal)
    assert len(store.keys()) == before
    store.put(oldest, whole)
    assert trimming.trim(journal) > 0


@no_majority
def test_an_entry_that_was_damaged_before_its_writer_got_the_answer_leaves_the_outcome_unknown(journal, store):
    fill(journal, 2)
    store.lose_answers(ENTRIES, meanwhile=lambda: store.put(entry_key(3), store.read(entry_key(3))[:-1]))
    with pytest.raises(OutcomeUnknown, match=f"{number(3)}.*it may be the one that was just proposed"):
        add(journal, "book")
