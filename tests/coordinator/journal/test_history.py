"""The versions and the history of a journal: as far back as trimming left them, and no damage is skipped."""

import msgspec
import pytest

from pyspark_log_coordinator.journal import snapshot, trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.replay import EntryMissing, Replay
from pyspark_log_storage.errors import CorruptObject, UnknownVersion
from pyspark_log_storage.layout import newest_first, number
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import ItemAdded, open_list
from tests.support.coordinator.journal_objects import (
    EVERY,
    KEPT,
    SNAPSHOTS,
    another,
    entries_in,
    entry_key,
    fill,
    one_store,
    snapshots_in,
)
from tests.support.coordinator.spares import lose_both, replace_both, spare_of
from tests.support.elsewhere import PlainStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


# Versions


def test_every_kept_version_is_the_state_as_it_was(store):
    journal = open_list(store)
    fill(journal, 50)
    trimming.trim(journal)
    for n in range(36, 51):
        assert state_at(journal, n).items == journal.state.items[:n]


def test_all_versions_are_kept_before_the_first_trimming(store):
    journal = open_list(store)
    fill(journal, 20)
    for n in range(1, 21):
        assert state_at(journal, n).items == journal.state.items[:n]


@pytest.mark.parametrize("version", [-1, 0, 1, 35, 51])
def test_a_version_that_is_not_kept_is_an_error_that_names_those_that_are(store, version):
    journal = open_list(store)
    fill(journal, 50)
    trimming.trim(journal)
    with pytest.raises(UnknownVersion, match="versions 36 to 50 are kept"):
        state_at(journal, version)


@one_store
def test_a_version_whose_snapshot_an_interrupted_trimming_left_to_a_damaged_spare_is_not_kept(store):
    journal = open_list(store)
    fill(journal, KEPT + EVERY)
    first, second, *_ = snapshots_in(store)
    for n in range(1, first + 1):
        lose_both(store, entry_key(n))
    key = f"{SNAPSHOTS}{newest_first(first)}"
    store.delete(key)
    store.put(spare_of(key), b"damaged")
    with pytest.raises(UnknownVersion, match=f"versions {second} to"):
        state_at(journal, first)


@one_store
def test_a_version_whose_entry_an_interrupted_trimming_left_to_a_damaged_spare_is_not_kept(store):
    journal = open_list(store)
    fill(journal, KEPT)
    oldest = snapshots_in(store)[0]
    store.delete(entry_key(1))
    store.put(spare_of(entry_key(1)), b"damaged")
    with pytest.raises(UnknownVersion, match=f"versions {oldest} to"):
        state_at(journal, 1)


@one_store
def test_the_history_begins_after_an_entry_that_an_interrupted_trimming_left_to_a_damaged_spare(store):
    journal = open_list(store)
    fill(journal, KEPT)
    oldest = snapshots_in(store)[0]
    store.delete(entry_key(1))
    store.put(spare_of(entry_key(1)), b"damaged")
    assert [n for n, *_ in history(journal)] == list(range(oldest + 1, KEPT + 1))


@one_store
def test_an_entry_that_the_oldest_kept_snapshot_does_not_replace_is_missed(store):
    journal = open_list(store)
    fill(journal, KEPT)
    oldest = snapshots_in(store)[0]
    store.delete(entry_key(oldest + 1))
    store.put(spare_of(entry_key(oldest + 1)), b"damaged")
    with pytest.raises(EntryMissing):
        list(history(journal))


def test_asking_for_a_version_changes_nothing(store):
    journal = open_list(store)
    fill(journal, 50)
    state_at(journal, 40)
    assert (journal.number, len(journal.state.items)) == (50, 50)


def test_an_interrupted_trimming_and_a_void_entry_in_its_slot_are_no_damage(store):
    journal, stranger = open_list(store), PlainStore()
    fill(journal, 3 * KEPT)
    kept = {n: store.read(entry_key(n)) for n in entries_in(store)}
    trimming.trim(journal)
    fill(open_list(stranger), 1, "of a suspended process")
    # As if only the first entry had gone, and then somebody had written into its slot.
    for n in set(kept) - set(entries_in(store)):
        store.create(entry_key(n), stranger.read(entry_key(1)) if n == 1 else kept[n])
    oldest = snapshots_in(store)[0]
    # The void entry follows the beginning; what shows is that it is not the one that the journal knows.
    assert [n for n, *_ in history(journal)] == list(range(oldest + 1, 3 * KEPT + 1))
    with pytest.raises(UnknownVersion):
        state_at(journal, oldest - 1)


