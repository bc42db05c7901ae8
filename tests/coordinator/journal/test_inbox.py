"""The inbox of a journal: a process that has lost an entry leaves its command where the next writer finds it."""

import threading
import time

import msgspec
import pytest

from pyspark_log_coordinator.journal import inbox as inbox_module
from pyspark_log_coordinator.journal import pace
from pyspark_log_coordinator.journal.inbox import (
    BYTES_MAX,
    COMMANDS_MAX,
    KEPT_ENTRIES,
    Answer,
    Inbox,
    encode_answer,
)
from pyspark_log_coordinator.journal.pace import FRESH_SECONDS
from pyspark_log_coordinator.journal.trimming import trim
from pyspark_log_storage.errors import StoreRefused, StoreUnavailable
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.objects.envelope import seal
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, AddItems, ItemAdded, ListFull, open_list
from tests.support.coordinator.journal_objects import (
    ENTRIES,
    EVERY,
    KEPT,
    add,
    another,
    entry_key,
    fill,
    one_store,
    raw_entry,
)
from tests.support.coordinator.three_stores import ThreeStores

INBOX, ANSWERS = f"{FOLDER}inbox/", f"{FOLDER}answers/"
HANGS_SECONDS = 3
decode = msgspec.msgpack.Decoder(AddItems).decode


@pytest.fixture(autouse=True)
def a_slow_store(monkeypatch):
    """In the environment of these tests no request takes any time."""
    monkeypatch.setattr(pace, "SLOW_SECONDS", 0)


def inbox_of(journal):
    return Inbox(journal.place, FOLDER, decode)


def waiting(store):
    """The keys in the inbox."""
    return list(store.list(INBOX))


def lose_an_entry(store, item):
    """Let the next entry be another process's."""
    store.be_slow(ENTRIES, meanwhile=lambda: add(open_list(another(store)), item))


def submit(store, *items, items_max=10**9, sleep=None, after_put=None):
    """Submit a command with an inbox, as a process of its own; return the outcome and the inbox."""
    environment = fake_environment()
    if sleep is not None:
        own = environment.sleep

        def sleep_and_look(seconds):
            own(seconds)
            sleep(seconds)

        environment = msgspec.structs.replace(environment, sleep=sleep_and_look)
    journal = open_list(store, environment)
    inbox = inbox_of(journal)
    if after_put is not None:
        put = inbox.put

        def put_and_go_on(*command):
            if not inbox.is_used:
                put(*command)
                after_put()

        inbox.put = put_and_go_on
    return journal.submit(AddItems(items, items_max), inbox), inbox


def submit_after_a_loss(store, lost_to, *items, **how):
    """Submit a command that loses its first entry to another process's item."""
    lose_an_entry(store, lost_to)
    return submit(store, *items, **how)


def submit_while_another_waits(store, item, *others):
    """Submit a command that loses an entry. When it is in the inbox, another process does the same."""
    outcomes = []

    def submit_another():
        outcomes.append(submit_after_a_loss(another(store), "vase", *others)[0])

    def let_another_be_faster():
        store.be_slow(ENTRIES, meanwhile=submit_another)

    outcomes.append(submit_after_a_loss(store, "cup", item, after_put=let_another_be_faster)[0])
    return outcomes


def leave_in_the_inbox(store, *items, **limits):
    """Be a process that dies after it has put a command into the inbox."""
    inbox_of(open_list(store)).put(0, AddItems(items, **limits))


def items_of_the_entry(store, outcome):
    """What the newest entry, in which the command was carried out, has added: also for other processes."""
    return list(open_list(store).refresh().items[len(outcome.state.items) - len(outcome.events) :])


@pytest.mark.parametrize(("theirs", "items"), [("lamp", ("lamp", "book")), ("book", ("book",))])
def test_a_command_that_lost_an_entry_is_carried_out_by_the_next_that_lost_one_too(store, theirs, items):
    """Each command is decided on the state after those before it, and its outcome has nothing of the others."""
    other, one = submit_while_another_waits(store, "book", theirs)
    assert one.events == []
    assert one.number == other.number == 3
    assert other.events == [ItemAdded(theirs)]
    assert other.state.items == ("cup", "vase", theirs)
    assert open_list(store).refresh().items == ("cup", "vase", *items)


