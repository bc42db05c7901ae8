"""Which of many producers of a topic does its maintenance."""

import msgspec
import pytest

from pyspark_log.clients import housekeeper
from pyspark_log.clients.housekeeper import Housekeeper
from pyspark_log_coordinator.environment import real_environment


@pytest.fixture
def rolled(monkeypatch):
    """The rolls that were begun."""
    begun = []
    monkeypatch.setattr(housekeeper, "roll_inline", lambda *given: (begun.append(given), ())[1])
    monkeypatch.setattr(housekeeper, "plan_inline", lambda _: ("what is due",))
    return begun


def commit(log, *, entries, lot):
    """Let a producer draw `lot`, between 0 and 1, after so many entries of which the last is its own."""
    environment = msgspec.structs.replace(real_environment(), uniform=lambda low, high: low + lot * (high - low))
    keeper, handle = Housekeeper(log.path, environment), log.log.topic("one")
    handle.refresh()
    keeper.begin(handle)
    for _ in range(entries):
        log.append("one", {0: [b"x"]})
    handle.refresh()
    keeper.committed(handle)
    keeper.stop([handle])


def test_a_producer_alone_always_does_what_is_due(log, rolled):
    commit(log, entries=1, lot=1)
    assert len(rolled) == 1


@pytest.mark.parametrize(("lot", "times"), [(0.05, 1), (0.2, 0), (1, 0)])
def test_a_producer_of_a_tenth_of_the_entries_does_a_tenth_of_what_is_due(log, rolled, lot, times):
    commit(log, entries=10, lot=lot)
    assert len(rolled) == times


def test_a_cleanup_is_told_from_which_entry_on_it_is_due(log, rolled, monkeypatch):
    told = []
    monkeypatch.setattr(housekeeper, "clean_up", lambda handle, first: told.append((handle.version, first)))
    monkeypatch.setattr(housekeeper, "CLEAN_UP_EVERY_ENTRIES", 4)
    before = log.log.topic("one").version
    commit(log, entries=4, lot=0)
    assert told == [(before + 4, before + 1)]


def test_a_job_that_fails_keeps_no_other_from_being_done(log):
    keeper, done = Housekeeper(log.path, real_environment()), []
    keeper._start(lambda: 1 / 0)
    keeper._start(lambda: done.append(True))
    keeper.stop([])
    assert done


def test_what_was_rolled_goes_with_one_commit(log):
    keeper, handle = Housekeeper(log.path, real_environment()), log.log.topic("one")
    keeper._record(handle).rolled = ("a swap",)
    assert [keeper.take(handle) for _ in range(2)] == [("a swap",), ()]


def test_entries_of_others_before_the_last_commit_do_not_count(log, rolled):
    for _ in range(10):
        log.append("one", {0: [b"x"]})
    commit(log, entries=1, lot=0.99)
    assert len(rolled) == 1


def test_a_producer_whose_batches_others_commit_does_nothing(log, rolled):
    commit(log, entries=0, lot=0)
    assert rolled == []
