"""No order of joins, leaves, expiries and zombies lets a fenced member commit, or gives a partition two owners.

`PYSPARK_LOG_MODEL=large` searches wider bounds, for some minutes. `-rP` shows the numbers of states, and the
counterexamples of the wrong variants.
"""

import os

import pytest

from tests.support.coordinator.group_model import COOPERATIVE, Flaws, Model

LARGE = os.environ.get("PYSPARK_LOG_MODEL") == "large"
PAIR = {"A": "", "B": ""}
THREE = PAIR | {"C": ""}
STATIC = {"A": "", "B": "b", "B2": "b"}
"""B2 is the process that starts when B is restarted: both have the `group.instance.id` b."""


def search(**bounds):
    result = Model(**bounds).search()
    print(f"{bounds}: {result.states} states, {result.steps} steps, {result.accepted} commits accepted")
    print(result.violation, *result.story, sep="\n    ")
    return result


def assert_holds(result):
    assert result.violation is None, "\n".join([result.violation, *result.story])
    # A search in which hardly a commit is accepted would find nothing wrong either.
    assert result.accepted > result.states / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds",
    [
        {"processes": THREE, "generations": 3},
        {"processes": STATIC, "generations": 3},
        {"processes": PAIR, "generations": 4, "protocol": COOPERATIVE},
    ],
    ids=str,
)
def test_a_partition_has_one_owner_and_only_the_owner_commits(bounds):
    assert_holds(search(**bounds))


@pytest.mark.skipif(not LARGE, reason="takes some minutes: PYSPARK_LOG_MODEL=large runs it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    [
        {"processes": THREE, "generations": 5},
        {"processes": STATIC, "generations": 5},
        {"processes": THREE, "generations": 3, "protocol": COOPERATIVE},
        {"processes": STATIC, "generations": 4, "protocol": COOPERATIVE},
    ],
    ids=str,
)
def test_wider_bounds_change_nothing(bounds):
    assert_holds(search(**bounds))


@pytest.mark.parametrize(
    ("flaws", "bounds", "violation"),
    [
        (Flaws(lease=True), {}, "A commits t0 for generation 1, and in generation 2 B owns it"),
        (Flaws(any_generation=True), {}, "A commits t2 for generation 1, and in generation 2 B owns it"),
        (Flaws(free_in_rebalance=True), {}, "A commits t0 for generation 1, and in generation 3 B owns it"),
        (Flaws(early_generation=True), {}, "A commits t2 for generation 2, and in generation 2 B owns it"),
        (Flaws(one_phase=True), {"protocol": COOPERATIVE}, "B is given t2, which A has not given up"),
    ],
    ids=["a lease", "any generation", "a commit in a rebalance", "a generation without its assignment", "one phase"],
)
def test_a_wrong_variant_has_a_counterexample(flaws, bounds, violation):
    assert search(processes=PAIR, generations=4, flaws=flaws, stolen=True, **bounds).violation == violation