def test_an_entry_that_a_suspended_process_writes_to_a_slot_trimmed_during_the_read_is_no_version(store, monkeypatch):
    journal, suspended = open_list(store), open_list(another(store))
    fill(journal, 1)
    suspended.refresh()
    fill(journal, KEPT)
    take_next = Replay.take_next

    def trimmed_and_filled_first(past):
        if past.number == 1:
            monkeypatch.setattr(Replay, "take_next", take_next)
            trimming.trim(open_list(another(store)))
            void = suspended._encode([ItemAdded("void")])
            assert suspended.entries.propose(2, void) == void
        return take_next(past)

    monkeypatch.setattr(Replay, "take_next", trimmed_and_filled_first)
    with pytest.raises(UnknownVersion):
        state_at(journal, 2)


def test_history_is_every_entry_from_the_first_that_is_kept(store):
    journal = open_list(store)
    fill(journal, 50)
    assert [n for n, *_ in history(journal)] == list(range(1, 51))
    trimming.trim(journal)
    told = list(history(journal))
    assert [n for n, *_ in told] == list(range(37, 51))
    assert [step.state.items for step in told] == [journal.state.items[:n] for n in range(37, 51)]


@pytest.mark.parametrize("trims", [False, True])
def test_history_after_an_entry_begins_with_the_next_one_that_is_kept(store, trims):
    journal = open_list(store)
    fill(journal, 50)
    if trims:
        trimming.trim(journal)
    first = 37 if trims else 1
    for after in range(52):
        told = list(history(journal, after))
        assert [step.number for step in told] == list(range(max(first, after + 1), 51))
        assert [step.state.items for step in told] == [journal.state.items[: step.number] for step in told]


def test_a_history_that_continues_at_the_newest_known_entry_is_that_of_a_new_look(store):
    journal = open_list(store)
    fill(journal, 5)
    later = open_list(store)
    later.refresh()
    fill(journal, 60)
    expected = [(step.number, step.events, step.state) for step in history(open_list(store), 5)]
    assert [(step.number, step.events, step.state) for step in history(later, 5)] == expected
    assert [number for number, _, _ in expected] == list(range(6, 66))
    assert list(history(later, 65)) == []


def test_a_history_that_continues_goes_on_after_what_was_trimmed_meanwhile(store):
    journal = open_list(store)
    fill(journal, 5)
    later = open_list(store)
    later.refresh()
    fill(journal, 60)
    trimming.trim(journal)
    found = [step.number for step in history(later, 5)]
    assert found == [step.number for step in history(open_list(store))]
    assert found[0] > 6


def test_a_step_has_the_time_at_which_its_entry_was_written(store):
    clock = fake_environment()
    journal = open_list(store, clock)
    spans = []
    for _ in range(5):
        begun = clock.now_ms()
        fill(journal, 1)
        spans.append((begun, clock.now_ms()))
    for step, (begun, done) in zip(history(journal), spans, strict=True):
        assert begun < step.time_ms < done


def test_a_history_trimmed_while_it_is_read_continues_after_the_gap(store):
    journal = open_list(store)
    fill(journal, 50)
    told = []
    for n, _, state, _ in history(journal):
        told.append(n)
        if n == 10:
            trimming.trim(open_list(another(store)))
        assert state.items == journal.state.items[:n]
    assert told == [*range(1, 11), *range(37, 51)]


@pytest.mark.parametrize("damaged", [1, 10, 30])
def test_history_does_not_step_over_damage(store, damaged):
    journal = open_list(store)
    fill(journal, 50)
    data = bytearray(store.read(entry_key(damaged)))
    data[-1] ^= 1
    replace_both(store, entry_key(damaged), bytes(data))
    with pytest.raises(CorruptObject, match=number(damaged)):
        list(history(journal))


def test_history_of_which_the_oldest_snapshot_is_damaged_is_an_error_that_names_it(store):
    journal = open_list(store)
    fill(journal, 50)
    trimming.trim(journal)
    key = f"{SNAPSHOTS}{newest_first(36)}"
    replace_both(store, key, store.read(key)[:-1])
    with pytest.raises(CorruptObject, match=key):
        list(history(journal))


def test_history_holds_snapshots_against_the_entries(store):
    journal = open_list(store)
    fill(journal, 10)
    forged = snapshot.Snapshot(8, [b"x" * 16], msgspec.Raw(msgspec.msgpack.encode({"items": []})))
    replace_both(store, f"{SNAPSHOTS}{newest_first(8)}", snapshot.encode(forged))
    with pytest.raises(CorruptObject, match="its hashes differ"):
        list(history(journal))


def test_history_holds_the_state_of_snapshots_against_the_entries(store):
    journal = open_list(store)
    fill(journal, 10)
    key = f"{SNAPSHOTS}{newest_first(8)}"
    whole = snapshot.decode(store.read(key), key)
    forged = snapshot.Snapshot(8, whole.hashes, msgspec.Raw(msgspec.msgpack.encode({"items": ["other"]})))
    replace_both(store, key, snapshot.encode(forged))
    with pytest.raises(CorruptObject, match=f"{key}.*its state differs"):
        list(history(journal))