def test_a_command_that_is_refused_spoils_no_other(store):
    leave_in_the_inbox(store, "book", items_max=1)
    outcome, inbox = submit_after_a_loss(store, "vase", "lamp")
    assert items_of_the_entry(store, outcome) == ["lamp"]
    assert (inbox.is_used, len(waiting(store))) == (True, 2)
    inbox.withdraw()
    assert len(waiting(store)) == 1
    lose_an_entry(store, "cup")
    with pytest.raises(ListFull):
        submit(store, "book", items_max=1)


@pytest.mark.parametrize("in_vain", [False, True])
def test_a_process_lets_those_whose_commands_are_older_carry_out_its_own(store, in_vain):
    for item in ("book", "lamp"):
        leave_in_the_inbox(store, item)
    late = []

    def sleep(_):
        if waiting(store)[2:] and not late and not in_vain:
            late.append(add(open_list(another(store)), "book", "lamp", "bowl"))

    outcome, _ = submit_after_a_loss(store, "cup", "bowl", sleep=sleep)
    assert outcome.number == 2
    assert open_list(store).refresh().items == (
        ("cup", "bowl", "book", "lamp") if in_vain else ("cup", "book", "lamp", "bowl")
    )
    assert bool(outcome.events) == in_vain


@one_store
@pytest.mark.parametrize(
    ("first_answer", "looks"),
    [(StoreUnavailable("url", "key", "for a moment"), 2), (b"", 1), (StoreRefused("url", "key", "not yours"), None)],
    ids=["unavailable", "being written", "refused"],
)
def test_a_command_that_cannot_be_read_for_a_moment_is_carried_out_later(store, monkeypatch, first_answer, looks):
    leave_in_the_inbox(store, "book")
    read, answers = store.read, [first_answer] * (1 if looks else 9)

    def read_later(key, *more):
        if not key.startswith(INBOX) or not answers:
            return read(key, *more)
        if isinstance(answer := answers.pop(), Exception):
            raise answer
        return answer

    monkeypatch.setattr(store, "read", read_later)
    inbox = inbox_of(open_list(store))
    for look in (1, 2):
        inbox.look()
        found = [command for _, command in inbox.others()]
        assert found == ([AddItems(("book",))] if looks and look >= looks else [])
    assert inbox.has_others == bool(looks), "nobody waits for a command that it may not read"


@pytest.mark.usefixtures("snapshots_are_close")
@pytest.mark.parametrize("often_loses", [False, True])
def test_a_process_that_was_suspended_does_not_believe_a_void_entry_that_carries_out_its_command(store, often_loses):
    def be_suspended():
        other = open_list(another(store))
        other.refresh()
        number, previous = (3, journal.last_hash) if often_loses else (2, other.last_hash)
        fill(other, KEPT + EVERY)
        trim(other)
        assert other.entries.read(number) is None
        void = raw_entry(previous, ItemAdded("book"))
        assert open_list(another(store)).entries.propose(number, void) == void

    if often_loses:
        journal = open_list(store)
        lose_an_entry(store, "cup")
        assert journal.submit(AddItems(("vase",)), inbox_of(journal)).number == 2
        store.be_slow(ENTRIES, meanwhile=be_suspended)
        assert journal.submit(AddItems(("book",)), inbox_of(journal)).events == [ItemAdded("book")]
    else:
        submit_after_a_loss(store, "cup", "book", after_put=be_suspended)
    assert "book" in open_list(another(store)).refresh().items


