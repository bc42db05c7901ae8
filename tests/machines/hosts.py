"""Hosts that share nothing but a network: each has network, mount and process namespaces, and an address, of its own.

They are joined by a bridge. A host is cut off by taking its link down, and dies with all its processes at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("ip", "unshare", "nsenter", "mount")
BRIDGE = "logbr0"
SMALL_BYTES = 1 << 30
SUBNET = "10.231.71"
START_SECONDS = 10
END_SECONDS = 60
"""So long the processes of a host that was killed may take to end: some wait for a file system."""


def why_not() -> str:
    """Return why there can be no hosts here, or "" if there can."""
    if missing := [each for each in PROGRAMS if shutil.which(each) is None]:
        return f"no {', '.join(missing)} (Debian: iproute2 util-linux mount)"
    if os.geteuid() != 0:
        return "only root may make network and mount namespaces"
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


def run(*command: str, seconds: float = 60, environment: Mapping[str, str] | None = None) -> str:
    """Run a command on this machine and return its output. Raise `OSError` with what it said if it fails."""
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds, env=variables)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


class Host:
    """A machine of its own, as far as Linux can make one on this machine."""

    def __init__(self, number: int, private: Sequence[str] = ()) -> None:
        """`private` names folders that are the host's own: they are empty at first."""
        self.name, self.address = f"host{number}", f"{SUBNET}.{number}"
        self.environment: dict[str, str] = {}
        """Variables of every program that runs there."""
        self._private = private
        self._processes: list[subprocess.Popen[bytes]] = []
        self._init = 0

    def start(self) -> None:
        """Begin the host: its namespaces live as long as their first process."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"v{self.name}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", f"v{self.name}", "master", BRIDGE, "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            run("ip", "-n", self.name, *words.split())
        self._begin_namespaces()

    def _begin_namespaces(self) -> None:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "sh", "-c"]
        mounts = [f"mkdir -p {each} && mount -t tmpfs tmpfs {each}" for each in self._private]
        # SIGCHLD is ignored, so that programs that end leave no zombies: glusterd would take them for running bricks.
        script = " && ".join([*mounts, f"hostname {self.name}", "exec env --ignore-signal=CHLD sleep infinity"])
        first = subprocess.Popen(["ip", "netns", "exec", self.name, *unshare, script])
        self._processes.append(first)
        deadline = time.monotonic() + START_SECONDS
        while True:
            children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
            if children and Path(f"/proc/{children[0]}/comm").read_text() == "sleep\n":
                self._init = int(children[0])
                return
            if time.monotonic() > deadline or first.poll() is not None:
                raise OSError(f"{self.name} did not start")
            time.sleep(0.01)

    def inside(self, *command: str) -> list[str]:
        """Return the command that runs a command in this host."""
        return ["nsenter", "--target", str(self._init), "--net", "--mount", "--pid", "--uts", "--", *command]

    def run(self, *command: str, seconds: float = 60) -> str:
        """Run a command in this host and return its output. Raise `OSError` with what it said if it fails."""
        return run(*self.inside(*command), seconds=seconds, environment=self.environment)

    def begin(
        self, *command: str, output: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in this host, whose output goes to a file."""
        with output.open("ab") as file:
            process = subprocess.Popen(
                self.inside(*command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **self.environment, **(environment or {})},
            )
        self._processes.append(process)
        return process

    def cut_off(self) -> None:
        """Take the host's link down."""
        run("ip", "link", "set", f"v{self.name}", "down")

    def reconnect(self) -> None:
        """Take the host's link up again."""
        run("ip", "link", "set", f"v{self.name}", "up")

    @contextmanager
    def is_cut_off(self, seconds: float) -> Iterator[None]:
        """Be cut off for so long."""
        self.cut_off()
        try:
            time.sleep(seconds)
            yield
        finally:
            self.reconnect()

    def kill(self) -> None:
        """Kill the host with everything in it: mounts, caches and processes."""
        os.kill(self._init, signal.SIGKILL)
        for process in self._processes:
            process.send_signal(signal.SIGCONT)  # nsenter stops with a program that is stopped
        for process in self._processes:
            process.wait(timeout=END_SECONDS)
        self._processes.clear()

    def boot(self) -> None:
        """Begin a host again that was killed. It has its address, and nothing else of what it had in memory."""
        self._begin_namespaces()

    def end(self) -> None:
        """End the host and its network."""
        if self._processes:
            self.kill()
        for what in (("link", "delete", f"v{self.name}"), ("netns", "delete", self.name)):
            subprocess.run(["ip", *what], check=False, capture_output=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Have a disk of a gigabyte, which hosts that begin later have too."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(folder))
    try:
        yield
    finally:
        run("umount", "--lazy", str(folder))


@contextmanager
def network(hosts: Sequence[Host]) -> Iterator[None]:
    """Join hosts by a bridge, on which this machine has the address 254. What a killed run has left is removed."""
    for each in hosts:
        each.end()
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        run("ip", "addr", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for each in hosts:
            each.start()
        yield
    finally:
        for each in hosts:
            each.end()
        run("ip", "link", "delete", BRIDGE)
