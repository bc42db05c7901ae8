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
from tests.coordinator.local_stores import begin, open_at
from tests.coordinator.shelf import FOLDER, Place, open_shelf
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


def fill(shelf, count, name="thing"):
    """Put `count` things on the shelf, one entry each."""
    start = len(shelf.refresh().things)
    for i in range(start, start + count):
        shelf.submit(Place((f"{name}-{i}",)))


def place(shelf, thing):
    """Put one more thing on the shelf; return the number of the entry."""
    return shelf.submit(Place((thing,))).number


def fill_and_trim(store, count=3 * KEPT, name="other"):
    """Do what other processes do while one sleeps."""
    shelf = open_shelf(another(store))
    fill(shelf, count, name)
    assert shelf.trim() > 0


def entries_in(store):
    """Return the numbers of the entries that there are."""
    return [int(key.removeprefix(ENTRIES)) for key in store.list(ENTRIES)]


def snapshots_in(store):
    return sorted(snapshot.decode(store.read(key), key).number for key in store.list(SNAPSHOTS))


def entry_key(n):
    return f"{ENTRIES}{number(n)}"


# What trimming leaves


def test_the_newest_snapshots_stay_with_the_entries_from_the_oldest_of_them_on(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    shelf.trim()
    assert snapshots_in(store) == [36, 40, 44, 48]
    assert entries_in(store) == list(range(36, 51))


def test_a_trimmed_journal_opens_as_it_was(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    shelf.trim()
    opened = open_shelf(another(store))
    assert (opened.refresh(), opened.number) == (shelf.state, 50)


def test_a_trimmed_journal_goes_on(store):
    shelf = open_shelf(store)
    for _ in range(5):
        fill(shelf, 30)
        shelf.trim()
    assert len(open_shelf(another(store)).refresh().things) == 150
    assert len([key for key in store.list("") if not is_spare(key)]) <= KEPT + EVERY + SNAPSHOTS_KEPT


def test_trimming_says_how_much_went_and_a_second_time_nothing_goes(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    before = len(store.keys())
    assert shelf.trim() == before - len(store.keys())
    assert shelf.trim() == 0


@pytest.mark.parametrize("count", [0, 1, EVERY, KEPT - 1])
def test_a_journal_with_few_snapshots_is_left_alone(store, count):
    shelf = open_shelf(store)
    fill(shelf, count)
    before = list(store.list(""))
    assert shelf.trim() == 0
    assert list(store.list("")) == before


@one_store
def test_snapshots_go_first_and_then_entries_in_their_order_and_then_manifests(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    shelf = open_shelf(store)
    fill(shelf, 3 * KEPT)
    gone, delete = [], store.delete

    def noted(key):
        gone.append(key)
        delete(key)

    monkeypatch.setattr(store, "delete", noted)
    assert shelf.trim() == len(gone)
    assert [is_spare(key) for key in gone] == [False, True] * (len(gone) // 2)  # each object, and then its spare
    gone = gone[::2]
    kinds = [next(each for each in (SNAPSHOTS, ENTRIES, MANIFESTS) if key.startswith(each)) for key in gone]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [SNAPSHOTS, ENTRIES, MANIFESTS]
    slots = [key for key in gone if key.startswith(ENTRIES)]
    assert slots == sorted(slots)
    assert len(slots) > EVERY


def test_manifests_go_with_their_entries_and_never_before(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    shelf = open_shelf(store)
    for _ in range(60):
        fill(shelf, 1)
        shelf.trim()
        named = {journal_entry.decode(store.read(key), key).manifest.name for key in store.list(ENTRIES)}
        there = {key.removeprefix(MANIFESTS) for key in store.list(MANIFESTS)}
        assert there == named
    assert open_shelf(another(store)).refresh() == shelf.state


def test_a_manifest_that_is_written_and_not_named_yet_is_left_alone(store, monkeypatch):
    monkeypatch.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
    shelf, slow = open_shelf(another(store)), open_shelf(store)
    fill(shelf, 50)

    def act():
        assert open_shelf(another(store)).trim() > 0

    store.be_slow(ENTRIES, meanwhile=act)
    slow.submit(Place(("late",)))
    assert open_shelf(another(store)).refresh().things[-1] == "late"


# Writers that slept


def test_who_slept_does_not_believe_an_entry_on_a_slot_that_was_collected(store):
    sleeper = open_shelf(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    outcome = sleeper.submit(Place(("late",)))
    assert 6 in entries_in(store)  # the sleeper's, which means nothing
    assert outcome.number == 5 + 3 * KEPT + 1
    state = open_shelf(another(store)).refresh()
    assert state == outcome.state
    assert state.things.count("late") == 1
    assert state.things[-1] == "late"


def test_who_slept_and_finds_that_another_did_it_writes_nothing_more(store):
    sleeper = open_shelf(store)
    fill(sleeper, 5)

    def act():
        open_shelf(another(store)).submit(Place(("late",)))
        fill_and_trim(store)

    store.be_slow(ENTRIES, meanwhile=act)
    outcome = sleeper.submit(Place(("late",)))
    assert outcome.events == []
    assert open_shelf(another(store)).refresh().things.count("late") == 1


def test_who_slept_after_its_entry_was_written_finds_that_it_counted(store):
    sleeper = open_shelf(store)
    fill(sleeper, 5)
    # The answer is lost, and the slot is collected before it is asked again.
    store.lose_answers(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    outcome = sleeper.submit(Place(("late",)))
    assert outcome.number == 6
    state = open_shelf(another(store)).refresh()
    assert state.things.count("late") == 1
    assert state.things[5] == "late"


def test_who_slept_longer_than_hashes_are_kept_does_not_know(store, monkeypatch):
    monkeypatch.setattr(replay, "HASHES_MAX", 10)
    sleeper = open_shelf(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    with pytest.raises(OutcomeUnknown, match=r"slept.*look for its effect"):
        sleeper.submit(Place(("late",)))
    # By its effect it is found out: the thing is not there, and the command is given once more.
    assert sleeper.submit(Place(("late",))).state.things.count("late") == 1


def test_an_entry_that_means_nothing_goes_with_the_next_trimming(store):
    sleeper = open_shelf(store)
    fill(sleeper, 5)
    store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    sleeper.submit(Place(("late",)))
    fill_and_trim(store)
    assert min(entries_in(store)) > 5


@one_store
@pytest.mark.parametrize("error", [StoreUnavailable, StoreError])
def test_a_store_that_fails_after_the_entry_was_written_raises_nothing_that_is_tried_again(store, error, monkeypatch):
    shelf = open_shelf(store)
    fill(shelf, 2)
    creating = store.create

    def create_and_break(key, data):
        created = creating(key, data)

        def broken(*_):
            raise error("the url", key, "the disk went away")

        monkeypatch.setattr(store, "list", broken)
        return created

    monkeypatch.setattr(store, "create", create_and_break)
    with pytest.raises(OutcomeUnknown, match="went away") as caught:
        shelf.submit(Place(("book",)))
    assert not caught.value.retriable


@one_store
def test_a_store_that_fails_for_a_moment_after_the_entry_was_written_does_not_fail_the_command(store, monkeypatch):
    shelf = open_shelf(store)
    fill(shelf, 2)
    listing, failures = store.list, [StoreUnavailable("the url", "x", "a moment")] * 2

    def failing_twice(prefix, after=""):
        if failures and 3 in entries_in(store.inner):
            raise failures.pop()
        return listing(prefix, after)

    monkeypatch.setattr(store, "list", failing_twice)
    assert shelf.submit(Place(("book",))).number == 3
    assert failures == []


# Readers that slept


@pytest.mark.parametrize("asleep_at", [0, 1, 5, EVERY, KEPT])
def test_a_reader_that_slept_shows_the_newest(store, asleep_at):
    reader, writer = open_shelf(store), open_shelf(another(store))
    fill(writer, asleep_at)
    reader.refresh()
    fill_and_trim(store)
    assert reader.refresh() == open_shelf(another(store)).refresh()
    assert reader.number == asleep_at + 3 * KEPT


def test_a_reader_that_slept_and_cannot_read_the_snapshot_keeps_what_it_knew_until_it_can(store, monkeypatch):
    reader = open_shelf(store)
    fill(open_shelf(another(store)), 2)
    known = reader.refresh()
    fill_and_trim(store)
    with monkeypatch.context() as away:

        def refuse(*_):
            raise StoreUnavailable("the url", "x", "a moment")

        away.setattr(reader._objects, "read", refuse)
        with pytest.raises(StoreUnavailable):
            reader.refresh()
        assert (reader.state, reader.number) == (known, 2), "who looks at it meanwhile takes it for what it was"
    assert reader.refresh() == open_shelf(another(store)).refresh() != known


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_reader_that_slept_does_not_show_what_another_sleeper_wrote_on_collected_slots(store, count):
    writer, reader = open_shelf(another(store)), open_shelf(another(store))
    fill(writer, 5)
    reader.refresh()
    fifth = journal_entry.digest(store.read(entry_key(5)))
    fill_and_trim(store)
    # Entries that chain well to what both sleepers knew, on slots that were collected.
    previous = fifth
    for slot in range(6, 6 + count):
        events = msgspec.Raw(msgspec.msgpack.encode([["Placed", f"void-{slot}"]]))
        data = journal_entry.encode(journal_entry.Entry("0" * 32, 0, previous, events, None))
        assert store.create(entry_key(slot), data)
        previous = journal_entry.digest(data)
    assert reader.refresh() == open_shelf(another(store)).refresh()
    assert not any(thing.startswith("void") for thing in reader.state.things)


def test_a_reader_that_opens_while_others_trim_sees_a_whole_state(store):
    shelf = open_shelf(another(store))
    fill(shelf, 50)
    store.be_slow_to_read(SNAPSHOTS, meanwhile=lambda: fill_and_trim(store))
    reader = open_shelf(store)
    assert reader.refresh() == open_shelf(another(store)).refresh()
    assert len(reader.state.things) == 50 + 3 * KEPT


# Versions


def test_every_kept_version_is_the_state_as_it_was(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    shelf.trim()
    for n in range(36, 51):
        assert state_at(shelf, n).things == shelf.state.things[:n]


def test_all_versions_are_kept_before_the_first_trimming(store):
    shelf = open_shelf(store)
    fill(shelf, 20)
    for n in range(1, 21):
        assert state_at(shelf, n).things == shelf.state.things[:n]


@pytest.mark.parametrize("version", [-1, 0, 1, 35, 51])
def test_a_version_that_is_not_kept_is_an_error_that_names_those_that_are(store, version):
    shelf = open_shelf(store)
    fill(shelf, 50)
    shelf.trim()
    with pytest.raises(UnknownVersion, match="versions 36 to 50 are kept"):
        state_at(shelf, version)


def test_asking_for_a_version_changes_nothing(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    state_at(shelf, 40)
    assert (shelf.number, len(shelf.state.things)) == (50, 50)


def test_a_trimming_that_is_cut_short_and_a_sleeper_in_its_slot_are_no_damage(store):
    shelf, stranger = open_shelf(store), MemoryStore()
    fill(shelf, 3 * KEPT)
    kept = {n: store.read(entry_key(n)) for n in entries_in(store)}
    shelf.trim()
    fill(open_shelf(stranger), 1, "of one who slept")
    # As if only the first entry had gone, and then somebody had written into its slot.
    for n in set(kept) - set(entries_in(store)):
        store.create(entry_key(n), stranger.read(entry_key(1)) if n == 1 else kept[n])
    oldest = snapshots_in(store)[0]
    # What cannot be told is that the first one is void: only the second shows it.
    assert [n for n, _, _ in history(shelf)] == [1, *range(oldest + 1, 3 * KEPT + 1)]
    with pytest.raises(UnknownVersion):
        state_at(shelf, oldest - 1)


def test_history_is_every_entry_from_the_first_that_is_kept(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    assert [n for n, _, _ in history(shelf)] == list(range(1, 51))
    shelf.trim()
    told = list(history(shelf))
    assert [n for n, _, _ in told] == list(range(37, 51))
    assert [state.things for n, _, state in told] == [shelf.state.things[:n] for n in range(37, 51)]


def test_history_that_is_trimmed_while_it_is_read_goes_on_behind_the_gap(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    told = []
    for n, _, state in history(shelf):
        told.append(n)
        if n == 10:
            open_shelf(another(store)).trim()
        assert state.things == shelf.state.things[:n]
    assert told == [*range(1, 11), *range(37, 51)]


@pytest.mark.parametrize("damaged", [1, 10, 30])
def test_history_does_not_step_over_damage(store, damaged):
    shelf = open_shelf(store)
    fill(shelf, 50)
    data = bytearray(store.read(entry_key(damaged)))
    data[-1] ^= 1
    replace_both(store, entry_key(damaged), bytes(data))
    with pytest.raises(CorruptObject, match=number(damaged)):
        list(history(shelf))


def test_history_of_which_the_oldest_snapshot_is_damaged_is_an_error_that_names_it(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    shelf.trim()
    key = f"{SNAPSHOTS}{newest_first(36)}"
    replace_both(store, key, store.read(key)[:-1])
    with pytest.raises(CorruptObject, match=key):
        list(history(shelf))


def test_history_holds_snapshots_against_the_entries(store):
    shelf = open_shelf(store)
    fill(shelf, 10)
    forged = snapshot.Snapshot(8, [b"x" * 16], msgspec.Raw(msgspec.msgpack.encode({"things": []})))
    replace_both(store, f"{SNAPSHOTS}{newest_first(8)}", snapshot.encode(forged))
    with pytest.raises(CorruptObject, match="another history"):
        list(history(shelf))


def test_history_holds_the_state_of_snapshots_against_the_entries(store):
    shelf = open_shelf(store)
    fill(shelf, 10)
    key = f"{SNAPSHOTS}{newest_first(8)}"
    whole = snapshot.decode(store.read(key), key)
    forged = snapshot.Snapshot(8, whole.hashes, msgspec.Raw(msgspec.msgpack.encode({"things": ["other"]})))
    replace_both(store, key, snapshot.encode(forged))
    with pytest.raises(CorruptObject, match=f"{key}.*another state"):
        list(history(shelf))


# The end of a journal


def test_of_a_journal_that_is_buried_the_last_entry_and_its_snapshot_stay(store):
    shelf = open_shelf(store)
    fill(shelf, 50)
    store.create(f"{MANIFESTS}{born_name(3, 'abc')}", b"of an attempt that lost")
    before = store.keys()
    went = shelf.bury() + shelf.bury()  # a store may get the snapshot only after the first
    assert went == len([key for key in before if key not in shelf.end_keys()])
    assert set(store.keys()) <= set(shelf.end_keys())
    assert open_shelf(another(store)).refresh() == shelf.state
    assert shelf.bury() == 0
    assert open_shelf(another(store)).refresh() == shelf.state


@pytest.mark.parametrize("asleep_at", [0, 1, 5, 20, 49, 50])
def test_who_slept_through_a_burial_finds_the_end(store, asleep_at):
    shelf, sleeper = open_shelf(another(store)), open_shelf(another(store))
    fill(shelf, asleep_at)
    sleeper.refresh()
    fill(shelf, 50 - asleep_at)
    shelf.bury()
    assert sleeper.refresh() == shelf.state
    assert place(sleeper, "late") == 51


def test_an_entry_that_a_sleeper_writes_after_a_burial_does_not_count(store):
    sleeper = open_shelf(store)
    fill(sleeper, 5)

    def meanwhile():
        other = open_shelf(another(store))
        fill(other, 20, "other")
        other.bury()

    store.be_slow(ENTRIES, meanwhile=meanwhile)
    assert place(sleeper, "late") == 26
    assert len(sleeper.state.things) == 26


# Power failures


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_removed_objects_that_come_back_in_any_order_do_no_harm(data):
    store = TroubledStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "SNAPSHOT_EVERY", EVERY)
        reader = open_shelf(another(store))
        shelf = open_shelf(store)
        before = {}
        for _ in range(3):
            fill(shelf, data.draw(st.integers(0, 30)))
            if data.draw(st.booleans()):
                reader.refresh()
            before |= {key: store.read(key) for key in store.list("")}
            shelf.trim()
        gone = sorted(set(before) - set(store.list("")))
        for key in data.draw(st.lists(st.sampled_from(gone), unique=True)) if gone else []:
            store.create(key, before[key])
        expected = shelf.refresh().things
        assert reader.refresh().things == expected
        opened = open_shelf(another(store))
        assert opened.refresh().things == expected
        told = [state.things for _, _, state in history(opened)]
        assert not told or told[-1] == expected
        for version in range(max(1, len(expected) - 3), len(expected) + 1):
            assert state_at(opened, version).things == expected[:version]
        fill(opened, 1, "after")
        opened.trim()
        assert shelf.refresh().things == (*expected, f"after-{len(expected)}")


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
    assert len(state.things) == PROCESSES * EACH
    for i in range(PROCESSES):
        assert [thing for thing in state.things if thing.startswith(f"w{i}-")] == [f"w{i}-{n}" for n in range(EACH)]


def test_strange_files_beside_entries_and_manifests_are_left_alone():
    store = MemoryStore()
    strange = [f"{folder}{name}" for folder in (ENTRIES, MANIFESTS, SNAPSHOTS) for name in (".nfs1", "notes.txt")]
    for key in strange:
        store.create(key, b"mine")
    shelf = open_shelf(store)
    fill(shelf, 50)
    assert shelf.trim() > 0
    assert [n for n, _, _ in history(shelf)] == list(range(37, 51))
    assert set(strange) <= set(store.list(""))