@pytest.mark.parametrize(
    ("count", "length", "taken"),
    [(COMMANDS_MAX + 2, 1, COMMANDS_MAX), (3, BYTES_MAX // 2, 1), (3, BYTES_MAX // 3, 2), (3, BYTES_MAX, 0)],
)
def test_an_entry_takes_a_bounded_number_and_size_of_others_the_oldest_first(store, count, length, taken):
    journal = open_list(store)
    items = [f"{number:03}".ljust(length, "x") for number in range(count)]
    for number, item in enumerate(items):
        inbox_of(journal).put(number, AddItems((item,)))
    outcome, _ = submit_after_a_loss(store, "cup", "lamp")
    assert items_of_the_entry(store, outcome) == ["lamp", *items[:taken]]


@one_store
@pytest.mark.parametrize(
    "data",
    [b"", b"torn", seal(b"PLIB", 1, b"\xc1"), seal(b"PLIB", 2, b"\x90"), seal(b"PLIB", 1, msgspec.msgpack.encode(1))],
    ids=["empty", "torn", "no msgpack", "newer", "another type"],
)
def test_what_is_not_a_whole_command_is_passed_over(store, data):
    store.create(f"{INBOX}{born_name(0, f'{1:032x}')}", data)
    store.create(f"{INBOX}notes.txt", b"of somebody")
    outcome, _ = submit_after_a_loss(store, "cup", "lamp")
    assert items_of_the_entry(store, outcome) == ["lamp"]
    assert f"{INBOX}notes.txt" in waiting(store)


@one_store
def test_a_store_that_fails_at_the_inbox_fails_no_command(store, monkeypatch):
    def unless_of_the_inbox(call):
        def checked(key, *rest):
            if key.startswith(INBOX):
                raise StoreUnavailable(store.url, key, "the test made this up")
            return call(key, *rest)

        return checked

    monkeypatch.setattr(store, "create_unflushed", unless_of_the_inbox(store.create_unflushed))
    monkeypatch.setattr(store, "list", unless_of_the_inbox(store.list))
    outcome, _ = submit_after_a_loss(store, "cup", "book")
    assert outcome.state.items == ("cup", "book")


@pytest.fixture
def hanging_inbox(monkeypatch):
    """Three stores, the first of which does not answer any call to the inbox."""
    monkeypatch.setattr(inbox_module, "ANSWER_SECONDS", 0.05)
    stores, release = ThreeStores(), threading.Event()

    def hang(act):
        def call(key, *more):
            if key.startswith((INBOX, ANSWERS)):
                release.wait(HANGS_SECONDS)
            return act(key, *more)

        return call

    for name in ("create_unflushed", "list", "exists", "read", "delete"):
        monkeypatch.setattr(stores.connections[0], name, hang(getattr(stores.connections[0], name)))
    stores.release = release
    yield stores
    release.set()


def test_a_journal_on_three_stores_does_not_wait_for_an_inbox_that_hangs_and_uses_it_again(hanging_inbox):
    began = time.monotonic()
    outcome, inbox = submit_after_a_loss(hanging_inbox, "cup", "book")
    assert inbox.is_used
    inbox.withdraw()
    assert outcome.state.items == ("cup", "book")
    journal = open_list(hanging_inbox)
    inbox = inbox_of(journal)
    for number in range(2 * pace.LOOK_EVERY):
        journal.submit(AddItems((f"item {number}",)), inbox)
    assert time.monotonic() - began < HANGS_SECONDS
    leave_in_the_inbox(hanging_inbox.inner[0], "vase")
    hanging_inbox.release.set()
    began = time.monotonic()
    while not inbox.others():
        inbox.look()
        assert time.monotonic() - began < HANGS_SECONDS
    assert AddItems(("vase",)) in [command for _, command in inbox.others()]


def test_commands_and_answers_that_nobody_removes_are_deleted_after_hundreds_of_entries(store):
    inbox_of(open_list(store)).put(5, AddItems(("book",)))
    inbox_of(open_list(store)).reply({waiting(store)[0]: Answer(6, {})})
    store.create(f"{INBOX}notes.txt", b"of somebody")
    assert [inbox_of(open_list(store)).delete_old(KEPT_ENTRIES + number) for number in (5, 6)] == [0, 2]
    assert waiting(store) == [f"{INBOX}notes.txt"]


def test_a_process_that_always_wins_looks_into_the_inbox_now_and_then(store):
    journal = open_list(store)
    inbox = inbox_of(journal)
    leave_in_the_inbox(store, "book")
    for number in range(2 * pace.LOOK_EVERY):
        journal.submit(AddItems((f"item {number}",)), inbox)
        assert ("book" in journal.state.items) == (number + 1 >= pace.LOOK_EVERY)
    assert not inbox.is_used


@one_store
def test_on_a_fast_store_nobody_uses_the_inbox(store, monkeypatch):
    monkeypatch.setattr(pace, "SLOW_SECONDS", 0.001)
    leave_in_the_inbox(store, "book")
    outcome, inbox = submit_after_a_loss(store, "cup", "lamp")
    assert items_of_the_entry(store, outcome) == ["lamp"]
    assert not inbox.is_used
    assert INBOX not in store.lists


@one_store
def test_on_a_slow_store_a_process_looks_before_it_proposes_unless_it_just_wrote_an_entry(store):
    environment = fake_environment()
    journal = open_list(store, environment)
    add(journal, "book")
    store.reads.clear()
    add(journal, "lamp")
    assert [key for key in store.reads if key.startswith(ENTRIES)] == []
    add(open_list(another(store)), "vase")
    environment.sleep(FRESH_SECONDS)
    store.creates.clear()
    add(journal, "cup")
    assert [key for key in store.creates if key.startswith(ENTRIES)] == [entry_key(4)]


def test_a_command_that_meets_no_other_or_is_too_large_is_not_put_into_the_inbox(store):
    assert not submit(store, "book")[1].is_used
    outcome, inbox = submit_after_a_loss(store, "cup", "x" * BYTES_MAX)
    assert outcome.number == 3
    assert not inbox.is_used


class Contender:
    """A process that met others at its last command. They may do something `meanwhile`, while it waits."""

    def __init__(self, store, name):
        environment = fake_environment()
        own, self.meanwhile = environment.sleep, lambda: None

        def sleep(seconds):
            own(seconds)
            self.meanwhile()

        self.journal = open_list(store, msgspec.structs.replace(environment, sleep=sleep))
        self.inbox = inbox_of(self.journal)
        lose_an_entry(store, f"faster than {name}")
        self.submit(name)

    def submit(self, *items, **limits):
        try:
            return self.journal.submit(AddItems(items, **limits), self.inbox)
        finally:
            self.inbox.withdraw()


def waiter(store, act, entries=3):
    """Return a process that leaves its next command to others, which `act` once when that command is in the inbox.

    It has missed entries, and the commands of two processes, which have died, have waited longer.
    """
    waiter, acts = Contender(store, "waiter"), [act]
    waiter.meanwhile = lambda: acts.pop()() if acts and waiting(store)[2:] else None
    for item in ("book", "cup"):
        leave_in_the_inbox(another(store), item)
    write_entries(store, entries)
    store.reads.clear()
    return waiter


def write_entries(store, count):
    journal = open_list(another(store))
    journal.refresh()
    for _ in range(count):
        add(journal, f"item {journal.number}")


def lead(store):
    """Let a process that knows the newest entry write the next one."""
    leader = Contender(another(store), "leader")
    return lambda: (leader.journal.refresh(), leader.submit("lamp"))


@one_store
def test_a_process_that_waits_reads_an_answer_and_no_entries(store):
    leader, entries = lead(store), 20
    process = waiter(store, lambda: (write_entries(store, entries), leader()), entries)
    outcome = process.submit("bowl")
    newest = open_list(another(store))
    items = newest.refresh().items
    assert items[-4:] == ("lamp", "book", "cup", "bowl")
    assert outcome.answer == {0: (0, len(items))}
    assert outcome.number == newest.number
    assert process.journal.number < newest.number - 2 * entries
    assert len({key for key in store.reads if key.startswith(ENTRIES)}) <= 1, "whether it has missed some"
    assert len(waiting(store)) == 2, "those of the dead"
    assert len(list(store.list(ANSWERS))) == 2
    with pytest.raises(ListFull):
        waiter(store, lead(store)).submit("box", items_max=1)


@one_store
@pytest.mark.parametrize("data", [b"", b"torn", encode_answer(Answer(1, {}), "another key"), seal(b"PLIB", 1, b"\x90")])
def test_what_is_no_answer_is_passed_over(store, data):
    def answer_wrongly():
        store.create(waiting(store)[2].replace(INBOX, ANSWERS), data)

    outcome = waiter(store, answer_wrongly).submit("bowl")
    assert outcome.answer is None
    assert outcome.state.items[-1] == "bowl"


@one_store
def test_an_answer_is_given_once_the_entry_is_there(store, monkeypatch):
    leader = Contender(store, "leader")
    leave_in_the_inbox(another(store), "book")
    answered = []
    create = store.create

    def create_and_look(key, data):
        answered.append(list(store.list(ANSWERS)))
        return create(key, data)

    monkeypatch.setattr(store, "create", create_and_look)
    leader.submit("lamp")
    assert answered
    assert answered == [[]] * len(answered)
    assert len(list(store.list(ANSWERS))) == 1


def test_a_command_is_born_at_the_newest_entry_that_an_answer_has_named(store):
    """Or the answer to it would be taken for an old one, and deleted, while its process reads no entries."""
    inbox, other = inbox_of(open_list(store)), inbox_of(open_list(store))
    inbox.put(5, AddItems(("book",)))
    other.reply({waiting(store)[0]: Answer(1_000, {})})
    inbox.answer()
    inbox.withdraw()
    inbox.put(5, AddItems(("lamp",)))
    other.reply({waiting(store)[0]: Answer(1_001, {})})
    assert inbox.delete_old(1_001) == 0
    assert inbox.answer() == Answer(1_001, {})
