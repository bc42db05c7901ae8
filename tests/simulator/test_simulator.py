"""Two hundred simulated worlds, each chosen by its seed. A failing one is replayed by the command that is printed."""

import pytest

from tests.simulator.run import run

OPERATIONS = 2000
SEEDS = 200
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_whatever_goes_wrong_the_invariants_hold(first):
    for seed in range(first, first + SEEDS_A_TEST):
        result = run(seed, OPERATIONS)
        again = f"python -m tests.simulator --seed {seed} --operations {OPERATIONS}"
        assert result.failure is None, f"seed {seed}: {result.failure!r}; replay with: {again}"


def test_a_seed_is_replayed_step_by_step():
    first, second, other = run(7, OPERATIONS), run(7, OPERATIONS), run(8, OPERATIONS)
    assert first.digest == second.digest
    assert first.counts == second.counts
    assert first.digest != other.digest


def test_the_seeds_reach_what_they_are_for():
    counts = sum((run(seed, OPERATIONS).counts for seed in range(30)), start=run(30, OPERATIONS).counts)
    for what in ("batches", "batch reads", "micro-batches read", "crashes", "zombies", "fenced", "strays", "StaleFile"):
        assert counts[what] > 0, what
