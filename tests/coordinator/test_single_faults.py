"""Any single fault at any call to a store leaves the log right.

The story of `fault_story` runs once without a fault, and its calls are listed. Then it runs again for each call and
each way in which that call can go wrong. Afterwards what was acknowledged must be there once, for the processes that
met the fault and for a new one; the audit must find nothing; and all replicas must be in sync again.

The default ring tries some of these cases, the deep one five times as many.
"""

import contextlib

import pytest

from pyspark_log_coordinator.journal import single_store
from pyspark_log_coordinator.model import producers
from pyspark_log_storage.errors import LogError
from tests.support.coordinator.fault_story import ON_THE_ROOT, ON_THREE_STORES, Process, tell
from tests.support.countdown import CHANGES
from tests.support.faulty_store import Fault, lies_at

KINDS = {"root": ON_THE_ROOT, "journals": ON_THREE_STORES}
"""A cluster whose journals are on its root alone, and one with three journal nodes."""
SAMPLES, LIES_TOLD = {"root": 16, "journals": 6}, 6
"""How many cases the default ring tries; all would take hours."""
sweep = pytest.mark.parametrize("times", [1, pytest.param(5, marks=[pytest.mark.deep, pytest.mark.timeout(1200)])])


def cases(kind):
    """Return the calls of the story that can go wrong, by number, each with one of its faults."""
    story = tell(KINDS[kind])
    assert story.errors == []
    return [(number, each) for number, call in enumerate(story.calls) if call.step != "check" for each in call.faults()]


def test_a_batch_that_is_no_producers_is_there_once_or_not_at_all():
    """It is not written again: only the journal knows whether an answer was lost."""
    calls = tell(ON_THE_ROOT).calls
    changes = [n for n, call in enumerate(calls) if call.step == "write nameless" and call.call in CHANGES]
    for number in changes[::3]:
        tell(ON_THE_ROOT, number, Fault.LOST_ANSWER)


@pytest.mark.parametrize("kind", KINDS)
def test_the_story_is_the_same_each_time(kind):
    assert tell(KINDS[kind]).calls == tell(KINDS[kind]).calls


@pytest.mark.slow
@sweep
@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_at_one_call_loses_nothing_and_repeats_nothing(kind, times):
    found = cases(kind)
    assert len(found) > 3000, "the story has become shorter"
    for number, fault in found[:: len(found) // (times * SAMPLES[kind])]:
        tell(KINDS[kind], number, fault)


def entry_of(step):
    """Return the number of the call that creates a step's entry in the topic's journal."""
    creates = ((number, call) for number, call in enumerate(tell(ON_THE_ROOT).calls) if call.call == "create")
    return next(
        number for number, call in creates if call.step == step and "/t/" in call.key and "entries/" in call.key
    )


def test_batches_that_are_written_twice_would_be_found(monkeypatch):
    monkeypatch.setattr(producers, "is_replay", lambda *_: False)
    with pytest.raises(AssertionError):
        tell(ON_THE_ROOT, entry_of("write 3"), Fault.KILL_AFTER)


def test_a_lost_answer_that_is_taken_for_a_refusal_would_be_found(monkeypatch):
    def propose(self, n, data, *, shared=False):
        return data if self._store.create(self._key(n), data) else self.read(n)

    monkeypatch.setattr(single_store.EntryLog, "propose", propose)
    with pytest.raises(AssertionError):
        tell(ON_THE_ROOT, entry_of("write nameless"), Fault.LOST_ANSWER)


@pytest.mark.slow
@sweep
@pytest.mark.parametrize("kind", KINDS)
def test_one_lie_of_a_store_that_was_tested_gives_the_right_rows_or_an_error(kind, times):
    calls = enumerate(tell(KINDS[kind]).calls)
    lies = [(n, lie) for n, call in calls if call.step not in {"found", "check"} for lie in lies_at(call.call)]
    for number, lie in lies[:: len(lies) // (times * LIES_TOLD)]:
        with contextlib.suppress(LogError):
            tell(KINDS[kind], number, lie)


@pytest.mark.parametrize("lie", [Fault.TORN_WRITE, Fault.BIT_ROT])
def test_the_audit_finds_damaged_files_of_a_replica(lie):
    """Those that are still needed at the end of the story."""
    found = set()
    for number, call in enumerate(tell(ON_THE_ROOT).calls):
        if call.call == "open" and call.url == "/disk/1" and call.step in {"write 9", "write 10", "clean up"}:
            story = tell(ON_THE_ROOT, number, lie)
            found |= {(each.node, each.repairable) for each in Process(story, 99).client.report().findings}
    assert found == {("1", True)}
