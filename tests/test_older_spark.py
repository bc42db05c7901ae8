"""What runs on the oldest supported line of Spark, for which `make facts` makes a venv: the facts of Spark, and Delta.

Delta for Spark exists for this line only. Its tests are skipped, which the summary says, if its jars cannot be had.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLDER_PYTHON = Path(os.environ.get("OLDER_SPARK_PYTHON", "nowhere"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not OLDER_PYTHON.exists(), reason="needs the older Spark that `make test` installs")
@pytest.mark.parametrize("folder", ["tests/spark_facts", "tests/delta"])
def test_it_holds_on_the_oldest_supported_line_of_spark(record_property, folder):
    done = subprocess.run(
        [OLDER_PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", folder],
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
