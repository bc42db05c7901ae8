"""A journal that is migrated to other stores while processes write, trim and are suspended."""

from functools import partial

import pytest

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    StoreUnavailable,
)
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems, MoveJournal
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.three_stores import mark
from tests.support.memory_store import MemoryStore


class Died(BaseException):
    """A process has ended."""


class MovingJournal:
    """A list whose journal is on the first three of six stores in generations 1 and 3, and on the others in 2."""

    def __init__(self):
        self.stores = [MemoryStore(f"store-{number}") for number in range(6)]
        for number, store in enumerate(self.stores):
            mark(store, number)

    def place(self, generation):
        numbers = (3, 4, 5) if generation == 2 else (0, 1, 2)
        members = [Member(self.stores[number], str(number), f"incarnation-{number}") for number in numbers]
        return SeveralStores(Members(members, ShuffledThreads()), generation)

    def open(self, generation=1):
        return Journal(self.place(generation), FOLDER, MACHINE, fake_environment(), 10_000, follow=self.place)


def test_the_process_that_migrates_the_journal_writes_the_next_entry_at_the_new_stores():
    journals = MovingJournal()
    journal = journals.open()
    for item in ("book", "vase"):
        journal.submit(AddItems((item,)))
    moved = journal.submit(MoveJournal(2)).number
    assert journal.entries.leads(moved + 1)
    assert journal.submit(AddItems(("clock",))).number == moved + 1
    assert journal.place.generation == 2
    assert not any(layout.number(moved + 1) in key for key in journals.stores[0].list(""))
    assert journals.open(2).refresh() == journals.open().refresh() == journal.state


def test_a_journal_begins_nowhere_else_before_its_last_entry_here_is_durable(monkeypatch):
    """Who only read the entry saw perhaps what a loss of power takes away, and another is decided in its place."""
    journals = MovingJournal()
    journal, reader = journals.open(), journals.open()
    journal.submit(AddItems(("book",)))
    journal.submit(MoveJournal(2))

    def confirm(number):
        raise StoreUnavailable("store-0", "", f"entry {number} is not flushed")

    monkeypatch.setattr(reader.entries, "confirm", confirm)
    with pytest.raises(StoreUnavailable, match="entry 2 is not flushed"):
        reader.refresh()
    assert [list(store.list("")) for store in journals.stores[3:]] == [[layout.MARKER]] * 3
    monkeypatch.undo()
    assert reader.refresh().items == ("book",)
    assert reader.place.generation == 2


def test_a_reader_that_cannot_tell_whether_the_journal_has_begun_elsewhere_may_try_again(monkeypatch):
    """All processes begin it with the same bytes, so the outcome of that is nobody's to look for."""
    journals = MovingJournal()
    journal, reader = journals.open(), journals.open()
    journal.submit(AddItems(("book",)))
    journal.submit(MoveJournal(2))

    def create_all_but_the_first_value(create, key, data):
        if key.endswith(".1"):
            raise StoreUnavailable("store", key, "it is away")
        return create(key, data)

    for store in journals.stores[4:]:
        monkeypatch.setattr(store, "create", partial(create_all_but_the_first_value, store.create))
    with pytest.raises(StoreUnavailable, match="it is unknown whether the journal in items/ has begun"):
        reader.refresh()
    monkeypatch.undo()
    assert reader.refresh().items == ("book",)
    assert reader.place.generation == 2


def test_an_entry_that_several_processes_may_have_proposed_makes_none_the_leader():
    journals = MovingJournal()
    for shared, proposed in ((True, b"same"), (False, b"own")):
        slots = journals.place(1).entries(f"{shared}/", fake_environment(), 10_000)
        assert slots.propose(1, proposed, shared=shared) == proposed
        assert slots.leads(2) is not shared


def test_only_the_entry_that_a_process_has_read_begins_the_journal_elsewhere():
    journals = MovingJournal()
    journal = journals.open()
    journal.submit(AddItems(("book",)))
    journal.submit(MoveJournal(2))
    for store in journals.stores[:3]:
        for key in [key for key in store.list("") if layout.number(2) in key]:
            store.delete(key)
    journals.place(1).entries(FOLDER, fake_environment(), 10_000).propose(2, b"another entry")
    with pytest.raises(EntryMissing, match="the journal has not begun"):
        journal.refresh()
    assert [list(store.list("")) for store in journals.stores[3:]] == [[layout.MARKER]] * 3


def test_a_place_where_the_journal_has_begun_and_nothing_of_it_exists_is_an_error():
    journals = MovingJournal()
    journal = journals.open()
    journal.submit(AddItems(("book",)))
    assert journal.follow_to(journals.place(2))
    with pytest.raises(EntryMissing, match="is a disk an old copy"):
        journal.refresh()


def test_a_suspended_process_completes_a_later_migration_that_it_finds_begun():
    """A snapshot of the third generation lies on stores of the first, before the journal has begun there."""
    journals = MovingJournal()
    slept, journal = journals.open(), journals.open()
    slept.submit(AddItems(("book",)))
    journal.submit(AddItems(("vase",)))
    journal.submit(MoveJournal(2))
    journal.refresh()
    trimming.delete_left_behind(journal, journals.place(1), fake_environment())
    journal.submit(AddItems(("clock",)))
    moved = journal.submit(MoveJournal(3)).number
    journal.create_snapshot(journals.place(3).objects(FOLDER, fake_environment(), 10_000))
    assert slept.refresh().items == ("book", "vase", "clock")
    assert slept.place.generation == 3
    assert slept.entries.read(moved) is not None
    assert slept.submit(AddItems(("lamp",))).number == moved + 1
    assert journal.refresh() == slept.state


def test_a_suspended_process_does_not_follow_a_void_entry_that_moves_the_journal():
    """It lies in a slot that was trimmed before another suspended process filled it, and died."""
    journals = MovingJournal()
    slept, late, journal = journals.open(), journals.open(), journals.open()
    journal.submit(AddItems(("book",)))
    assert slept.refresh() == late.refresh()
    propose = late.entries.propose

    def propose_late_and_die(number, data):
        for item in ("vase", "clock", "lamp"):
            journal.submit(AddItems((item,)))
        journal.create_snapshot()
        trimming.delete_before(journal, journal.number)
        assert propose(number, data) == data
        raise Died

    late.entries.propose = propose_late_and_die
    with pytest.raises(Died):
        late.submit(MoveJournal(2))
    assert slept.refresh() == journal.refresh()
    assert slept.place.generation == 1
    assert [list(store.list("")) for store in journals.stores[3:]] == [[layout.MARKER]] * 3
