"""A standalone Spark cluster: the master on the first host, workers on the first two, the driver on the third."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tests.machines.hosts import Host
from tests.machines.spark_job import COPY

HOME = Path(pyspark.__file__).parent
ENDS_S = 240.0
STARTS_MAX = 8


class SparkCluster:
    """The cluster and its one job, which is started again if it ends, as a supervisor would."""

    def __init__(self, hosts: Sequence[Host], folder: Path, places: tuple[str, str], stop: Path) -> None:
        """`places` are those of the log and of the checkpoint."""
        self._master, self._driver, self._workers = hosts[0], hosts[2], hosts[:2]
        self._folder, self._places, self._stop = folder, places, stop
        self._job: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def _address(self) -> str:
        return f"spark://{self._master.address}:7077"

    def start(self) -> None:
        """Start master, workers and the job."""
        self._daemon(self._master, "master", "org.apache.spark.deploy.master.Master", "--port", "7077")
        for host in self._workers:
            self.start_worker(host)
        self.supervise()

    def start_worker(self, host: Host) -> None:
        """Start the worker of a host."""
        work = str(self._folder / f"{host.name}-work")
        sizes = ("--cores", "1", "--memory", "1g", "--work-dir", work)
        self._daemon(host, "worker", "org.apache.spark.deploy.worker.Worker", *sizes, self._address)

    def _daemon(self, host: Host, name: str, main: str, *words: str) -> None:
        command = (str(HOME / "bin" / "spark-class"), main, "--host", host.address, "--webui-port", "0", *words)
        host.begin(*command, output=self._folder / f"{host.name}-{name}.out", environment=self._variables(host))

    def _variables(self, host: Host) -> dict[str, str]:
        variables = {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": host.address}
        return {**variables, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    def supervise(self) -> None:
        """Start the job if it does not run."""
        if self._job is not None and self._job.poll() is None:
            return
        if self.starts == STARTS_MAX:
            raise OSError(f"the Spark job ended again and again: {(self._folder / 'job.out').read_text()[-3000:]}")
        self.starts += 1
        words = (self._address, self._driver.address, *self._places, str(self._stop))
        self._job = self._driver.begin(
            sys.executable,
            "-m",
            "tests.machines.spark_job",
            *words,
            output=self._folder / "job.out",
            environment=self._variables(self._driver),
        )

    def finish(self) -> None:
        """Wait until the job has copied everything. Raise `OSError` if it fails."""
        self.supervise()
        assert self._job is not None
        if self._job.wait(timeout=ENDS_S) != 0:
            raise OSError(f"the Spark job failed: {(self._folder / 'job.out').read_text()[-3000:]}")


def difference(reader: Host, root: str, topic: str) -> str:
    """Return how the copy differs from the topic, partition by partition, or ""."""
    module = (sys.executable, "-m", "tests.machines.programs", "digest", root)
    original, copy = (reader.run(*module, name, seconds=300) for name in (topic, COPY))
    return "" if original == copy else f"the topic has {original}, its copy {copy}"
