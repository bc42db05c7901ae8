"""No order of writes, copies, crashes, wiped disks and elections loses what was acknowledged, or makes replicas differ.

`PYSPARK_LOG_MODEL=large` searches wider bounds, for some minutes. `-rP` shows the numbers of states, and the
counterexamples of the wrong variants.
"""

import os

import pytest

from tests.support.coordinator.replica_disks import by_high_watermark, by_one_question
from tests.support.coordinator.replica_model import Flaws, Model

LARGE = os.environ.get("PYSPARK_LOG_MODEL") == "large"
PAIR = {"nodes": "AB"}


def search(**bounds):
    result = Model(**bounds).search()
    named = ", ".join(f"{name} {bound}" for name, bound in bounds.items())
    print(
        f"{named}: {result.states} states, {result.steps} steps; {result.committed} committed, {result.elected} elected"
    )
    return result


def assert_holds(result):
    assert result.violation is None, "\n".join([result.violation, *result.scenario])
    # A search without commits or elections would find nothing wrong either.
    assert result.committed > result.states / 10
    assert result.elected > result.states / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        {"rows": 2, "epochs": 1, "min_insync": 2},
        {"rows": 1, "epochs": 1, "min_insync": 2, "wipes": 1},
        PAIR | {"rows": 2, "epochs": 2, "min_insync": 1, "wipes": 1},
        PAIR | {"rows": 2, "epochs": 2, "min_insync": 2, "rebuilds": 1},
    ],
    ids=str,
)
def test_what_was_acknowledged_stays_and_replicas_are_equal(bounds):
    assert_holds(search(**bounds))


@pytest.mark.skipif(not LARGE, reason="takes some minutes: PYSPARK_LOG_MODEL=large runs it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    [
        {"rows": 2, "epochs": 2, "min_insync": 2, "wipes": 1},
        {"rows": 2, "epochs": 2, "min_insync": 1, "wipes": 1},
        {"rows": 3, "epochs": 1, "min_insync": 2},
        {"rows": 2, "epochs": 2, "min_insync": 2, "rebuilds": 1},
        PAIR | {"rows": 3, "epochs": 3, "min_insync": 2, "wipes": 1, "rebuilds": 1},
    ],
    ids=str,
)
def test_wider_bounds_change_nothing(bounds):
    assert_holds(search(**bounds))


def counterexample(flaws, invariant, **bounds):
    """Return the violation that a wrong variant comes to, printed as a story."""
    result = Model(**PAIR, min_insync=2, flaws=flaws, invariants=[invariant], **bounds).search()
    print(f"{result.violation}, found after {result.states} states", *result.scenario, sep="\n    ")
    return result.violation


def test_a_node_that_cuts_by_the_high_watermark_loses_an_acknowledged_row():
    violation = counterexample(Flaws(truncation=by_high_watermark), "acknowledged rows stay", rows=1, epochs=1)
    assert violation == "row 0 was acknowledged with acks=all, and no store that is left of the ISR has it"


def test_a_node_that_takes_the_answer_for_the_epoch_it_asked_for_keeps_rows_of_another_history():
    violation = counterexample(Flaws(truncation=by_one_question), "replicas are equal", rows=2, epochs=2, rebuilds=1)
    assert violation == "B is said to hold row 0 at offset 0, and holds [1@1]"


def test_a_high_watermark_that_ignores_min_insync_replicas_shows_a_row_that_one_store_takes_with_it():
    violation = counterexample(Flaws(any_isr_commits=True), "committed rows stay", rows=1, epochs=1, wipes=1)
    assert violation == "row 0 is below the HW, and no store has it"
