"""Writers and readers that were suspended while others trimmed: no entry in a trimmed slot counts or is shown."""

import pytest

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.inbox import Inbox
from pyspark_log_coordinator.journal.place import PATIENCE_MS
from pyspark_log_storage.errors import OutcomeUnknown, StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import FOLDER, AddItems, ItemAdded, open_list
from tests.support.coordinator.journal_objects import (
    ENTRIES,
    EVERY,
    KEPT,
    another,
    entries_in,
    entry_key,
    fill,
    one_store,
)

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


def fill_and_trim(store, count=3 * KEPT, name="other"):
    """Do what other processes do while one sleeps."""
    journal = open_list(another(store))
    fill(journal, count, name)
    assert trimming.trim(journal) > 0


def inbox_of(journal):
    """Return what says that a command may be repeated."""
    return Inbox(journal.place, FOLDER, lambda body: body)


# Writers that slept


@one_store
def test_a_writer_suspended_where_another_was_faster_does_not_take_the_trimmed_entry_for_a_damaged_one(store):
    environment = fake_environment()
    sleeper = open_list(store, environment)
    fill(sleeper, 5)

    def be_suspended():
        fill_and_trim(store)
        environment.sleep(2 * PATIENCE_MS / 1000)

    def be_slower():
        fill(open_list(another(store)), 1)
        store.be_slow_to_read(entry_key(6), be_suspended)

    store.be_slow(ENTRIES, meanwhile=be_slower)
    assert sleeper.submit(AddItems(("late",)), inbox_of(sleeper)).state.items[-1] == "late"


@pytest.mark.parametrize("is_filled_again", [False, True])
def test_a_writer_suspended_after_its_entry_was_written_finds_that_it_counted(store, is_filled_again):
    """The entries up to the next snapshot, which are kept, lead back to it."""
    sleeper, other = open_list(store), open_list(another(store))
    fill(sleeper, 5)
    other.refresh()

    def be_suspended():
        fill(open_list(another(store)), 2 * EVERY, "other")
        store.delete(entry_key(6))
        if is_filled_again:  # by another suspended writer
            other.entries.propose(6, other._encode([ItemAdded("of the other")]))

    # The answer is lost, and the slot is trimmed before it is asked again.
    store.lose_answers(ENTRIES, meanwhile=be_suspended)
    outcome = sleeper.submit(AddItems(("late",)))
    assert outcome.number == 6
    assert sleeper.refresh().items[5] == "late"
    assert "of the other" not in sleeper.refresh().items


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("is_repeatable", [False, True])
def test_a_writer_suspended_until_the_entries_that_tell_were_trimmed_decides_again_or_does_not_know(
    store, counted, is_repeatable
):
    sleeper = open_list(store)
    fill(sleeper, 5)
    if counted:
        store.lose_answers(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    else:
        store.be_slow(ENTRIES, meanwhile=lambda: fill_and_trim(store))
    if is_repeatable:
        assert sleeper.submit(AddItems(("late",)), inbox_of(sleeper)).number == 5 + 3 * KEPT + 1
    else:
        with pytest.raises(OutcomeUnknown, match=r"suspended.*look for its effect"):
            sleeper.submit(AddItems(("late",)))
        assert 6 in entries_in(store), "it means nothing"
    # By its effect it is found out, and the command is given once more.
    state = sleeper.submit(AddItems(("late",))).state
    assert state == open_list(another(store)).refresh()
    assert state.items.count("late") == 1
    assert state.items.index("late") == (5 if counted else 5 + 3 * KEPT)
    fill_and_trim(store)
    assert min(entries_in(store)) > 6, "the next trimming deletes it"


@pytest.mark.parametrize("trouble", ["refused", "unavailable"])
def test_what_fails_when_a_suspended_writer_decides_again_leaves_the_outcome_unknown(store, monkeypatch, trouble):
    sleeper = open_list(store)
    fill(sleeper, 5)

    def be_suspended():
        fill_and_trim(store)
        if trouble == "unavailable":
            monkeypatch.setattr(sleeper, "load_newest", fail)

    def fail():
        raise StoreUnavailable("the url", "x", "a moment")

    store.lose_answers(ENTRIES, meanwhile=be_suspended)
    full = AddItems(("late",), items_max=6 if trouble == "refused" else 10**9)
    with pytest.raises(OutcomeUnknown, match="the outcome is unknown"):
        sleeper.submit(full, inbox_of(sleeper))
    assert "late" in open_list(another(store)).refresh().items


# Readers that slept


def test_a_suspended_reader_keeps_its_state_until_it_can_read_the_snapshot(store, monkeypatch):
    reader = open_list(store)
    fill(open_list(another(store)), 2)
    known = reader.refresh()
    fill_and_trim(store)
    with monkeypatch.context() as away:

        def refuse(*_):
            raise StoreUnavailable("the url", "x", "a moment")

        away.setattr(reader.objects, "read", refuse)
        with pytest.raises(StoreUnavailable):
            reader.refresh()
        assert (reader.state, reader.number) == (known, 2), "who looks at it meanwhile takes it for what it was"
    assert reader.refresh() == open_list(another(store)).refresh() != known
