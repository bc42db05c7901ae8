"""The versions and the history of a journal: as far back as trimming left them, and no damage is skipped."""

import msgspec
import pytest

from pyspark_log_coordinator.journal import snapshot, trimming
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_storage.errors import CorruptObject, UnknownVersion
from pyspark_log_storage.layout import newest_first, number
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import open_list
from tests.support.coordinator.journal_objects import (
    KEPT,
    SNAPSHOTS,
    another,
    entries_in,
    entry_key,
    fill,
    snapshots_in,
)
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


# Versions


@pytest.mark.parametrize("trims", [False, True])
def test_every_kept_version_is_the_state_as_it_was_and_another_is_an_error_that_names_those(store, trims):
    journal = open_list(store)
    fill(journal, 50)
    if trims:
        trimming.trim(journal)
    oldest = 36 if trims else 1
    for n in range(oldest, 51):
        assert state_at(journal, n).items == journal.state.items[:n]
    for version in {-1, 0, oldest - 1, 51}:
        with pytest.raises(UnknownVersion, match=f"versions {oldest} to 50 are kept"):
            state_at(journal, version)
    assert (journal.number, len(journal.state.items)) == (50, 50)


def test_an_interrupted_trimming_and_the_entry_of_a_suspended_process_in_its_slot_are_no_damage(store):
    journal, stranger = open_list(store), MemoryStore()
    fill(journal, 3 * KEPT)
    kept = {n: store.read(entry_key(n)) for n in entries_in(store)}
    trimming.trim(journal)
    fill(open_list(stranger), 1, "of a suspended process")
    # As if only the first entry had gone, and then somebody had written into its slot.
    for n in set(kept) - set(entries_in(store)):
        store.create(entry_key(n), stranger.read(entry_key(1)) if n == 1 else kept[n])
    oldest = snapshots_in(store)[0]
    # It follows the beginning; what shows is that the next entry does not follow it.
    assert [n for n, *_ in history(journal)] == list(range(oldest + 1, 3 * KEPT + 1))
    with pytest.raises(UnknownVersion):
        state_at(journal, oldest - 1)


@pytest.mark.parametrize("trims", [False, True])
def test_history_after_an_entry_begins_with_the_next_one_that_is_kept(store, trims):
    journal = open_list(store)
    fill(journal, 50)
    if trims:
        trimming.trim(journal)
    first = 37 if trims else 1
    for after in (0, 1, 35, 36, 37, 49, 50, 51):
        told = list(history(journal, after))
        assert [step.number for step in told] == list(range(max(first, after + 1), 51))
        assert [step.state.items for step in told] == [journal.state.items[: step.number] for step in told]


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
    for n, _, state, *_ in history(journal):
        told.append(n)
        if n == 10:
            trimming.trim(open_list(another(store)))
        assert state.items == journal.state.items[:n]
    assert told == [*range(1, 13), *range(37, 51)], "what was read up to a snapshot is known to count"


def test_a_history_whose_entries_were_all_trimmed_since_its_reader_looked_is_empty_and_no_damage(store):
    fill(open_list(store), 2)
    behind, journal = open_list(another(store)), open_list(store)
    behind.refresh()
    fill(journal, 48)
    trimming.trim(journal)
    assert list(history(behind, until=2)) == []


@pytest.mark.parametrize("damaged", [1, 10, 30])
def test_history_does_not_step_over_damage(store, damaged):
    journal = open_list(store)
    fill(journal, 50)
    data = bytearray(store.read(entry_key(damaged)))
    data[-1] ^= 1
    store.put(entry_key(damaged), bytes(data))
    with pytest.raises(CorruptObject, match=number(damaged)):
        list(history(journal))


@pytest.mark.parametrize("what", ["hash", "state"])
def test_history_holds_snapshots_against_the_entries(store, what):
    journal = open_list(store)
    fill(journal, 10)
    key = f"{SNAPSHOTS}{newest_first(8)}"
    whole = snapshot.decode(store.read(key), key)
    other = {"hash": b"x" * 16, "state": msgspec.Raw(msgspec.msgpack.encode({"items": ["other"]}))}
    forged = snapshot.Snapshot(8, *({"hash": whole.hash, "state": whole.state} | {what: other[what]}).values())
    store.put(key, snapshot.encode(forged))
    with pytest.raises(CorruptObject, match=f"{key}.*its {what} differs"):
        list(history(journal))
