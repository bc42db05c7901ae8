"""The torture works: some seconds of it."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_a_log_that_is_tortured_for_some_seconds_is_as_it_must_be():
    command = [sys.executable, "-m", "tests.torture", "--minutes", "0.3", "--seed", str(random.randrange(10**6))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 acknowledged" not in done.stdout
