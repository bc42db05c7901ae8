"""The oldest supported line of Spark, for which `make facts` makes a venv."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OLDER_PYTHON = Path(os.environ.get("OLDER_SPARK_PYTHON", "nowhere"))


def on_the_older_spark(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of a whole folder on that Spark."""
    for mark in (
        pytest.mark.slow,
        pytest.mark.spark,
        pytest.mark.timeout(2400),
        pytest.mark.skipif(not OLDER_PYTHON.exists(), reason="needs the older Spark that `make prove` installs"),
    ):
        test = mark(test)
    return test


def check(folder: str, record_property: Callable[[str, str], None]) -> None:
    """Run the tests in a folder, and let the summary say how many there were and what was skipped."""
    done = subprocess.run(
        [OLDER_PYTHON, "-m", "pytest", "-m", "deep", "-q", "-p", "no:cacheprovider", "-rs", folder],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    version = [OLDER_PYTHON, "-c", "import pyspark; print(pyspark.__version__)"]
    found = subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip()
    record_property("summary", f"{folder} on Spark {found}: {done.stdout.splitlines()[-1]}")
    for line in done.stdout.splitlines():
        if line.startswith("SKIPPED"):
            record_property("summary", f"{folder}: {line}")
