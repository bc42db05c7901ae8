"""A journal that ends, because it goes on at other stores, while processes write, trim and are suspended."""

import pytest

from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import Member, SeveralStores
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded
from pyspark_log_coordinator.log import ended_journals
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogMoved, StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment, with_journal_threads
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems
from tests.support.coordinator.stand_in_threads import ShuffledThreads
from tests.support.coordinator.three_stores import mark
from tests.support.memory_store import MemoryStore

END = EndJournal(JournalEnded(2, ()))


class Died(BaseException):
    """A process has ended."""


class EndingJournal:
    """A list whose journal is on the first three of six stores in generation 1, and on the others in 2."""

    def __init__(self):
        self.stores = [MemoryStore(f"store-{number}") for number in range(6)]
        for number, store in enumerate(self.stores):
            mark(store, number)

    def place(self, generation):
        numbers = (3, 4, 5) if generation == 2 else (0, 1, 2)
        members = [Member(self.stores[number], str(number), f"incarnation-{number}") for number in numbers]
        environment = with_journal_threads(fake_environment(), ShuffledThreads())
        return SeveralStores(members, environment, generation, patience_ms=10_000)

    def open(self, generation=1):
        return Journal(self.place(generation), FOLDER, MACHINE)


@pytest.fixture
def journals():
    return EndingJournal()


def test_no_entry_follows_the_last_one_whoever_knew_how_much(journals):
    knew_all, knew_less, ending = journals.open(), journals.open(), journals.open()
    knew_less.submit(AddItems(("book",)))
    knew_all.submit(AddItems(("vase",)))
    ended = ending.submit(END).number
    for journal in (ending, knew_all, knew_less, journals.open()):
        with pytest.raises(LogMoved):
            journal.submit(AddItems(("clock",)))
        for polls in (False, True):
            with pytest.raises(LogMoved):
                journal.refresh(polls=polls)
        assert (journal.number, journal.state.items) == (ended, ("book", "vase"))
    assert not any(layout.number(ended + 1) in key for store in journals.stores for key in store.list(""))


def test_a_journal_begins_nowhere_else_before_its_last_entry_here_is_durable(journals, monkeypatch):
    """Who only read the entry saw perhaps what a loss of power takes away, and another is decided in its place."""
    journal = journals.open()
    journal.submit(AddItems(("book",)))
    journal.submit(END)

    def confirm(number):
        raise StoreUnavailable("store-0", "", f"entry {number} is not flushed")

    monkeypatch.setattr(journal.entries, "confirm", confirm)
    with pytest.raises(StoreUnavailable, match="entry 2 is not flushed"):
        ended_journals.begin(journal, journals.place(2))
    assert [list(store.list("")) for store in journals.stores[3:]] == [[layout.MARKER]] * 3


def test_a_void_entry_ends_no_journal(journals):
    """It lies in a slot that was trimmed before a suspended process filled it, and died."""
    late, journal = journals.open(), journals.open()
    journal.submit(AddItems(("book",)))
    late.refresh()
    propose = late.entries.propose

    def propose_late_and_die(number, data):
        for item in ("vase", "clock", "lamp"):
            journal.submit(AddItems((item,)))
        journal.create_snapshot()
        journal.objects.delete_before(journal.number)
        assert propose(number, data) == data
        raise Died

    late.entries.propose = propose_late_and_die
    with pytest.raises(Died):
        late.submit(END)
    assert journals.open().refresh() == journal.refresh()
