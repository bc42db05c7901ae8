"""The timelines of simulated worlds while they live: each event has words, in the order of the journals."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from pyspark_log_coordinator.audit import timeline
from pyspark_log_storage.errors import LogError
from tests.simulator.run import run

OPERATIONS = 1000


def look_on(process):
    """Look at the timelines of a world repeatedly, as the page does."""
    known, settings = {}, process.world.settings
    # A process that has asked a store for the time may have slept before it took the answer.
    skew = settings.skew_seconds + (settings.weather.sleep_seconds_max if settings.far_clocks else 0)
    while process.world.busy:
        process.wait(0.05)
        try:
            process.open(create=False)
            log = process.log
            for handle in [log, *map(log.topic, log.topics()), *map(log.group, log.groups())]:
                look(process, handle, known, 1 + int(2000 * skew))
        except LogError:
            process.world.counts["timelines that could not be read"] += 1


def look(process, handle, known, skew_ms):
    before = known.get(handle)
    told = list(timeline.moments(handle, before.entry if before is not None else 0))
    for former, each in itertools.pairwise(([] if before is None else [before]) + told):
        assert former.entry <= each.entry, (former, each)
        # Clocks differ, and the writer of a later entry may be behind.
        assert former.time_ms <= each.time_ms + skew_ms, (former, each)
    for each in told:
        assert each.words == each.words.strip() != ""
        assert not {"{", "<", "None"} & set(each.words.replace("'", " ").split()), each
    if told:
        process.world.counts["moments"] += len(told)
        known[handle] = told[-1]
        found = timeline.entry_of(handle, told[-1].entry)
        if found is not None:  # as it is if the entry was trimmed meanwhile
            time_ms, events = found
            assert time_ms == told[-1].time_ms
            assert all(each["event"] for each in msgspec.json.decode(msgspec.json.encode(events)))


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 25, 5))
def test_the_timelines_of_worlds_have_words_in_the_order_of_the_journals(first):
    results = [run(seed, OPERATIONS, onlooker=look_on) for seed in range(first, first + 5)]
    assert not [each.failure for each in results if each.failure is not None]
    # A world may end before the onlooker finds its log.
    assert sum(each.counts["moments"] > 0 for each in results) >= 3
