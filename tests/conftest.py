"""What all tests share: one Spark session, and the environment in which Spark finds this repository.

The environment is set when this module is imported, so that drivers which a test starts as processes of
their own have it too. A test that hangs is ended by pytest-timeout (`timeout` in pyproject.toml).
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
PACKAGE_FOLDERS = [str(ROOT), str(ROOT / "storage"), str(ROOT / "coordinator")]

# A shell starts what runs in the background with Ctrl-C ignored, and all that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Else Spark looks for sources, and starts its workers, with whatever `python3` is.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_CONF_DIR"] = str(ROOT / "spark-conf")
# Spark's workers, and other processes, find the packages even where they are not installed.
os.environ["PYTHONPATH"] = os.pathsep.join([*PACKAGE_FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def tracebacks_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that reaches an entry point hides tracebacks in its process: here that may be the tests' own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Java, so that `-m 'not spark'` runs the rest."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or ROOT / "tests" / "spark" in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one session of the run, set up by spark-conf/spark-defaults.conf."""
    from pyspark.sql import SparkSession

    warehouse = tmp_path_factory.mktemp("warehouse")
    session = SparkSession.builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    # Without its JVM, no warning of a thread that is late comes after pytest's closing line.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
