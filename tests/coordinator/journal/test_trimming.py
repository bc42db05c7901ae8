"""A journal that is trimmed: nobody who slept believes a slot that was collected, or shows what is stale."""

import itertools
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, replay, snapshot
from pyspark_log_coordinator.journal.history import history, state_at
from pyspark_log_coordinator.journal.journal import SNAPSHOTS_KEPT
from pyspark_log_storage.errors import CorruptObject, OutcomeUnknown, StoreError, StoreUnavailable, UnknownVersion
from pyspark_log_storage.layout import born_name, newest_first, number
from pyspark_log_storage.local import LocalStore
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.item_list import FOLDER, AddItems, open_list
from tests.coordinator.local_stores import begin, open_at
from tests.coordinator.spares import is_spare, replace_both
from tests.coordinator.three_stores import ThreeStores
from tests.coordinator.trim_worker import STOP
from tests.coordinator.troubled_store import TroubledStore

ROOT = Path(__file__).parents[3]
ENTRIES, SNAPSHOTS, MANIFESTS = f"{FOLDER}entries/", f"{FOLDER}snapshots/", f"{FOLDER}manifests/"
EVERY = 4
KEPT = EVERY * SNAPSHOTS_KEPT
PROCESSES = 10
EACH = 100


@pytest.fixture(autouse=True)
def snapshots_are_close(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)


one_store = pytest.mark.parametrize("store", [TroubledStore], indirect=True, ids=["one store"])


@pytest.fixture(params=[TroubledStore, ThreeStores], ids=["one store", "three stores"])
def store(request):
    return request.param()


def another(store):
    """Return the same store as another process sees it, with no trouble of its own."""
    return type(store)(store.inner)


def fill(journal, count, name="item"):
    """Add `count` items, one entry each."""
    start = len(journal.refresh().items)
    for i in range(start, start + count):
        journal.submit(AddItems((f"{name}-{i}",)))


def add(journal, item):
    """Add one more item; return the number of the entry."""
    return journal.submit(AddItems((item,))).number


def fill_and_trim(store, count=3 * KEPT, name="other"):
    """Do what other processes do while one sleeps."""
    journal = open_list(another(store))
    fill(journal, count, name)
    assert journal.trim() > 0


def entries_in(store):
    """Return the numbers of the entries that there are."""
    return [int(key.removeprefix(ENTRIES)) for key in store.list(ENTRIES)]


def snapshots_in(store):
    return sorted(snapshot.decode(store.read(key), key).number for key in store.list(SNAPSHOTS))


def entry_key(n):
    return f"{ENTRIES}{number(n)}"


# What trimming leaves


def test_the_newest_snapshots_stay_with_the_entries_from_the_oldest_of_them_on(store):
    journal = open_list(store)
    fill(journal, 50)
    journal.trim()
    assert snapshots_in(store) == [36, 40, 44, 48]
    assert entries_in(store) == list(range(36, 51))


def test_a_trimmed_journal_opens_as_it_was(store):
    journal = open_list(store)
    fill(journal, 50)
    journal.trim()
    opened = open_list(another(store))
    assert (opened.refresh(), opened.number) == (journal.state, 50)


def test_a_trimmed_journal_goes_on(store):
    journal = open_list(store)
    for _ in range(5):
        fill(journal, 30)
        journal.trim()
    assert len(open_list(another(store)).refresh().items) == 150
    assert len([key for key in store.list("") if not is_spare(key)]) <= KEPT + EVERY + SNAPSHOTS_KEPT


def test_trimming_says_how_much_went_and_a_second_time_nothing_goes(store):
    journal = open_list(store)
    fill(journal, 50)
    before = len(store.keys())
    assert journal.trim() == before - len(store.keys())
    assert journal.trim() == 0


@pytest.mark.parametrize("count", [0, 1, EVERY, KEPT - 1])
def test_a_journal_with_few_snapshots_is_left_alone(store, count):
    journal = open_list(store)
    fill(journal, count)
    before = list(store.list(""))
    assert journal.trim() == 0
    assert list(store.list("")) == before


