"""The journal: every command is carried out once, in one order that all processes agree on."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import journal_entry, replay, snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, digest
from pyspark_log_coordinator.journal.pace import ALONE_ENTRIES
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_storage.errors import (
    CopiedLog,
    CorruptObject,
    ObjectMissing,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.layout import newest_first
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems, ItemAdded, ItemList, ListFull, open_list
from tests.support.coordinator.journal_objects import (
    ENTRIES,
    MANIFESTS,
    SNAPSHOTS,
    add,
    another,
    entry_key,
    fill,
    one_store,
    raw_entry,
    snapshots_in,
)
from tests.support.coordinator.local_stores import begin, open_at
from tests.support.coordinator.spares import is_spare, lose_both, replace_both, spare_of
from tests.support.elsewhere import PlainStore

ROOT = Path(__file__).parents[3]
PROCESSES = 10
EACH = 200


# Many processes


@pytest.mark.slow
@pytest.mark.parametrize("stores", [1, 3])
def test_what_ten_processes_append_at_once_is_all_there_once_and_in_one_chain(tmp_path, stores):
    roots = [str(tmp_path / f"root-{number}") for number in range(stores)]
    begin(roots)
    command = [sys.executable, "-m", "tests.support.coordinator.add_worker", ",".join(roots)]
    workers = [subprocess.Popen([*command, f"w{i}", str(EACH)], cwd=ROOT) for i in range(PROCESSES)]
    assert [worker.wait() for worker in workers] == [0] * PROCESSES

    journal = open_at(roots)
    state = journal.refresh()
    assert len(state.items) == PROCESSES * EACH
    for i in range(PROCESSES):
        mine = [item for item in state.items if item.startswith(f"w{i}-")]
        assert mine == [f"w{i}-{n}" for n in range(EACH)]
    previous = NO_HASH
    for n in range(1, PROCESSES * EACH + 1):
        data = journal.entries.read(n)
        assert journal_entry.decode(data, f"entry {n}").previous == previous
        previous = digest(data)


def test_a_writer_that_lost_the_race_for_an_entry_decides_again_on_the_new_state(store):
    one, other = open_list(store), open_list(another(store))
    store.be_slow(ENTRIES, meanwhile=lambda: add(other, "book"))
    outcome = add(one, "book")
    assert outcome.events == []
    assert outcome.number == 1


def test_a_writer_that_lost_the_race_for_an_entry_takes_the_next_one(store):
    one, other = open_list(store), open_list(another(store))
    store.be_slow(ENTRIES, meanwhile=lambda: add(other, "vase"))
    outcome = add(one, "book")
    assert outcome.number == 2
    assert outcome.state.items == ("vase", "book")


# What the command comes to


@pytest.mark.parametrize("reads", [False, True])
def test_a_journal_continues_after_an_interrupt_between_an_entry_and_its_hash(store, monkeypatch, reads):
    mine, other = open_list(store), open_list(store)
    add(mine, "book")

    def interrupt(data):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "digest", interrupt)
    if reads:
        with pytest.raises(KeyboardInterrupt):
            other.refresh()
    else:
        with pytest.raises(KeyboardInterrupt):
            add(mine, "vase")
    expected = ("book", "lamp") if reads else ("book", "vase", "lamp")
    assert add(mine, "lamp").state.items == expected
    assert other.refresh().items == expected


@one_store
def test_a_command_that_changes_nothing_writes_no_entry(journal, store):
    add(journal, "book")
    store.creates.clear()
    assert add(journal, "book").events == []
    assert journal.number == 1
    # The answer rests on entry 1, whose writer may have died before it was durable: the same bytes are asked for again.
    assert store.creates == [entry_key(1)]


def test_a_refused_command_writes_nothing(journal, store):
    with pytest.raises(ListFull):
        journal.submit(AddItems(("book",), items_max=0))
    assert list(store.list("")) == []


def test_an_outcome_names_the_entry_the_events_and_the_state_after_them(journal):
    add(journal, "book")
    outcome = add(journal, "vase", "clock")
    assert outcome.number == 2
    assert outcome.events == [ItemAdded("vase"), ItemAdded("clock")]
    assert outcome.state == ItemList(("book", "vase", "clock"))


# Doubtful answers


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_answer_does_not_double_the_entry(journal, store, times):
    store.lose_answers(ENTRIES, times)
    assert add(journal, "book").number == 1
    assert open_list(store).refresh().items == ("book",)


@one_store
def test_an_entry_that_was_written_is_not_answered_for_until_the_store_confirms_it(journal, store):
    store.lose_answers(ENTRIES, times=1)  # as a file whose folder could not be flushed
    store.refuse(ENTRIES)
    with pytest.raises(OutcomeUnknown):
        add(journal, "book")


@one_store
def test_a_store_that_never_answers_leaves_the_outcome_unknown(journal, store):
    store.be_silent(ENTRIES)
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        add(journal, "book")


@one_store
def test_a_refusal_after_a_doubtful_answer_leaves_the_outcome_unknown(journal, store):
    store.be_silent(ENTRIES, times=1)
    store.refuse(ENTRIES)
    with pytest.raises(OutcomeUnknown):
        add(journal, "book")


@one_store
def test_after_an_unknown_outcome_the_next_command_finds_what_was_written(journal, store):
    store.be_silent(ENTRIES)
    with pytest.raises(OutcomeUnknown):
        add(journal, "book")
    late = raw_entry(NO_HASH, ["ItemAdded", "book"])  # the create arrives after all
    store.inner.create(entry_key(1), late)
    store.forget_troubles()
    assert add(journal, "book").events == []


def test_a_permission_error_is_passed_on_and_nothing_is_written(journal, store):
    store.refuse(ENTRIES)
    with pytest.raises(StoreRefused):
        add(journal, "book")
    assert list(store.list("")) == []


def test_a_journal_continues_after_a_permission_error(journal, store):
    store.refuse(ENTRIES, times=1)
    with pytest.raises(StoreRefused):
        add(journal, "book")
    assert add(journal, "book").number == 1


def test_a_folder_in_the_place_of_the_next_entry_is_an_error(tmp_path):
    store = LocalStore(str(tmp_path))
    add(open_list(store), "book")
    (tmp_path / entry_key(2)).mkdir()
    with pytest.raises(CorruptObject, match="something that cannot be read, such as a folder"):
        add(open_list(store), "vase")
    (tmp_path / entry_key(2)).rmdir()
    assert add(open_list(store), "vase").state.items == ("book", "vase")


# Manifests


def test_events_of_more_than_64_kb_lie_in_a_manifest(journal, store):
    add(journal, "x" * 70_000)
    assert len(list(store.list(MANIFESTS))) == 1
    assert store.size(entry_key(1)) < 1_000
    assert open_list(store).refresh() == journal.state


def test_events_of_less_than_64_kb_lie_in_the_entry(journal, store):
    add(journal, "x" * 60_000)
    assert list(store.list(MANIFESTS)) == []


def test_a_missing_manifest_is_an_error_that_names_it(journal, store):
    add(journal, "x" * 70_000)
    (key,) = store.list(MANIFESTS)
    lose_both(store, key)
    with pytest.raises(ObjectMissing, match=key):
        open_list(store).refresh()


def test_another_intact_manifest_is_an_error_that_names_it(journal, store):
    add(journal, "x" * 70_000)
    add(journal, "y" * 70_000)
    first, second = store.list(MANIFESTS)
    replace_both(store, first, store.read(second))
    with pytest.raises(CorruptObject, match=first):
        open_list(store).refresh()


def test_a_manifest_that_cannot_be_written_leaves_no_entry(journal, store):
    store.be_silent(MANIFESTS)
    with pytest.raises(StoreUnavailable):
        add(journal, "x" * 70_000)
    assert list(store.list("")) == []


def test_a_command_that_was_beaten_and_decides_otherwise_writes_another_manifest(store):
    one, other = open_list(store), open_list(another(store))
    store.be_slow(ENTRIES, meanwhile=lambda: add(other, "vase"))
    add(one, "vase", "x" * 70_000)
    assert open_list(store).refresh().items == ("vase", "x" * 70_000)


def test_a_manifest_without_its_entry_means_nothing(journal, store):
    store.refuse(ENTRIES, times=1)
    with pytest.raises(StoreRefused):
        add(journal, "x" * 70_000)
    assert add(journal, "book").state.items == ("book",)


# Snapshots


def test_a_snapshot_is_written_every_256_entries(journal, store):
    fill(journal, 600)
    assert snapshots_in(store) == [256, 512]


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_replaying_from_every_snapshot_gives_the_state_of_replaying_from_the_first_entry(journal, store):
    fill(journal, 1_100)
    numbers = snapshots_in(store)
    assert numbers == [256, 512, 768, 1_024]
    for kept in [None, *numbers]:
        copy = type(store)()
        for key in store.list(""):
            if not key.startswith(SNAPSHOTS) or (kept and key == f"{SNAPSHOTS}{newest_first(kept)}"):
                copy.create(key, store.read(key))
        replayed = open_list(copy)
        assert replayed.refresh() == journal.state
        assert replayed.number == 1_100


def test_a_snapshot_that_the_store_refuses_does_not_fail_the_command(journal, store):
    store.refuse(SNAPSHOTS)
    fill(journal, 256)
    assert journal.number == 256


def test_a_missed_snapshot_is_made_up_for(store):
    dying = another(store)
    dying.refuse(SNAPSHOTS)
    fill(open_list(dying), 512)  # as a process does that dies between entry and snapshot
    add(open_list(store), "one more")
    assert snapshots_in(store) == [513]


def test_a_snapshot_that_another_process_wrote_was_not_missed(store):
    idle = open_list(store)
    add(idle, "first")
    fill(open_list(store), 600)
    add(idle, "last")
    assert snapshots_in(store) == [256, 512]


def test_a_strange_file_among_the_snapshots_does_not_fail_a_command_that_is_done(store):
    idle = open_list(store)
    add(idle, "first")
    dying = another(store)
    dying.refuse(SNAPSHOTS)
    fill(open_list(dying), 600)
    store.create(f"{SNAPSHOTS}.strange", b"")
    assert add(idle, "last").number == 602


@one_store
def test_a_snapshot_keeps_the_hashes_of_the_newest_entries(store, monkeypatch):
    monkeypatch.setattr(replay, "HASHES_MAX", 40)
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 50)
    fill(open_list(store), 50)
    (key,) = store.list(SNAPSHOTS)
    hashes = snapshot.decode(store.read(key), key).hashes
    assert hashes == [digest(store.read(entry_key(number))) for number in range(11, 51)]


def test_the_hashes_of_4096_entries_are_kept():
    assert snapshot.HASHES_MAX == replay.HASHES_MAX == 4096


# What reading costs


@one_store
def test_a_refresh_reads_only_what_is_new(store):
    watched = another(store)
    reader, writer = open_list(watched), open_list(store)
    fill(writer, 10)
    reader.refresh()
    fill(writer, 3, "new")
    watched.reads.clear()
    reader.refresh()
    assert watched.reads == [entry_key(11), entry_key(12), entry_key(13), entry_key(14), spare_of(entry_key(14))]


@one_store
def test_a_refresh_without_news_looks_for_the_next_entry_and_its_spare_alone(journal, store):
    fill(journal, 10)
    store.reads.clear()
    journal.refresh()
    assert store.reads == [entry_key(11), spare_of(entry_key(11))]


@one_store
def test_a_writer_that_meets_no_others_does_not_look_before_it_writes(journal, store):
    fill(journal, ALONE_ENTRIES)
    store.reads.clear()
    number = add(journal, "book").number
    assert entry_key(number) not in store.reads


@one_store
def test_a_writer_that_has_met_another_one_looks_before_it_writes(journal, store):
    fill(journal, ALONE_ENTRIES)
    add(open_list(another(store)), "vase")
    add(journal, "book")
    store.reads.clear()
    number = add(journal, "lamp").number
    assert entry_key(number) in store.reads


@one_store
def test_opening_reads_the_newest_snapshot_and_what_came_after_it(journal, store):
    fill(journal, 515)
    store.reads.clear()
    open_list(store).refresh()
    expected = [f"{SNAPSHOTS}{newest_first(512)}", *(entry_key(n) for n in range(513, 517))]
    assert [key for key in store.reads if not is_spare(key)] == expected
    assert len(store.reads) == len(expected) + 1


# Looking for a new entry


@one_store
def test_a_look_finds_the_entry_of_another_process(store):
    journal = open_list(store)
    assert journal.may_have_more
    journal.refresh()
    assert not journal.may_have_more
    add(open_list(another(store)), "new")
    assert journal.may_have_more
    journal.refresh()
    assert not journal.may_have_more


def test_a_journal_of_a_copy_takes_no_command():
    store = PlainStore()
    copy = Journal(OneStore(store, "it is a copy"), FOLDER, MACHINE, fake_environment())
    with pytest.raises(CopiedLog, match="it is a copy"):
        add(copy, "book")
    assert list(store.list("")) == []
