"""Hosts that share a file system or a bucket: one of them is cut off for some seconds, and nothing is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines.__main__ import why_not
from tests.machines.file_systems import KINDS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.deep


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_a_host_that_is_cut_off_loses_nothing_and_goes_on(name, kind):
    if reason := why_not(kind):
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.machines", "--only", name, "--attack", "shortly"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 violations" in done.stdout
