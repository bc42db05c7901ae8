"""A second gateway to the Ceph of the test run, for one test, which may kill it, or read what it was asked for."""

import subprocess
from pathlib import Path

from tests.servers.ceph import await_port, free_port
from tests.servers.running import Server


class Gateway:
    """A radosgw process. It has the users and the buckets of the one that all tests share."""

    def __init__(self, shared: Server, ops_log: Path | None = None) -> None:
        """The gateway appends a line of JSON to the file `ops_log` for each request that it has answered."""
        assert shared.folder is not None, "only Ceph has gateways"
        self._folder: Path = shared.folder
        self._ops_log = ops_log
        self._port = free_port()
        self.server = shared._replace(endpoint=f"http://127.0.0.1:{self._port}")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        command = ["radosgw", "-c", str(self._folder / "ceph.conf"), "-n", "client.second", "-f"]
        command.append(f"--rgw-frontends=beast endpoint=127.0.0.1:{self._port} tcp_nodelay=1")
        command.append(f"--rgw-data={self._folder / 'second'}")
        if self._ops_log is not None:
            command += ["--rgw-enable-ops-log=true", "--rgw-ops-log-rados=false"]
            command.append(f"--rgw-ops-log-file-path={self._ops_log}")
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=self._folder, stdin=quiet, stdout=quiet, stderr=quiet)
        await_port(self._port, [self._process])

    def kill(self) -> None:
        """Kill the process in the middle of whatever it does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
