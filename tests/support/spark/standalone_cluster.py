"""A standalone cluster on this machine: a master and workers as processes, and programs that are submitted to it.

The Python of its executors has the dependencies of the packages, but not the packages.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.conftest import ROOT
from tests.support import class_archive
from tests.support.bare_venv import bare_environment, bare_python
from tests.support.spark.kills import wait_for

HOST = "127.0.0.1"
PACKAGES = ["pyspark_log", "storage/pyspark_log_storage", "coordinator/pyspark_log_coordinator"]
CAPABILITIES = "-dac_override,-dac_read_search"
"""Those by which root may open every folder."""
WITHOUT_RIGHTS = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
"""Runs a command that other users' folders are closed to, although it is root's."""


@functools.cache
def may_drop_rights() -> bool:
    """Whether processes can be started here to which root's own rights are not given."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*WITHOUT_RIGHTS, "true"], capture_output=True, check=False).returncode == 0


def package_zip(folder: Path) -> Path:
    """Pack the three packages as docs/guides/clusters.md says."""
    found = folder / "packages.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", found, *PACKAGES], cwd=ROOT, check=True)
    return found


class Daemon:
    """A master or a worker with all the processes that it starts: they share a session of the operating system."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                command, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def session(self) -> int:
        return self._process.pid

    def wait_for_line(self, pattern: str) -> str:
        """Wait until it has logged a line, and return its first group."""

        def found() -> re.Match[str] | None:
            assert self._process.poll() is None, self._output.read_text()[-5000:]
            return re.search(pattern, self._output.read_text())

        wait_for(found, f"{pattern} in {self._output}")
        match = found()
        assert match is not None
        return match[1]

    def kill(self) -> None:
        """SIGKILL all of its processes, as if its machine had lost power."""
        while found := [process for process in psutil.process_iter() if self._owns(process)]:
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            self._process.poll()
        self._process.wait()

    def _owns(self, process: psutil.Process) -> bool:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            return os.getsid(process.pid) == self.session and process.status() != psutil.STATUS_ZOMBIE
        return False


class Cluster:
    """The cluster, and the folder in which it works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = bare_python(folder / "venv")
        self.zip = package_zip(folder)
        self.address = ""
        self.workers: list[Daemon] = []
        self._daemons: list[Daemon] = []
        (folder / "conf").mkdir()

    def start(self, workers: int) -> None:
        """Start the master and the workers, and return when they know of each other."""
        master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.address = master.wait_for_line(r"Starting Spark master at (spark://\S+)")
        self.workers = [self._start_worker(f"worker-{n}") for n in range(workers)]
        for worker in self.workers:
            worker.wait_for_line(r"(Successfully registered with master)")

    def _start_worker(self, name: str) -> Daemon:
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name)]
        return self._start(name, "org.apache.spark.deploy.worker.Worker", *work, self.address)

    def _start(self, name: str, main: str, *arguments: str) -> Daemon:
        command = [str(class_archive.HOME / "bin" / "spark-class"), main, "--host", HOST, "--webui-port", "0"]
        if "worker" in name and may_drop_rights():
            command = [*WITHOUT_RIGHTS, *command]
        daemon = Daemon([*command, *arguments], self.environment(), self.folder / f"{name}.txt")
        self._daemons.append(daemon)
        return daemon

    def environment(self) -> dict[str, str]:
        """Return the variables of every process, in which nothing leads to the packages in this repository."""
        return {
            **bare_environment(),
            "SPARK_HOME": str(class_archive.HOME),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_DAEMON_JAVA_OPTS": class_archive.jvm_options(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": str(self.python),
        }

    def submit(self, program: Path, *arguments: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a program as a client of the cluster, with the settings of the profile `standalone`.

        They are shipped as docs/guides/clusters.md says: to the driver by PYTHONPATH, to executors by --py-files.
        """
        settings = {
            "spark.driver.host": HOST,
            "spark.ui.enabled": "false",
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": class_archive.jvm_options(),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        }
        command = [
            str(class_archive.HOME / "bin" / "spark-submit"),
            *("--master", self.address),
            *("--properties-file", str(ROOT / "spark-conf" / "standalone" / "spark-defaults.conf")),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *("--py-files", str(self.zip)),
            str(program),
            *arguments,
        ]
        variables = {name: class_archive.environment()[name] for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")}
        with output.open("wb") as sink:
            return subprocess.Popen(
                command,
                env={**self.environment(), **variables, "PYTHONPATH": str(self.zip)},
                cwd=self.folder,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def close(self) -> None:
        """Kill whatever runs."""
        for daemon in self._daemons:
            daemon.kill()


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster whose processes are gone afterwards."""
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.close()