@one_store
def test_snapshots_go_first_and_then_entries_in_their_order_and_then_manifests(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    journal = open_list(store)
    fill(journal, 3 * KEPT)
    gone, delete = [], store.delete

    def noted(key):
        gone.append(key)
        delete(key)

    monkeypatch.setattr(store, "delete", noted)
    assert journal.trim() == len(gone)
    assert [is_spare(key) for key in gone] == [False, True] * (len(gone) // 2)  # each object, and then its spare
    gone = gone[::2]
    kinds = [next(each for each in (SNAPSHOTS, ENTRIES, MANIFESTS) if key.startswith(each)) for key in gone]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [SNAPSHOTS, ENTRIES, MANIFESTS]
    slots = [key for key in gone if key.startswith(ENTRIES)]
    assert slots == sorted(slots)
    assert len(slots) > EVERY


def test_manifests_go_with_their_entries_and_never_before(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    journal = open_list(store)
    for _ in range(60):
        fill(journal, 1)
        journal.trim()
        named = {journal_entry.decode(store.read(key), key).manifest.name for key in store.list(ENTRIES)}
        there = {key.removeprefix(MANIFESTS) for key in store.list(MANIFESTS)}
        assert there == named
    assert open_list(another(store)).refresh() == journal.state


def test_a_manifest_that_is_written_and_not_named_yet_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    journal, slow = open_list(another(store)), open_list(store)
    fill(journal, 50)

    def act():
        assert open_list(another(store)).trim() > 0

    store.be_slow(ENTRIES, meanwhile=act)
    slow.submit(AddItems(("late",)))
    assert open_list(another(store)).refresh().items[-1] == "late"


# Writers that slept


def test_who_slept_does_not_believe_an_entry_on_a_slot_that_was_collected(store):
    sleeper = open_list(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    outcome = sleeper.submit(AddItems(("late",)))
    assert 6 in entries_in(store)  # the sleeper's, which means nothing
    assert outcome.number == 5 + 3 * KEPT + 1
    state = open_list(another(store)).refresh()
    assert state == outcome.state
    assert state.items.count("late") == 1
    assert state.items[-1] == "late"


def test_who_slept_and_finds_that_another_did_it_writes_nothing_more(store):
    sleeper = open_list(store)
    fill(sleeper, 5)

    def act():
        open_list(another(store)).submit(AddItems(("late",)))
        fill_and_trim(store)

    store.be_slow(ENTRIES, meanwhile=act)
    outcome = sleeper.submit(AddItems(("late",)))
    assert outcome.events == []
    assert open_list(another(store)).refresh().items.count("late") == 1


def test_who_slept_after_its_entry_was_written_finds_that_it_counted(store):
    sleeper = open_list(store)
    fill(sleeper, 5)
    # The answer is lost, and the slot is collected before it is asked again.
    store.lose_answers(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    outcome = sleeper.submit(AddItems(("late",)))
    assert outcome.number == 6
    state = open_list(another(store)).refresh()
    assert state.items.count("late") == 1
    assert state.items[5] == "late"


def test_who_slept_longer_than_hashes_are_kept_does_not_know(store, monkeypatch):
    monkeypatch.setattr(replay, "HASHES_MAX", 10)
    sleeper = open_list(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    with pytest.raises(OutcomeUnknown, match=r"slept.*look for its effect"):
        sleeper.submit(AddItems(("late",)))
    # By its effect it is found out: the item is not there, and the command is given once more.
    assert sleeper.submit(AddItems(("late",))).state.items.count("late") == 1


def test_an_entry_that_means_nothing_goes_with_the_next_trimming(store):
    sleeper = open_list(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    sleeper.submit(AddItems(("late",)))
    fill_and_trim(store)
    assert min(entries_in(store)) > 5


@one_store
@pytest.mark.parametrize("error", [StoreUnavailable, StoreError])
def test_a_store_that_fails_after_the_entry_was_written_raises_nothing_that_is_tried_again(store, error, monkeypatch):
    journal = open_list(store)
    fill(journal, 2)
    creating = store.create

    def create_and_break(key, data):
        created = creating(key, data)

        def broken(*_):
            raise error("the url", key, "the disk went away")

        monkeypatch.setattr(store, "list", broken)
        return created

    monkeypatch.setattr(store, "create", create_and_break)
    with pytest.raises(OutcomeUnknown, match="went away") as caught:
        journal.submit(AddItems(("book",)))
    assert not caught.value.retriable


@one_store
def test_a_store_that_fails_for_a_moment_after_the_entry_was_written_does_not_fail_the_command(store, monkeypatch):
    journal = open_list(store)
    fill(journal, 2)
    listing, failures = store.list, [StoreUnavailable("the url", "x", "a moment")] * 2

    def failing_twice(prefix, after=""):
        if failures and 3 in entries_in(store.inner):
            raise failures.pop()
        return listing(prefix, after)

    monkeypatch.setattr(store, "list", failing_twice)
    assert journal.submit(AddItems(("book",))).number == 3
    assert failures == []


# Readers that slept


@pytest.mark.parametrize("asleep_at", [0, 1, 5, EVERY, KEPT])
def test_a_reader_that_slept_shows_the_newest(store, asleep_at):
    reader, writer = open_list(store), open_list(another(store))
    fill(writer, asleep_at)
    reader.refresh()
    fill_and_trim(store)
    assert reader.refresh() == open_list(another(store)).refresh()
    assert reader.number == asleep_at + 3 * KEPT


def test_a_reader_that_slept_and_cannot_read_the_snapshot_keeps_what_it_knew_until_it_can(store, monkeypatch):
    reader = open_list(store)
    fill(open_list(another(store)), 2)
    known = reader.refresh()
    fill_and_trim(store)
    with monkeypatch.context() as away:

        def refuse(*_):
            raise StoreUnavailable("the url", "x", "a moment")

        away.setattr(reader._objects, "read", refuse)
        with pytest.raises(StoreUnavailable):
            reader.refresh()
        assert (reader.state, reader.number) == (known, 2), "who looks at it meanwhile takes it for what it was"
    assert reader.refresh() == open_list(another(store)).refresh() != known


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_reader_that_slept_does_not_show_what_another_sleeper_wrote_on_collected_slots(store, count):
    writer, reader = open_list(another(store)), open_list(another(store))
    fill(writer, 5)
    reader.refresh()
    fifth = journal_entry.digest(store.read(entry_key(5)))
    fill_and_trim(store)
    # Entries that chain well to what both sleepers knew, on slots that were collected.
    previous = fifth
    for slot in range(6, 6 + count):
        events = msgspec.Raw(msgspec.msgpack.encode([["ItemAdded", f"void-{slot}"]]))
        data = journal_entry.encode(journal_entry.Entry("0" * 32, 0, previous, events, None))
        assert store.create(entry_key(slot), data)
        previous = journal_entry.digest(data)
    assert reader.refresh() == open_list(another(store)).refresh()
    assert not any(item.startswith("void") for item in reader.state.items)


def test_a_reader_that_opens_while_others_trim_sees_a_whole_state(store):
    journal = open_list(another(store))
    fill(journal, 50)
    store.be_slow_to_read(SNAPSHOTS, meanwhile=lambda: fill_and_trim(store))
    reader = open_list(store)
    assert reader.refresh() == open_list(another(store)).refresh()
    assert len(reader.state.items) == 50 + 3 * KEPT


# Versions


def test_every_kept_version_is_the_state_as_it_was(store):
    journal = open_list(store)
    fill(journal, 50)
    journal.trim()
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
    journal.trim()
    with pytest.raises(UnknownVersion, match="versions 36 to 50 are kept"):
        state_at(journal, version)


def test_asking_for_a_version_changes_nothing(store):
    journal = open_list(store)
    fill(journal, 50)
    state_at(journal, 40)
    assert (journal.number, len(journal.state.items)) == (50, 50)


def test_a_trimming_that_is_cut_short_and_a_sleeper_in_its_slot_are_no_damage(store):
    journal, stranger = open_list(store), MemoryStore()
    fill(journal, 3 * KEPT)
    kept = {n: store.read(entry_key(n)) for n in entries_in(store)}
    journal.trim()
    fill(open_list(stranger), 1, "of one who slept")
    # As if only the first entry had gone, and then somebody had written into its slot.
    for n in set(kept) - set(entries_in(store)):
        store.create(entry_key(n), stranger.read(entry_key(1)) if n == 1 else kept[n])
    oldest = snapshots_in(store)[0]
    # What cannot be told is that the first one is void: only the second shows it.
    assert [n for n, _, _ in history(journal)] == [1, *range(oldest + 1, 3 * KEPT + 1)]
    with pytest.raises(UnknownVersion):
        state_at(journal, oldest - 1)


def test_history_is_every_entry_from_the_first_that_is_kept(store):
    journal = open_list(store)
    fill(journal, 50)
    assert [n for n, _, _ in history(journal)] == list(range(1, 51))
    journal.trim()
    told = list(history(journal))
    assert [n for n, _, _ in told] == list(range(37, 51))
    assert [state.items for n, _, state in told] == [journal.state.items[:n] for n in range(37, 51)]


def test_history_that_is_trimmed_while_it_is_read_goes_on_behind_the_gap(store):
    journal = open_list(store)
    fill(journal, 50)
    told = []
    for n, _, state in history(journal):
        told.append(n)
        if n == 10:
            open_list(another(store)).trim()
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
    journal.trim()
    key = f"{SNAPSHOTS}{newest_first(36)}"
    replace_both(store, key, store.read(key)[:-1])
    with pytest.raises(CorruptObject, match=key):
        list(history(journal))


def test_history_holds_snapshots_against_the_entries(store):
    journal = open_list(store)
    fill(journal, 10)
    forged = snapshot.Snapshot(8, [b"x" * 16], msgspec.Raw(msgspec.msgpack.encode({"items": []})))
    replace_both(store, f"{SNAPSHOTS}{newest_first(8)}", snapshot.encode(forged))
    with pytest.raises(CorruptObject, match="another history"):
        list(history(journal))


def test_history_holds_the_state_of_snapshots_against_the_entries(store):
    journal = open_list(store)
    fill(journal, 10)
    key = f"{SNAPSHOTS}{newest_first(8)}"
    whole = snapshot.decode(store.read(key), key)
    forged = snapshot.Snapshot(8, whole.hashes, msgspec.Raw(msgspec.msgpack.encode({"items": ["other"]})))
    replace_both(store, key, snapshot.encode(forged))
    with pytest.raises(CorruptObject, match=f"{key}.*another state"):
        list(history(journal))


# The end of a journal


def test_of_a_journal_that_is_buried_the_last_entry_and_its_snapshot_stay(store):
    journal = open_list(store)
    fill(journal, 50)
    store.create(f"{MANIFESTS}{born_name(3, 'abc')}", b"of an attempt that lost")
    before = store.keys()
    went = journal.bury() + journal.bury()  # a store may get the snapshot only after the first
    assert went == len([key for key in before if key not in journal.end_keys()])
    assert set(store.keys()) <= set(journal.end_keys())
    assert open_list(another(store)).refresh() == journal.state
    assert journal.bury() == 0
    assert open_list(another(store)).refresh() == journal.state


@pytest.mark.parametrize("asleep_at", [0, 1, 5, 20, 49, 50])
def test_who_slept_through_a_burial_finds_the_end(store, asleep_at):
    journal, sleeper = open_list(another(store)), open_list(another(store))
    fill(journal, asleep_at)
    sleeper.refresh()
    fill(journal, 50 - asleep_at)
    journal.bury()
    assert sleeper.refresh() == journal.state
    assert add(sleeper, "late") == 51


def test_an_entry_that_a_sleeper_writes_after_a_burial_does_not_count(store):
    sleeper = open_list(store)
    fill(sleeper, 5)

    def meanwhile():
        other = open_list(another(store))
        fill(other, 20, "other")
        other.bury()

    store.be_slow(ENTRIES, meanwhile=meanwhile)
    assert add(sleeper, "late") == 26
    assert len(sleeper.state.items) == 26


# Power failures


@settings(max_examples=100, deadline=None)
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
            journal.trim()
        gone = sorted(set(before) - set(store.list("")))
        for key in data.draw(st.lists(st.sampled_from(gone), unique=True)) if gone else []:
            store.create(key, before[key])
        expected = journal.refresh().items
        assert reader.refresh().items == expected
        opened = open_list(another(store))
        assert opened.refresh().items == expected
        told = [state.items for _, _, state in history(opened)]
        assert not told or told[-1] == expected
        for version in range(max(1, len(expected) - 3), len(expected) + 1):
            assert state_at(opened, version).items == expected[:version]
        fill(opened, 1, "after")
        opened.trim()
        assert journal.refresh().items == (*expected, f"after-{len(expected)}")


# Many processes


@pytest.mark.parametrize("stores", [1, 3])
def test_ten_processes_append_while_another_trims_as_fast_as_it_can(tmp_path, stores):
    roots = [str(tmp_path / f"root-{number}") for number in range(stores)]
    begin(roots)
    command = [sys.executable, "-m", "tests.coordinator.trim_worker", ",".join(roots)]
    trimmer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    workers = [subprocess.Popen([*command, f"w{i}", str(EACH)], cwd=ROOT) for i in range(PROCESSES)]
    assert [worker.wait() for worker in workers] == [0] * PROCESSES
    LocalStore(roots[0]).create(STOP, b"")
    trimmed, _ = trimmer.communicate()
    assert trimmer.returncode == 0
    assert int(trimmed) > PROCESSES * EACH // 2

    state = open_at(roots).refresh()
    assert len(state.items) == PROCESSES * EACH
    for i in range(PROCESSES):
        assert [item for item in state.items if item.startswith(f"w{i}-")] == [f"w{i}-{n}" for n in range(EACH)]


def test_strange_files_beside_entries_and_manifests_are_left_alone():
    store = MemoryStore()
    strange = [f"{folder}{name}" for folder in (ENTRIES, MANIFESTS, SNAPSHOTS) for name in (".nfs1", "notes.txt")]
    for key in strange:
        store.create(key, b"mine")
    journal = open_list(store)
    fill(journal, 50)
    assert journal.trim() > 0
    assert [n for n, _, _ in history(journal)] == list(range(37, 51))
    assert set(strange) <= set(store.list(""))
