"""The timelines of fifty simulated worlds while they live: each event has words, in the order of the journals."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest

from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Lane, Scope
from pyspark_log_storage.errors import LogError
from tests.simulator.run import run

OPERATIONS = 1000
WORLDS = 50
WORLDS_A_TEST = 25


class Onlooker:
    """Looks at the timelines of a world repeatedly, as the page does, and keeps the events that they show."""

    def __init__(self):
        self.lanes = Counter()
        self.scopes = Counter()

    def __call__(self, process):
        known = {}
        while process.world.busy:
            process.wait(0.05)
            try:
                process.open(create=False)
                log = process.log
                handles = [
                    log,
                    *(log.topic(name) for name in log.topics()),
                    *(log.group(name) for name in log.groups()),
                ]
                for handle in handles:
                    self.look(handle, known, 1 + int(2000 * process.world.settings.skew_seconds))
            except LogError:
                process.world.counts["timelines that could not be read"] += 1

    def look(self, handle, known, skew_ms):
        before = known.get(handle)
        told = list(timeline.moments(handle, before.entry if before is not None else 0))
        for former, each in itertools.pairwise(([] if before is None else [before]) + told):
            assert former.entry <= each.entry, (former, each)
            # Clocks differ, and the writer of a later entry may be behind.
            assert former.time_ms <= each.time_ms + skew_ms, (former, each)
        for each in told:
            assert each.words == each.words.strip() != ""
            assert not {"{", "<", "None"} & set(each.words.replace("'", " ").split()), each
            self.lanes[each.lane] += 1
            self.scopes[each.scope] += 1
        if told:
            known[handle] = told[-1]
            found = timeline.entry_of(handle, told[-1].entry)
            if found is not None:  # as it is if the entry was trimmed meanwhile
                time_ms, events = found
                assert time_ms == told[-1].time_ms
                assert all(each["event"] for each in msgspec.json.decode(msgspec.json.encode(events)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, WORLDS, WORLDS_A_TEST))
def test_the_timelines_of_a_world_have_words_in_the_order_of_the_journals(first):
    onlooker = Onlooker()
    for seed in range(first, first + WORLDS_A_TEST):
        result = run(seed, OPERATIONS, onlooker=onlooker)
        if result.failure is not None:
            raise AssertionError(f"seed {seed}") from result.failure
    assert set(onlooker.scopes) == set(Scope)
    assert set(onlooker.lanes) == set(Lane), set(Lane) - set(onlooker.lanes)
