"""Simulated worlds, each chosen by its seed: whatever goes wrong in them, the invariants hold.

A failing one is replayed by the command that is printed.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator import __main__ as simulator
from tests.simulator import probes
from tests.simulator.run import run
from tests.support.rings import deep, sample

OPERATIONS = 2000
SEEDS = range(probes.ENOUGH)
IN_DEFAULT_RING = 22
"""So many, evenly chosen, are of all kinds: compacted, with groups, moves, quorums, unclean elections."""
RARE = (143, 875)
"""Worlds where the journal of a group with members moves, and where a batch is on too few replicas."""
ONE_STORE, ONE_JOURNAL, THREE_JOURNALS = 6, 57, 63
"""A seed of each kind of world."""

pytestmark = pytest.mark.timeout(300)  # a world takes up to 7 s of processor time, on a busy machine much longer


@functools.cache
def result_of(seed):
    return run(seed, OPERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample(SEEDS, IN_DEFAULT_RING))
def test_whatever_goes_wrong_the_invariants_hold(seed):
    failure = result_of(seed).failure
    again = f"python -m tests.simulator --seed {seed} --operations {OPERATIONS}"
    assert failure is None, f"seed {seed}: {failure!r}; replay with: {again}"


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_seeds_reach_every_probe():
    counts = sum((result_of(seed).counts for seed in (*SEEDS[1:], *RARE)), start=result_of(SEEDS[0]).counts.copy())
    assert probes.unreached(counts) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [ONE_STORE, deep(ONE_JOURNAL), THREE_JOURNALS])
def test_a_seed_is_replayed_step_by_step(seed):
    first, second = result_of(seed), run(seed, OPERATIONS)
    assert first.digest == second.digest
    assert first.counts == second.counts
    assert first.digest != run(seed, 100).digest


@pytest.mark.deep
def test_a_seed_is_replayed_in_another_process():
    seeds = [ONE_STORE, ONE_JOURNAL, THREE_JOURNALS]
    code = f"from tests.simulator.run import run\nfor seed in {seeds}: print(run(seed, {OPERATIONS}).digest)"
    hashes = str(int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) + 1)
    root, environment = Path(__file__).parents[2], os.environ | {"PYTHONHASHSEED": hashes}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [result_of(seed).digest for seed in seeds]


def test_a_probe_that_no_world_reaches_fails_the_run(monkeypatch, capsys):
    monkeypatch.setattr(probes, "ENOUGH", 1)
    monkeypatch.setattr(probes, "PROBES", ("batches", "nothing"))
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "0..1", "--operations", "200"])
    assert simulator.main() == 1
    assert "not reached: nothing" in capsys.readouterr().out
