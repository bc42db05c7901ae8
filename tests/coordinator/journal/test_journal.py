"""The journal: every command is carried out once, in one order that all processes agree on."""

import pytest

from pyspark_log_coordinator.journal import pace, replay
from pyspark_log_coordinator.journal.journal_entry import NO_HASH
from pyspark_log_storage.errors import (
    CorruptObject,
    OutcomeUnknown,
)
from pyspark_log_storage.layout import newest_first
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.item_list import AddItems, ListFull, open_list
from tests.support.coordinator.journal_objects import (
    ENTRIES,
    SNAPSHOTS,
    add,
    another,
    entry_key,
    fill,
    one_store,
    raw_entry,
    snapshots_in,
)


@pytest.mark.parametrize(("theirs", "items"), [("vase", ("vase", "book")), ("book", ("book",))])
def test_a_writer_that_lost_the_race_for_an_entry_decides_again_on_the_new_state(store, theirs, items):
    one, other = open_list(store), open_list(another(store))
    store.be_slow(ENTRIES, meanwhile=lambda: add(other, theirs))
    outcome = add(one, "book")
    assert (outcome.number, outcome.state.items) == (len(items), items)


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


# Doubtful answers


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_answer_does_not_double_the_entry(journal, store, times):
    store.lose_answers(ENTRIES, times)
    assert add(journal, "book").number == 1
    assert open_list(store).refresh().items == ("book",)


@one_store
@pytest.mark.parametrize("trouble", ["be_silent", "lose_answers"])
def test_a_refusal_after_a_doubtful_answer_leaves_the_outcome_unknown(journal, store, trouble):
    getattr(store, trouble)(ENTRIES, times=1)  # as a file whose folder could not be flushed
    store.refuse(ENTRIES)
    with pytest.raises(OutcomeUnknown):
        add(journal, "book")


@one_store
def test_after_an_unknown_outcome_the_next_command_finds_what_was_written(journal, store):
    store.be_silent(ENTRIES)
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        add(journal, "book")
    late = raw_entry(NO_HASH, ["ItemAdded", "book"])  # the create arrives after all
    store.inner.create(entry_key(1), late)
    store.forget_troubles()
    assert add(journal, "book").events == []


def test_a_folder_in_the_place_of_the_next_entry_is_an_error(tmp_path):
    store = LocalStore(str(tmp_path))
    add(open_list(store), "book")
    (tmp_path / entry_key(2)).mkdir()
    with pytest.raises(CorruptObject, match="something that cannot be read, such as a folder"):
        add(open_list(store), "vase")
    (tmp_path / entry_key(2)).rmdir()
    assert add(open_list(store), "vase").state.items == ("book", "vase")


# Snapshots


@pytest.mark.usefixtures("snapshots_are_close")
def test_a_snapshot_that_the_store_refuses_does_not_fail_the_command(store):
    dying = another(store)
    dying.refuse(SNAPSHOTS)
    journal = open_list(dying)
    fill(journal, 8)  # as a process does that dies between entry and snapshot
    assert (journal.number, snapshots_in(store)) == (8, [])
    fill(open_list(store), 5)
    assert snapshots_in(store) == [12]


# What reading costs


@one_store
def test_a_refresh_reads_only_what_is_new(store):
    watched = another(store)
    reader, writer = open_list(watched), open_list(store)
    fill(writer, 10)
    reader.refresh()
    fill(writer, 3, "new")
    for new in ([entry_key(11), entry_key(12), entry_key(13)], []):
        watched.reads.clear()
        reader.refresh()
        assert watched.reads == [*new, entry_key(14), entry_key(15)]


@one_store
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_writer_looks_before_it_writes_if_its_store_is_fast(journal, store, is_slow, monkeypatch):
    if is_slow:
        monkeypatch.setattr(pace, "SLOW_SECONDS", 0)
    add(journal, "vase")
    store.reads.clear()
    number = add(journal, "lamp").number
    assert (entry_key(number) in store.reads) != is_slow


@one_store
@pytest.mark.usefixtures("snapshots_are_close")
def test_opening_reads_the_newest_snapshot_and_what_came_after_it(journal, store):
    fill(journal, 11)
    store.reads.clear()
    open_list(store).refresh()
    expected = [f"{SNAPSHOTS}{newest_first(8)}", *(entry_key(n) for n in range(9, 13))]
    assert store.reads == expected
