"""A hundred and forty simulated worlds, each chosen by its seed.

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

OPERATIONS = 2000
SEEDS = probes.ENOUGH
SEEDS_A_TEST = 20
ONE_STORE, ONE_JOURNAL, THREE_JOURNALS = 8, 5, 7
"""A seed of each kind of world."""


@functools.cache
def result_of(seed):
    return run(seed, OPERATIONS)


def counts_of(seeds):
    first, *others = (result_of(seed).counts for seed in seeds)
    return sum(others, start=first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_whatever_goes_wrong_the_invariants_hold(first):
    for seed in range(first, first + SEEDS_A_TEST):
        result = result_of(seed)
        again = f"python -m tests.simulator --seed {seed} --operations {OPERATIONS}"
        assert result.failure is None, f"seed {seed}: {result.failure!r}; replay with: {again}"


@pytest.mark.parametrize("seed", [ONE_STORE, ONE_JOURNAL, THREE_JOURNALS])
def test_a_seed_is_replayed_step_by_step(seed):
    first, second, other = result_of(seed), run(seed, OPERATIONS), result_of(seed + 4)
    assert first.digest == second.digest
    assert first.counts == second.counts
    assert first.digest != other.digest


def test_a_seed_is_replayed_in_another_process():
    seeds = [ONE_STORE, ONE_JOURNAL, THREE_JOURNALS]
    code = f"from tests.simulator.run import run\nfor seed in {seeds}: print(run(seed, {OPERATIONS}).digest)"
    hashes = str(int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) + 1)
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [result_of(seed).digest for seed in seeds]


@pytest.mark.slow
def test_the_seeds_reach_every_probe():
    counts = counts_of(range(probes.ENOUGH))
    assert probes.unreached(counts) == []
    for what in ("RowsLost", "JournalMigrationFinished", "conversions to Parquet", *probes.COMPACTION):
        assert counts[what] > 2, what


def test_a_run_can_be_recorded_with_its_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(simulator, "RECORD", tmp_path / "worlds.tsv")
    monkeypatch.setattr(simulator, "_commit", lambda: "0123456789ab")
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "4..6", "--operations", "100", "--record"])
    assert simulator.main() == 0
    assert (tmp_path / "worlds.tsv").read_text().split("\t")[1:] == ["0123456789ab", "4..6", "100", "0\n"]


def test_more_worlds_begin_after_all_that_are_recorded(monkeypatch, tmp_path, capsys):
    record = tmp_path / "worlds.tsv"
    record.write_text("day\tcommit\tseeds\toperations\tfailed\nd\tc\t0..7\t9\t0\nd\tc\t2..5\t9\t0\n")
    monkeypatch.setattr(simulator, "RECORD", record)
    monkeypatch.setattr(sys, "argv", ["simulator", "--more", "1", "--operations", "100"])
    assert simulator.main() == 0
    assert capsys.readouterr().out.startswith("1 seeds from 7 on")


def test_an_interrupt_is_no_failure_of_the_world_that_it_comes_in():
    def interrupted(process):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ONE_STORE, 100, onlooker=interrupted)


def test_a_probe_that_no_world_reaches_fails_the_run(monkeypatch, capsys):
    monkeypatch.setattr(probes, "ENOUGH", 1)
    monkeypatch.setattr(probes, "PROBES", ("batches", "nothing"))
    monkeypatch.setattr(sys, "argv", ["simulator", "--seeds", "0..1", "--operations", "200"])
    assert simulator.main() == 1
    assert "not reached: nothing" in capsys.readouterr().out
