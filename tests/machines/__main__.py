"""`make machines`: hosts that share one file system use a log, and are attacked from outside; the checker decides.

Three hosts, each with network, mounts and processes of its own, run a Producer, a member of a group and a part of a
Spark cluster on GlusterFS, then on three volumes of GlusterFS, one for each node, on CephFS, and in a bucket. It exits
with 1 and keeps the histories if anybody saw what a log must not do, or if a program ended by itself.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.history.checker import Violation, check
from tests.history.events import Commit, Event, Poll, Send, read_history
from tests.machines import hosts as machine
from tests.machines.file_systems import DISK, KINDS, Kind, Shared
from tests.machines.hosts import Host
from tests.machines.programs import PARTITIONS, TOPIC, Measured
from tests.machines.spark_cluster import SparkCluster, difference

MEMORY = Path("/dev/shm")
HOSTS = 3
KEEPER = "node"
COMMAND = str(Path(sys.executable).with_name("pyspark-log"))
CALM_S = 5.0
"""So long nothing happens between two attacks."""
HELD_S = 15.0
RECOVERED_S = 120.0
"""So long it may take until each producer has an acknowledged row again after an attack."""
END_S = 60.0
AHEAD = """
import runpy, sys, time
now, now_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: now() + 120, lambda: now_ns() + 120 * 10**9
runpy.run_module("tests.machines.programs", run_name="__main__")
"""
"""Runs the programs with a clock that is two minutes ahead."""


class Failed(Exception):
    """A program ended by itself, or did not recover."""


class Story:
    """A log that hosts share, the programs that use it, and what is done to them."""

    def __init__(self, shared: Shared, hosts: Sequence[Host], folder: Path, long_s: float) -> None:
        self.shared, self.hosts, self.folder = shared, hosts, folder
        self.spark: SparkCluster | None = None
        self._long_s = long_s
        self.histories = str(folder / "histories")
        self._stop = folder / "stop"
        self._nodes = shared.root.split(",")
        self._programs: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def begin(self, *, with_spark: bool) -> Measured:
        """Start what the hosts share, try it, create the log, measure it, and start the programs, and a Spark job."""
        self.shared.start()
        for host in self.hosts:
            self.shared.mount(host)
        first, second, third = self.hosts
        check = (COMMAND, "cluster", "check-store", self._nodes[0], "--meet", "here")
        meets = [host.begin(*check, output=self._output(host, "meet")) for host in (first, second)]
        for host, meet in zip((first, second), meets, strict=True):
            if meet.wait(timeout=120) != 0:
                raise Failed(f"check-store on {host.name}: {self._output(host, 'meet').read_text()}")
        path = ("--path", self.shared.root)
        words = ["--partitions", str(PARTITIONS)]
        if len(self._nodes) > 1:
            first.run(COMMAND, "cluster", "create", "--journal-nodes", self.shared.root, *path)
            words += ["--replication-factor", str(len(self._nodes)), "--config", "min.insync.replicas=2"]
        first.run(COMMAND, "topics", "create", TOPIC, *words, *path)
        module = (sys.executable, "-m", "tests.machines.programs")
        measured = msgspec.json.decode(third.run(*module, "measure", self.shared.root, seconds=300), type=Measured)
        for host in self.hosts:
            self.keep_nodes(host)
            self.run_programs(host)
        if with_spark:
            self.spark = SparkCluster(self.hosts, self.folder, (self.shared.root, self.shared.checkpoint), self._stop)
            self.spark.start()
        self._await_rows(0.0, "the beginning")
        return measured

    def _output(self, host: Host, name: str) -> Path:
        return self.folder / f"{host.name}-{name}.out"

    def run_programs(self, host: Host, *, ahead: bool = False) -> None:
        """Start the programs of a host, with a clock that is ahead if that is asked."""
        python = (sys.executable, *(("-c", AHEAD) if ahead else ("-m", "tests.machines.programs")))
        for name in ("produce", "consume"):
            command = (*python, name, self.shared.root, self.histories, str(self._stop))
            self._programs[host.name, name] = host.begin(*command, output=self._output(host, name))

    def keep_nodes(self, host: Host) -> None:
        """Let a host keep nodes in sync, if there are several."""
        if len(self._nodes) > 1:
            command = (COMMAND, "node", "run", "--path", self.shared.root)
            self._programs[host.name, KEEPER] = host.begin(*command, output=self._output(host, KEEPER))

    def end_programs(self, host: Host) -> None:
        """Kill the programs of a host."""
        host.run("pkill", "-KILL", "-f", "tests.machines.programs")
        for (where, name), process in self._programs.items():
            if where == host.name and name != KEEPER:
                process.wait()

    def check_programs(self) -> None:
        """Fail if a program has ended by itself."""
        for (host, name), process in self._programs.items():
            if process.poll() is not None:
                output = (self.folder / f"{host}-{name}.out").read_text()
                raise Failed(f"{name} on {host} ended with {process.returncode}: {output[-2000:]}")
        if self.spark is not None:
            self.spark.supervise()

    def cut_off_shortly(self) -> None:
        """A host is cut off for 5 s."""
        with self.hosts[1].is_cut_off(5):
            pass

    def cut_off_for_long(self) -> None:
        """A host is cut off for a minute."""
        with self.hosts[1].is_cut_off(self._long_s):
            pass

    def killed_host(self) -> None:
        """A host is killed with everything in it, and boots again."""
        host = self.hosts[2]
        host.kill()
        time.sleep(CALM_S)
        host.boot()
        self.shared.serve(host)
        self.shared.mount(host)
        self.keep_nodes(host)
        self.run_programs(host)

    def lost_server(self) -> None:
        """A server is killed, and starts again."""
        self.shared.lose_server()

    def stopped_server(self) -> None:
        """A server is suspended for a time."""
        self.shared.stop_server()

    def hung_mount(self) -> None:
        """The mount of a host answers nothing for 15 s."""
        host = self.hosts[1]
        host.run("pkill", "-STOP", "-f", self.shared.client)
        time.sleep(HELD_S)
        host.run("pkill", "-CONT", "-f", self.shared.client)

    def full(self) -> None:
        """There is no space left for 15 s."""
        self.shared.fill(is_full=True)
        time.sleep(HELD_S)
        self.shared.fill(is_full=False)

    def wrong_clock(self) -> None:
        """The clock of a host is two minutes ahead, and jumps back."""
        host = self.hosts[0]
        self.end_programs(host)
        self.run_programs(host, ahead=True)
        time.sleep(CALM_S * 2)
        self.check_programs()
        self.end_programs(host)
        self.run_programs(host)

    def attacks(self) -> list[Callable[[], None]]:
        """Return what can be done here."""
        every = [self.cut_off_shortly, self.killed_host, self.lost_server, self.stopped_server]
        mounts = [self.hung_mount] if self.shared.client else []
        return [*every, *mounts, self.full, self.cut_off_for_long, self.wrong_clock]

    def attack(self, what: Callable[[], None]) -> tuple[float, float]:
        """Attack; return the longest time without an acknowledged row on the other hosts, and until all had one."""
        time.sleep(CALM_S)
        began = time.monotonic() * 1000
        what()
        over = time.monotonic() * 1000
        self._await_rows(over, what.__name__)
        recovered = time.monotonic() * 1000
        ends = sorted(e.ended for e in self._events() if isinstance(e, Send) and e.result == "ok" and e.ended > began)
        gaps = [b - a for a, b in zip([began, *ends], [*ends, recovered], strict=True)]
        return max(gaps) / 1000, (recovered - over) / 1000

    def _await_rows(self, since: float, what: str) -> None:
        """Wait until each producer has had a row acknowledged, and somebody has read one, since a time."""
        deadline = time.monotonic() + RECOVERED_S
        while any(end <= since for end in self._newest_acknowledged().values()) or not self._is_read(since):
            self.check_programs()
            if time.monotonic() > deadline:
                raise Failed(f"{what}: after {RECOVERED_S:.0f} s {self._newest_acknowledged()}")
            time.sleep(0.5)

    def _is_read(self, since: float) -> bool:
        return any(isinstance(event, Poll) and event.rows and event.ended > since for event in self._events())

    def _events(self) -> list[Event]:
        folder = Path(self.histories)
        return read_history(folder.iterdir() if folder.exists() else [])

    def _newest_acknowledged(self) -> dict[str, float]:
        """Return when the producer that runs on each host now had its newest acknowledged row; 0 if it had none."""
        newest: dict[str, float] = {}
        for event in self._events():
            if isinstance(event, Send):
                before = newest.get(event.who, 0.0)
                newest[event.who] = max(before, event.ended if event.result == "ok" else 0.0)
        by_host: dict[str, str] = {}
        for who in sorted(newest, key=lambda who: int(who.rpartition("-")[2])):
            by_host[who.split("-")[0]] = who
        return {host: newest[who] for host, who in by_host.items()} if len(by_host) == HOSTS else {"": 0.0}

    def finish(self) -> list[Violation]:
        """End the programs, read all, and return what the log did that it must not."""
        self._stop.touch()
        if len(self._nodes) > 1:
            for each in self.hosts:
                each.run("pkill", "-TERM", "-f", "node run")
        deadline = time.monotonic() + END_S
        for (host, name), process in self._programs.items():
            code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
            if code != 0 and name != KEEPER:
                raise Failed(f"{name} on {host}: {(self.folder / f'{host}-{name}.out').read_text()[-2000:]}")
        for host in self.hosts:
            host.run(sys.executable, "-m", "tests.machines.programs", "scan", self.shared.root, self.histories)
        violations = check(self._events())
        if self.spark is not None:
            self.spark.finish()
            if text := difference(self.hosts[0], self.shared.root, TOPIC):
                violations.append(Violation("copied", text))
        return violations

    def counts(self) -> str:
        """Return how much happened."""
        sends = [event for event in self._events() if isinstance(event, Send)]
        counted = {result: sum(len(e.rows) for e in sends if e.result == result) for result in ("ok", "refused")}
        polled = sum(len(event.rows) for event in self._events() if isinstance(event, Poll))
        commits = sum(isinstance(event, Commit) and event.result == "ok" for event in self._events())
        starts = f", the Spark job started {self.spark.starts} times" if self.spark else ""
        said = f"{counted['ok']:,} rows acknowledged, {counted['refused']:,} refused, {polled:,} read"
        return f"{said}, {commits:,} commits{starts}"


def tell(kind: Kind, folder: Path, long_s: float, only: str, *, with_spark: bool) -> list[Violation]:
    """Tell the story of what hosts share, and return what the log did that it must not."""
    folder.mkdir()
    hosts = [Host(number, kind.PRIVATE) for number in range(1, HOSTS + 2)]
    with ExitStack() as stack:
        stack.enter_context(machine.small_disk(folder / DISK))
        stack.enter_context(machine.network(hosts))
        users = hosts[:HOSTS]
        shared: Shared = kind(users, hosts[-1], folder)
        story = Story(shared, users, folder, long_s)
        measured = story.begin(with_spark=with_spark)
        rates = f"{measured.write_rows / 1e6:.2f} million rows/s written and {measured.read_rows / 1e6:.2f} read"
        print(f"{shared.name}: a commit takes {measured.commit_ms:.1f} ms, {rates}", flush=True)
        for what in story.attacks():
            if only in what.__name__:
                gap, recovered = story.attack(what)
                print(
                    f"{shared.name}: {what.__doc__} Nobody got an acknowledgement for {gap:.1f} s;"
                    f" all had one {recovered:.1f} s after it",
                    flush=True,
                )
        violations = story.finish()
        print(f"{shared.name}: {story.counts()}; {len(violations)} violations", flush=True)
        return violations


def why_not(kind: Kind) -> str:
    """Return why it cannot be tried here, or "" if it can."""
    missing = [each for each in kind.PROGRAMS if shutil.which(each) is None]
    return machine.why_not() or (f"no {', '.join(missing)} (run scripts/install-shared)" if missing else "")


def main() -> int:
    """Try what hosts can share; return 1 if there is a violation, or a program failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description="Hosts that share a file system.")
    parser.add_argument("--only", choices=KINDS, help="one of them (default: all)")
    parser.add_argument("--attack", default="", help="only attacks whose name contains this")
    parser.add_argument("--long", type=float, default=60, help="seconds of the long cut (default: 60)")
    parser.add_argument("--no-spark", action="store_true", help="without a Spark cluster")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="machines-", dir=MEMORY if MEMORY.is_dir() else None))
    violations: list[Violation] = []
    for name, kind in KINDS.items():
        if options.only not in (None, name):
            continue
        if reason := why_not(kind):
            print(f"{name}: skipped: {reason}")
            continue
        try:
            violations += tell(kind, folder / name, options.long, options.attack, with_spark=not options.no_spark)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            violations.append(Violation("ended", f"{name}: {error}"))
    for each in violations[:20]:
        print(f"    {each.rule}: {each.text}")
    if violations:
        print(f"the histories and outputs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
