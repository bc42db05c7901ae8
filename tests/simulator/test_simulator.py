"""A hundred and forty simulated worlds, each chosen by its seed.

A failing one is replayed by the command that is printed.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.run import run

OPERATIONS = 2000
SEEDS = 140
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
def test_the_seeds_reach_what_they_are_for():
    counts = counts_of(range(0, 72, 2))
    for what in ("batches", "batch reads", "micro-batches read", "crashes", "zombies", "fenced", "strays", "StaleFile"):
        assert counts[what] > 0, what
    for what in ("rewinds", "acks=all", "acks=1", "acks=0"):
        assert counts[what] > 0, what


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ONE_JOURNAL % 4, THREE_JOURNALS % 4])
def test_the_seeds_reach_what_happens_to_nodes(kind):
    counts = counts_of(range(kind, SEEDS, 4))
    for what in ("silent", "slow", "read-only", "unmounted", "wiped", "restored", "lost file", "flipped", "renewed"):
        assert counts[what] > 0, what
    for what in ("LeaderElected", "IsrShrunk", "ReplicasFenced", "ReplicasAltered", "SegmentStaged"):
        assert counts[what] > 0, what
    for what in ("copied", "isr worlds", "quorum worlds", "acks=all", "acks=1", "acks=0"):
        assert counts[what] > 0, what
    for what in ("batches", "batch reads", "micro-batches read", "crashes", "zombies", "NotEnoughReplicas"):
        assert counts[what] > 0, what


@pytest.mark.slow
def test_the_seeds_reach_elections_that_cut_rows():
    assert counts_of(range(1, SEEDS, 2))["RowsLost"] > 0


@pytest.mark.slow
def test_the_seeds_reach_tables():
    counts = counts_of(range(SEEDS))
    assert counts["versions of tables"] > SEEDS
    assert counts["rows of tables"] > SEEDS
    assert counts["conversions to Parquet"] > 10


@pytest.mark.slow
def test_the_seeds_reach_compacted_topics():
    counts = counts_of(range(SEEDS))
    for what in ("folds", "merges", "rewrites", "tombstones dropped", "keyed swaps refused", "keyed segments staged"):
        assert counts[what] > 10, what
    for what in ("newest rows read of keyed segments", "newest rows read at a version", "newest rows refused"):
        assert counts[what] > 10, what
    for what in ("batches repeated below the compacted end", "repeated batches refused", "policy changes"):
        assert counts[what] > 10, what
    assert counts["lags below the compacted end"] > 10


@pytest.mark.slow
def test_the_seeds_reach_groups_that_are_rewound():
    counts = counts_of(range(SEEDS))
    for what in ("offset commits", "rewound", "rewinds taken up", "offsets deleted"):
        assert counts[what] > 0, what


@pytest.mark.slow
def test_the_seeds_reach_members_that_share_the_topic():
    counts = counts_of(range(SEEDS))
    for what in ("left", "died", "fenced", "napped"):
        assert counts[f"members {what}"] > 0, what
    for what in ("StaticMemberReplaced", "MembersRemoved", "WorkAssigned", "OffsetsCommitted", "OffsetsReset"):
        assert counts[f"{what} of shared"] > 10, what
    assert counts["RewindPending of a member"] > 0
    assert counts["rewinds taken up by members"] > 0


@pytest.mark.slow
def test_the_seeds_reach_nodes_that_leave_and_journals_that_migrate():
    counts = counts_of(range(1, SEEDS, 2))
    for what in ("NodeAdded", "NodeRemoved", "taken away"):
        assert counts[what] > 0, what
    assert counts["JournalMigrationFinished"] > 2
