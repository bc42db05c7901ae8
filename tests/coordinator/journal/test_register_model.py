"""No order of answers, lost and late writes, crashes and lost stores makes two values of one entry.

`PYSPARK_LOG_MODEL=large` searches wider bounds, for about half an hour. `-rP` shows the numbers of states.
"""

import os

import pytest

from tests.support.coordinator.register_model import Flaws, Model

LARGE = os.environ.get("PYSPARK_LOG_MODEL") == "large"


def search(**bounds):
    result = Model(**bounds).search()
    named = ", ".join(f"{name} {bound}" for name, bound in bounds.items())
    print(f"{named}: {result.states} states, {result.steps} steps; {result.decided} decided, {result.ended} ended")
    return result


def assert_holds(result):
    assert result.violation is None, "\n".join([result.violation, *result.scenario])
    # A search in which nothing was ever decided or answered would find nothing wrong either.
    assert result.decided > result.states / 2
    assert result.ended > result.states / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        {"proposers": 2, "ballots": 1, "losses": 1},
        {"proposers": 2, "ballots": 1, "damages": 1},
        {"proposers": 2, "ballots": 2},
        {"proposers": 3, "ballots": 1},
        {"proposers": 2, "ballots": 1, "readers": 1, "leader_claims": False},
    ],
    ids=str,
)
def test_one_value_at_most_is_decided_and_answers_stay_true(bounds):
    assert_holds(search(**bounds))


@pytest.mark.slow
@pytest.mark.skipif(not LARGE, reason="takes half an hour: PYSPARK_LOG_MODEL=large runs it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    [
        {"proposers": 2, "ballots": 2, "losses": 1},
        {"proposers": 2, "ballots": 2, "damages": 1},
        {"proposers": 2, "ballots": 3},
        {"proposers": 3, "ballots": 1, "losses": 1},
        {"proposers": 2, "ballots": 1, "readers": 1, "losses": 1},
        {"proposers": 2, "ballots": 2, "readers": 1, "leader_claims": False},
    ],
    ids=str,
)
def test_wider_bounds_change_nothing(bounds):
    assert_holds(search(**bounds))


FLAWS = {
    "votes are read, not closed": ({}, Flaws(close_writes_nothing=True)),
    "a ballot may have two owners": ({"ballots": 2}, Flaws(claims_are_not_counted=True)),
    "everybody may fill vote 0": ({}, Flaws(everybody_leads=True)),
    "the value found is not proposed again": ({}, Flaws(highest=lambda _: None)),
    "a wiped store counts": ({"losses": 1}, Flaws(marker_is_not_read=True)),
    "a damaged register counts as an empty one": ({"damages": 1}, Flaws(damaged_is_empty=True)),
    "a register is mended from one other store": ({"damages": 1}, Flaws(mended_from=1)),
    "a restored store keeps its marker": ({"losses": 1}, Flaws(backup_keeps_its_marker=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_wrong_variant_decides_two_values(flaw):
    bounds, flaws = FLAWS[flaw]
    result = Model(**{"proposers": 2, "ballots": 1} | bounds, flaws=flaws).search()
    print(f"{flaw}: {result.violation}, found after {result.states} states", *result.scenario, sep="\n    ")
    assert result.violation == "two values are decided: p and q"


def test_without_markers_a_reader_misses_what_was_decided():
    flaws = Flaws(marker_is_not_read=True)
    result = Model(proposers=1, ballots=1, readers=1, losses=1, flaws=flaws).search()
    assert result.violation == "reader 1 finds nothing decided, and p was, before it began"
