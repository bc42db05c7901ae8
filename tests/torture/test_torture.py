"""The torture works: a few seconds of it, and of Jepsen's experiments with bits that flip and unsynced writes."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.bit_flips import flip_bits
from tests.torture.unsynced import lose_unsynced

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.on_disk("it damages files")]


def test_a_log_that_is_tortured_for_some_seconds_is_as_it_must_be():
    command = [sys.executable, "-m", "tests.torture", "--minutes", "0.3", "--seed", str(random.randrange(10**6))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 acknowledged" not in done.stdout


def test_bits_that_flip_on_two_of_five_nodes_lose_no_acknowledged_row(tmp_path):
    sent, acknowledged, flips, lost = flip_bits(tmp_path, 30_000, 2, seed=1)
    assert (acknowledged, lost) == (sent, 0)
    assert flips > 20


def test_power_that_fails_loses_no_acknowledged_row(tmp_path):
    done = lose_unsynced(tmp_path, 20_000, seed=1)
    assert (done.acknowledged, done.lost) == (20_000, 0)
    assert done.failures >= 20
    assert done.dropped > 100


def test_without_the_flushes_of_the_product_power_that_fails_loses_acknowledged_rows(tmp_path):
    for seed in range(6):  # which of the changes are lost is chance
        (folder := tmp_path / str(seed)).mkdir()
        if lose_unsynced(folder, 10_000, seed, flushes=False).lost:
            return
    raise AssertionError("nothing is lost without a flush")
