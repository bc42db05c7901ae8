"""The torture works: a few seconds of it, and of Jepsen's experiment with bits that flip."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.bit_flips import flip_bits

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.on_disk("it damages files")]


def test_a_log_that_is_tortured_for_some_seconds_is_as_it_must_be():
    command = [sys.executable, "-m", "tests.torture", "--minutes", "0.05", "--seed", str(random.randrange(10**6))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 acknowledged" not in done.stdout


def test_bits_that_flip_on_two_of_five_nodes_lose_no_acknowledged_row(tmp_path):
    sent, acknowledged, flips, lost = flip_bits(tmp_path, 30_000, 2, seed=1)
    assert (acknowledged, lost) == (sent, 0)
    assert flips > 20
