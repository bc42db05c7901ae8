"""Shared fixtures, and how the tests are divided among processes.

The environment is set on import, so that programs started by tests inherit it. pytest-timeout ends a test that hangs
(`timeout` in pyproject.toml).

`make test` runs the default ring of the tests, `make prove` the deep one (tests/support/rings.py). Both run several
processes with pytest-xdist (`--dist=loadfile`). The tests of a file stay in one process, and each process has a Spark
session of its own. Those that need it are dispatched first, the longest of them before all.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from unittest import mock

import pytest

from tests.support import class_archive, rings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.running import Server

# Only `make prove` installs what these import.
collect_ignore = [] if importlib.util.find_spec("playwright") else ["browser"]

ROOT = Path(__file__).parent.parent
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30
PACKAGE_FOLDERS = [str(ROOT), str(ROOT / "storage"), str(ROOT / "coordinator")]
WITHOUT_PANDAS = str(ROOT / "tests" / "without_pandas")

# pytest-timeout ends tests that hang. `make prove` repeats properties with more examples. The oldest Spark is tested
# without hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("sample", deadline=None, max_examples=30)
    settings.register_profile("all", deadline=None, max_examples=200)
    settings.load_profile("sample")

# A shell starts background jobs with SIGINT ignored, and the programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Far from UTC, so that a time that is taken for one of the local time zone is another one. Spark inherits it.
os.environ["TZ"] = "Asia/Tokyo"
time.tzset()
# Most tests spend more time flushing files than computing. tests/storage stays on the disk.
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
class_archive.make_home()
os.environ.update(class_archive.environment())
# Otherwise Spark starts its workers, and looks for sources, with the first `python3` on the path.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
# Spark's workers and other programs find the packages even if they are not installed, and do not find pandas.
_paths = [WITHOUT_PANDAS, *PACKAGE_FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(_paths)


@pytest.fixture(autouse=True)
def tracebacks_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what an entry point does on an error: it hides tracebacks in its process, here in the tests' own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.fixture(autouse=True)
def no_process_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test of the default ring start no process, which is what made the suite slow, unless it is in the list."""
    node = request.node
    if node.get_closest_marker(rings.DEEP) or node.path.relative_to(ROOT / "tests").as_posix() in rings.WITH_PROCESSES:
        return

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail("it starts a process: mark it `deep`, or see WITH_PROCESSES in tests/support/rings.py")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(os, "fork", refuse)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its ring, the limit of the ring and its other marks, and put the longest first."""
    for item in items:
        folder = "/".join(item.path.relative_to(ROOT / "tests").parts[:-1])
        ring = rings.ring_of(item, folder)
        item.add_marker(ring)
        if ring == rings.DEEP and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(rings.DEEP_SECONDS_MAX))
        if has_session(item) or folder.partition("/")[0] == "spark":
            item.add_marker(pytest.mark.spark)
            if item.config.pluginmanager.hasplugin("rerunfailures"):
                item.add_marker(pytest.mark.flaky(reruns=3, only_rerun=[class_archive.TOO_BUSY]))
        if ring == rings.DEFAULT and rings.is_quick(item, folder):
            item.add_marker(rings.QUICK)
    items.sort(key=dispatch_order)


def dispatch_order(item: pytest.Item) -> int:
    """Return the rank of a test: long ones are dispatched first, so that all processes end at about the same time."""
    slow, spark = (item.get_closest_marker(name) is not None for name in ("slow", "spark"))
    ranks = [slow and has_session(item), has_session(item), spark, slow]
    return ranks.index(True) if True in ranks else len(ranks)


def has_session(item: pytest.Item) -> bool:
    """Whether a test uses the Spark session."""
    return "spark" in getattr(item, "fixturenames", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines that tests recorded for the summary."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one session of the process, set up by spark-conf/spark-defaults.conf."""
    from pyspark.sql import SparkSession

    warehouse = tmp_path_factory.mktemp("warehouse")
    session = SparkSession.builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    yield session
    jvm = session.sparkContext._gateway.proc
    session.stop()
    # Without the JVM, no late warning of its threads follows pytest's last line.
    jvm.stdin.close()
    jvm.wait()


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> "Server":
    """The S3 server that all processes of the run share: Ceph's."""
    from tests.servers.running import ceph_in

    own = tmp_path_factory.getbasetemp()
    return ceph_in((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "ceph")


@pytest.fixture(scope="session")
def ceph_bucket(ceph: "Server") -> str:
    """A bucket of Ceph's, of this process."""
    return ceph.new_bucket()


@pytest.fixture(scope="session")
def moto() -> Iterator["Server"]:
    """A second S3 server, which starts at once: moto's."""
    threaded = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    from moto.s3.responses import S3Response

    from tests.servers.running import Server

    put, one = S3Response.put_object, threading.Lock()

    def put_alone(self: S3Response) -> object:
        with one:  # it looks whether the object exists, and then creates it: on a busy machine two would
            return put(self)

    threaded.start()
    host, port = threaded.get_host_and_port()
    with mock.patch.object(S3Response, "put_object", put_alone):
        yield Server(f"http://{host}:{port}", "moto", "moto")
    threaded.stop()
