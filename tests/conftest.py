"""Shared fixtures, and how the tests are divided among processes.

The environment is set on import, so that programs started by tests inherit it. pytest-timeout ends a test that hangs
(`timeout` in pyproject.toml).

`make test` runs several processes with pytest-xdist (`--dist=loadgroup`). Tests that share an expensive fixture stay in
one process: those with the Spark session, and those of a module with a module fixture.
"""

import atexit
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
PACKAGE_FOLDERS = [str(ROOT), str(ROOT / "storage"), str(ROOT / "coordinator")]
IS_XDIST_WORKER = "PYTEST_XDIST_WORKER" in os.environ

# A shell starts background jobs with SIGINT ignored, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def make_spark_home() -> str:
    """Make a Spark home without pyspark.zip: each Python worker would compile the modules it imports from there."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = tempfile.mkdtemp(prefix="spark-home-")
    for part in ("bin", "jars"):
        os.symlink(Path(found.origin).parent / part, Path(home) / part)
    atexit.register(shutil.rmtree, home)
    return home


# Most tests spend more time flushing files than computing. tests/storage stays on the disk.
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
if not IS_XDIST_WORKER:  # the workers inherit it
    os.environ["SPARK_HOME"] = make_spark_home()
# The client compiler and the serial collector start sooner; most JVMs here live for seconds.
os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Otherwise Spark starts its workers, and looks for sources, with the first `python3` on the path.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_CONF_DIR"] = str(ROOT / "spark-conf")
# Spark's workers and other programs find the packages even if they are not installed.
os.environ["PYTHONPATH"] = os.pathsep.join([*PACKAGE_FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def tracebacks_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what an entry point does on an error: it hides tracebacks in its process, here in the tests' own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, which reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make quick` leaves out, group those that share a fixture, and put the longest first."""
    for item in items:
        if ROOT / "tests" / "processes" in item.path.parents:
            item.add_marker(pytest.mark.slow)
        if has_session(item) or ROOT / "tests" / "spark" in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if has_session(item):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif shares_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=dispatch_order)


def dispatch_order(item: pytest.Item) -> int:
    """Return the rank of a test: long ones are dispatched first, so that all processes end at about the same time."""
    ranks = [
        has_session(item),  # the longest group
        item.get_closest_marker("spark") is not None,
        item.get_closest_marker("slow") is not None,
        item.get_closest_marker("xdist_group") is not None,
    ]
    return ranks.index(True) if True in ranks else len(ranks)


def has_session(item: pytest.Item) -> bool:
    """Whether a test uses the Spark session."""
    return "spark" in getattr(item, "fixturenames", ())


def shares_fixture(item: pytest.Item) -> bool:
    """Whether a test shares a fixture with others of its module."""
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definition.scope == "module" for definitions in fixtures for definition in definitions)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remove the group that pytest-xdist appends to a test's id, so that a printed id can be run again."""
    if not IS_XDIST_WORKER and report.nodeid.rfind("@") > report.nodeid.rfind("]"):
        report.nodeid = report.nodeid.rpartition("@")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines that tests recorded for the summary."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one session of the run, set up by spark-conf/spark-defaults.conf."""
    from pyspark.sql import SparkSession

    warehouse = tmp_path_factory.mktemp("warehouse")
    session = SparkSession.builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    yield session
    jvm = session.sparkContext._gateway.proc
    session.stop()
    # Without the JVM, no late warning of its threads follows pytest's last line.
    jvm.stdin.close()
    jvm.wait()
