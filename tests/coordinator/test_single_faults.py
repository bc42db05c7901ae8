"""Any single fault at any call to a store leaves the log right.

The story of `fault_story` runs once without a fault, and its calls are listed. Then it runs again for each call and
each way in which that call can go wrong. Afterwards what was acknowledged must be there once, for the processes that
met the fault and for a new one; the audit must find nothing; and all replicas must be in sync again.

The suite tries some of these cases. All of them, on both kinds of clusters, take about a quarter of an hour:

    python -m tests.coordinator.test_single_faults [root | journals]
"""

import contextlib
import logging
import multiprocessing
import os
import random
import sys
import time
import traceback

import pytest

from pyspark_log_coordinator.journal import single_store
from pyspark_log_coordinator.model import producers
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores.faults import Fault
from tests.support.coordinator.fault_story import LIES, ON_THE_ROOT, ON_THREE_STORES, Process, tell
from tests.support.countdown import CHANGES

KINDS = {"root": ON_THE_ROOT, "journals": ON_THREE_STORES}
"""A cluster whose journals are on its root alone, and one with three journal nodes."""
SAMPLES = {"root": 60, "journals": 20}
LIES_TOLD = {"root": 10, "journals": 4}
SEED = 1


def cases(kind):
    """Return the calls of the story that can go wrong, by number, each with one of its faults."""
    story = tell(KINDS[kind])
    assert story.errors == []
    return [(number, each) for number, call in enumerate(story.calls) if call.step != "check" for each in call.faults()]


def test_a_batch_that_is_no_producers_is_there_once_or_not_at_all():
    """It is not written again: only the journal knows whether an answer was lost."""
    calls = tell(ON_THE_ROOT).calls
    for number, fault in cases("root"):
        call = calls[number]
        if call.step == "write nameless" and call.call in CHANGES and fault in {Fault.UNAVAILABLE, Fault.LOST_ANSWER}:
            tell(ON_THE_ROOT, number, fault)


@pytest.mark.parametrize("kind", KINDS)
def test_the_story_is_the_same_each_time(kind):
    assert tell(KINDS[kind]).calls == tell(KINDS[kind]).calls


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_at_one_call_loses_nothing_and_repeats_nothing(kind):
    found = cases(kind)
    assert len(found) > 4000, "the story has become shorter"
    for number, fault in random.Random(SEED).sample(found, SAMPLES[kind]):
        tell(KINDS[kind], number, fault)


def test_batches_that_are_written_twice_would_be_found(monkeypatch):
    monkeypatch.setattr(producers, "is_replay", lambda *_: False)
    calls = tell(ON_THE_ROOT).calls
    number = next(
        number
        for number, call in enumerate(calls)
        if call.step == "write 3" and call.call == "create" and "/t/" in call.key and "journal/entries/" in call.key
    )
    with pytest.raises(AssertionError):
        tell(ON_THE_ROOT, number, Fault.KILL_AFTER)


def test_a_lost_answer_that_is_taken_for_a_refusal_would_be_found(monkeypatch):
    def propose(self, n, data, *, shared=False):
        return data if self._store.create(self._key(n), data) else self.read(n)

    monkeypatch.setattr(single_store.EntryLog, "propose", propose)
    calls = tell(ON_THE_ROOT).calls
    number = next(
        number
        for number, call in enumerate(calls)
        if call.step == "write nameless" and call.call == "create" and "/t/" in call.key and "entries/" in call.key
    )
    with pytest.raises(AssertionError):
        tell(ON_THE_ROOT, number, Fault.LOST_ANSWER)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.value)
def test_one_lie_of_a_store_that_was_tested_gives_the_right_rows_or_an_error(kind, lie):
    calls = tell(KINDS[kind]).calls
    found = [number for number, call in enumerate(calls) if call.step not in {"found", "check"} and lie in call.lies()]
    for number in random.Random(SEED).sample(found, LIES_TOLD[kind]):
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


def failure_of(case):
    """Return what is wrong after a case, empty if nothing is."""
    kind, number, fault = case
    try:
        tell(KINDS[kind], number, fault)
    except Exception:  # noqa: BLE001 -- told by the caller
        return traceback.format_exc()
    return ""


def main(kinds):
    """Try all cases; print those that fail, and return how many do."""
    logging.disable(logging.CRITICAL)
    failed = 0
    for kind in kinds or KINDS:
        begun, every = time.monotonic(), [(kind, *each) for each in cases(kind)]
        with multiprocessing.Pool(os.cpu_count()) as pool:
            for case, failure in zip(every, pool.imap(failure_of, every, chunksize=8), strict=True):
                if failure:
                    failed += 1
                    print(case, failure, sep="\n", flush=True)
        print(f"{kind}: {len(every)} cases in {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
