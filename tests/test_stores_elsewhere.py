"""A sample of the tests passes with its stores in a bucket, and on stores with faults (`tests.support.elsewhere`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import elsewhere
from tests.support.elsewhere import KIND

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parent.parent
SAMPLES = {
    "s3": ["tests/pyspark_log/writing/test_commit.py", "tests/coordinator/commit/test_combined_commit.py"],
    "chaos": ["tests/pyspark_log/writing/test_commit.py", "tests/coordinator/sync/test_catch_up.py"],
}
"""What is different there: entries of which the answer is lost, and journals without spares."""


@pytest.mark.skipif(KIND != "local", reason="all tests run there")
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_sample_of_the_tests_passes_elsewhere(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    environment = os.environ | {"PYSPARK_LOG_STORE": kind}
    if kind == "s3":
        environment |= elsewhere.access_to(request.getfixturevalue("ceph"))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    again = ["--reruns=8", f"--only-rerun={elsewhere.MADE_ON_PURPOSE}"]
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", *again]
    command = [sys.executable, "-m", "pytest", *SAMPLES[kind], *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"stores were {kind}: " in done.stdout
    assert " 0 of the " not in done.stdout
