"""A driver: one of the two Spark programs, as a process that can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
CONF = REPOSITORY / "spark-conf"
END_SECONDS_MAX = 30


class Driver:
    """Runs `program` with `arguments`; the output of each run goes to a file."""

    def __init__(self, program: str, arguments: list[str], folder: Path, scratch: Path) -> None:
        """Write the output into `folder`, and whatever a killed Spark leaves behind into `scratch`."""
        self.name = program
        self.kills = 0
        self.starts = 0
        self._command = [sys.executable, str(Path(__file__).parent / f"{program}.py"), *arguments]
        self._folder = folder
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        """The output file of the last run."""
        return self._folder / f"{self.name}-{self.starts}.txt"

    def printed(self, words: str) -> int:
        """Return the number of lines of all runs that contain these words."""
        outputs = self._folder.glob(f"{self.name}-*.txt")
        return sum(words in line for each in outputs for line in each.read_text(errors="replace").splitlines())

    def start(self) -> None:
        self.starts += 1
        with self.output.open("wb") as output:
            # A session of its own, so that the whole tree can be found, and Ctrl-C reaches only this process.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(self._scratch),
                cwd=self._scratch,
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """Return the exit code, or None while it runs and before it was started."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """Kill the program, its JVM and its Python workers at once, with SIGKILL."""
        self.kills += 1
        self.end()

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is None:
            return
        leader = self._process.pid
        if self._process.poll() is None:  # otherwise its number may belong to another process by now
            os.killpg(leader, signal.SIGKILL)  # the program and its JVM
        deadline = time.monotonic() + END_SECONDS_MAX
        while rest := _session(leader):  # the Python workers have a process group of their own
            for process in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name}: processes {rest} do not end")
            self._process.poll()
            time.sleep(0.005)
        self._process.wait()

    def finish(self) -> None:
        """Ask it to read the remaining rows and exit."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def _session(leader: int) -> list[int]:
    """Return the living processes of a session; none if not on Linux, where they exit without the JVM anyway."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == leader and (entry / "cmdline").read_bytes():  # empty: dead already
                found.append(int(entry.name))
    return found


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a small Spark that leaves nothing outside of `scratch`."""
    java_home = os.environ.get("JAVA_HOME")
    if not java_home:
        finder = REPOSITORY / "scripts" / "find-java"
        java_home = subprocess.run([finder], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    # Programs that run for less than a minute gain nothing from the JVM's slow, thorough compiler.
    java_options = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    java_options += f" -Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}"
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java_options,
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    arguments = ["--properties-file", str(CONF / "spark-defaults.conf")]
    arguments += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return os.environ | {
        "JAVA_HOME": java_home,
        # Otherwise Spark looks for data sources, and starts its workers, with the `python3` on the PATH.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
        # Empty. A JVM whose class path has a folder with files starts without the archive of classes that it may have.
        "SPARK_CONF_DIR": str(scratch / "conf"),
        "SPARK_LOCAL_DIRS": str(scratch),
        "TMPDIR": str(scratch),
    }
