"""No order of answers, lost and late writes, crashes and lost stores makes two values of one entry.

`PYSPARK_LOG_MODEL=large` searches wider bounds, too, for about half an hour. `-rP` shows the numbers of states.
"""

import os

import pytest

from tests.support.coordinator.register_model import Flaws, Model
from tests.support.rings import deep

PAIR = {"proposers": 2, "ballots": 1}
WIDER = [
    {"proposers": 2, "ballots": 2, "losses": 1},
    {"proposers": 2, "ballots": 2, "damages": 1},
    {"proposers": 2, "ballots": 3},
    {"proposers": 3, "ballots": 1, "losses": 1},
    PAIR | {"readers": 1, "losses": 1},
    {"proposers": 2, "ballots": 2, "readers": 1, "leader_claims": False},
]
DEEP = [
    PAIR | {"damages": 1},
    {"proposers": 2, "ballots": 2},
    {"proposers": 3, "ballots": 1},
    PAIR | {"readers": 1, "leader_claims": False},
    *(WIDER if os.environ.get("PYSPARK_LOG_MODEL") == "large" else []),
]
FLAWS = {
    "votes are read, not closed": ({}, Flaws(close_writes_nothing=True)),
    "a ballot may have two owners": ({"ballots": 2}, Flaws(claims_are_not_counted=True)),
    "everybody may fill vote 0": ({}, Flaws(everybody_leads=True)),
    "the value found is not proposed again": ({}, Flaws(highest=lambda _: None)),
    "a wiped store counts": ({"losses": 1}, Flaws(marker_is_not_read=True)),
}


def search(bounds, **flaws):
    result = Model(**bounds, **flaws).search()
    print(f"{bounds}: {result.states} states; {result.decided} decided, {result.ended} ended")
    print(result.violation, *result.scenario, sep="\n    ")
    return result


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    [PAIR | {"losses": 1}, {"proposers": 1, "ballots": 1, "readers": 1, "damages": 1}, *map(deep, DEEP)],
    ids=str,
)
def test_one_value_at_most_is_decided_and_answers_stay_true(bounds):
    result = search(bounds)
    assert result.violation is None, "\n".join([result.violation, *result.scenario])
    # A search in which nothing was ever decided or answered would find nothing wrong either.
    assert result.decided > result.states / 2
    assert result.ended > result.states / 10


@pytest.mark.slow
@pytest.mark.parametrize("flaw", [deep(each) if "ballots" in FLAWS[each][0] else each for each in FLAWS])
def test_a_wrong_variant_decides_two_values(flaw):
    bounds, flaws = FLAWS[flaw]
    assert search(PAIR | bounds, flaws=flaws).violation == "two values are decided: p and q"


def test_without_markers_a_reader_misses_what_was_decided():
    bounds = {"proposers": 1, "ballots": 1, "readers": 1, "losses": 1}
    result = search(bounds, flaws=Flaws(marker_is_not_read=True))
    assert result.violation == "reader 1 finds nothing decided, and p was, before it began"
