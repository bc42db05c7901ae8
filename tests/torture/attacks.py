"""What is done to the nodes: one loses files at a time, and no other before this one is whole again.

That is what is promised: with acks=all and min.insync.replicas=2 of 3, whatever happens to one node loses nothing, and
that others are away for a time loses nothing either. Which node it is follows from this promise alone: nobody looks who
really has the rows. An old copy of a node's folder has the journals as they are: a store of journals must never be set
back.
"""

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark_log import Producer
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError
from tests.history.events import Row
from tests.history.recorder import Recorder
from tests.support.command_line import CommandLine
from tests.support.coordinator.small_topic import PARTITIONS, TOPIC, TopicClient
from tests.torture import workers
from tests.torture.mounted_disk import Disk
from tests.torture.nodes import NODES, Nodes
from tests.torture.processes import Processes

DISK_BYTES = 256 << 20
SECTOR_BYTES = 512
WHOLE_SECONDS = 120
"""So long a node may take to be whole again, on a busy machine."""
ALONE_S = 1.0
"""So long a row is sent to a node that is alone, and may not acknowledge it."""
LAG_S = 2.0
"""So long it takes at most until a node that has lost its newest files leaves the ISRs."""


class Attacks:
    """The nodes, and what can be done to them."""

    def __init__(self, nodes: Nodes, disks: dict[str, Disk], dice: random.Random, journals: int) -> None:
        """Without `disks` none is full or read-only. The one node of the journals, if there is one, may not be lost."""
        self.nodes = nodes
        self._disks = disks
        self._dice = dice
        self._replaceable = NODES if journals == len(NODES) else NODES[1:]
        self._command = CommandLine(Path(nodes.root))
        self._history = Recorder(str(nodes.folder.parent / "histories"), "attacker")
        self._numbers = itertools.count()
        self._lost: set[str] = set()
        """The node whose files are lost, until all are whole."""
        self.processes: Processes | None = None
        """The processes, of which the keeper is stopped by some attacks."""
        every: list[Callable[[], contextlib.AbstractContextManager[None]]] = [
            self.away,
            self.wiped,
            self.old_copy,
            self.lost_files,
            self.flipped_bit,
            self.misdirected,
            self.just_acknowledged,
        ]
        if journals == 1:  # with journals on all nodes these attacks would only stop the journals
            every += [self.alone, self.behind]
        if disks:
            every += [self.full, self.read_only]
        self.every = {each.__name__.replace("_", " "): each for each in every}

    def attack(self, name: str, seconds: float) -> None:
        """Attack a node, so long, and wait until all nodes are whole again."""
        with self.every[name]():
            time.sleep(seconds)
        self.make_whole()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """A disk is not mounted for a time."""
        node = self._dice.choice(self._replaceable)
        self.nodes.take_away(node)
        yield
        self.nodes.bring_back(node)

    @contextlib.contextmanager
    def wiped(self) -> Iterator[None]:
        """A disk has lost everything."""
        node = self._dice.choice(self._replaceable)
        self.nodes.take_away(node)
        yield
        self._renew(node)

    def _renew(self, node: str) -> None:
        """Put a new disk in the place of one that was taken away."""
        self._lost.add(node)
        self._until_done("nodes", "renew", node, "--yes")
        self._until_done("node", "run", node, "--once")
        if self._replaceable == NODES:
            self._until_done("cluster", "migrate-journals", "--to", ",".join(NODES))
        self.nodes.throw_away(node)

    @contextlib.contextmanager
    def old_copy(self) -> Iterator[None]:
        """A disk is set back to what it was some time ago, except for the journals."""
        node = self._dice.choice(self._replaceable)
        restore = self.nodes.back_up(node)
        time.sleep(self._dice.uniform(0.2, 2))
        self._lost.add(node)
        self.nodes.take_away(node)
        self.nodes.keep_journals(node)
        restore()
        yield
        self.nodes.throw_away(node)

    @contextlib.contextmanager
    def just_acknowledged(self) -> Iterator[None]:
        """One disk is away, and a row is acknowledged by the two others. In that moment one of these loses it."""
        away = self._dice.choice(self._replaceable)
        lost = self._dice.choice([node for node in NODES if node != away])
        wipes = lost in self._replaceable and self._dice.random() < 0.5
        before = self._rows_of(lost)
        with self._producer("all") as producer:
            self.nodes.take_away(away)
            self._send(producer, "all", WHOLE_SECONDS)
            if wipes:
                self.nodes.take_away(lost)
            else:
                self._lose_newest(lost, before)
        self.nodes.bring_back(away)
        yield
        if wipes:
            self._renew(lost)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Two disks are away while rows are sent. Then the third loses what it got meanwhile.

        It may acknowledge nothing with acks=all, and show nobody what it has acknowledged with acks=1.
        """
        first, *others = NODES
        acks: Acks = self._dice.choice(["all", "1"])
        before = self._rows_of(first)
        with self._producer(acks) as producer:
            for node in self._dice.sample(others, len(others)):
                self.nodes.take_away(node)
            self._send(producer, acks, ALONE_S)
            with contextlib.suppress(LogError):
                workers.scan_once(self.nodes.root, self._history, TOPIC, self._ends())
            self._lose_newest(first, before)
        for node in others:
            self.nodes.bring_back(node)
        yield

    @contextlib.contextmanager
    def behind(self) -> Iterator[None]:
        """A disk has lost its newest files, no follower fills it up, and then the two others are away.

        They are the ISR, so nobody may lead until one of them is back.
        """
        first, *others = NODES
        before = self._rows_of(first)
        with self._keeper_stopped(), self._producer("all") as producer:
            self._send(producer, "all", WHOLE_SECONDS)
            self._lose_newest(first, before)
            deadline = time.monotonic() + LAG_S
            while time.monotonic() < deadline and not self._is_out_of_sync(first):
                time.sleep(0.001)
            for node in others:
                self.nodes.take_away(node)
        yield
        for node in others:
            self.nodes.bring_back(node)

    def _producer(self, acks: Acks) -> Producer:
        timeouts = {"delivery.timeout.ms": 500, "broker.session.timeout.ms": workers.SESSION_TIMEOUT_MS}
        return Producer(self.nodes.root, {"acks": acks, "linger.ms": 1, **timeouts})

    def _send(self, producer: Producer, acks: Acks, seconds: float) -> None:
        """Send row after row until one is acknowledged, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            row = Row(self._dice.randrange(PARTITIONS), None, f"{self._history.who}/{next(self._numbers)}")
            if workers.send(producer, self._history, TOPIC, [row], acks) == {"ok"}:
                return

    def _ends(self) -> dict[int, int]:
        """Return of each partition where the newest rows begin."""
        partitions = TopicClient(self.nodes.root).handle.partitions
        return {p: max(0, each.high_watermark - workers.NEWEST) for p, each in enumerate(partitions)}

    def _is_out_of_sync(self, node: str) -> bool:
        partitions = TopicClient(self.nodes.root).handle.partitions
        return not any(node in each.isr for each in partitions)

    def append_files(self, node: str) -> set[Path]:
        """Return the append files that a node has now."""
        return self._glob(node, "topics/*/*/append/*")

    def _rows_of(self, node: str) -> set[Path]:
        """Return the files of a node but those of its journals."""
        files = self._glob(node, "topics/*/*/*/**/*")
        return {each for each in files if each.is_file() and "journal" not in each.parts}

    def _glob(self, node: str, pattern: str) -> set[Path]:
        while True:
            with contextlib.suppress(FileNotFoundError):  # a folder went while it was listed
                return set(self.nodes[node].glob(pattern))

    def _lose_newest(self, node: str, before: set[Path]) -> None:
        """Delete a node's files of rows that were not there before."""
        self._lost.add(node)
        for path in self._rows_of(node) - before:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _keeper_stopped(self) -> Iterator[None]:
        assert self.processes is not None
        self.processes.signal("keeper", signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes.signal("keeper", signal.SIGCONT)

    @contextlib.contextmanager
    def lost_files(self) -> Iterator[None]:
        """Up to five files are gone."""
        node = self._dice.choice(NODES)
        for path in self._files(node, 5):
            path.unlink(missing_ok=True)
        yield

    @contextlib.contextmanager
    def flipped_bit(self) -> Iterator[None]:
        """One bit of one file is wrong."""
        for path in self._files(self._dice.choice(NODES), 1):
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                at = self._dice.randrange(max(1, os.fstat(file.fileno()).st_size))
                file.seek(at)
                byte = file.read(1)
                if byte:
                    file.seek(at)
                    file.write(bytes([byte[0] ^ 1 << self._dice.randrange(8)]))
        yield

    @contextlib.contextmanager
    def misdirected(self) -> Iterator[None]:
        """A sector of one file has the bytes of another, as if it had been written to the wrong place."""
        node = self._dice.choice(NODES)
        with contextlib.suppress(FileNotFoundError):
            wrong, *right = self._files(node, 2)
            data = (right or [wrong])[0].read_bytes()
            sector = data[self._dice.randrange(0, len(data) or 1, SECTOR_BYTES) :][:SECTOR_BYTES]
            with wrong.open("r+b") as file:
                file.seek(self._dice.randrange(0, os.fstat(file.fileno()).st_size or 1, SECTOR_BYTES))
                file.write(sector)
        yield

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """A disk has no room but a few pages."""
        disk = self._disks[self._dice.choice(NODES)]
        with contextlib.suppress(OSError):  # others have filled it meanwhile
            disk.fill(self._dice.randrange(16) << 12)
        yield
        disk.free()

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """A disk takes no writes."""
        disk = self._disks[self._dice.choice(NODES)]
        while not disk.make_read_only():  # somebody writes a file at this moment
            time.sleep(0.001)
        yield
        disk.remount("rw")

    def _files(self, node: str, most: int) -> list[Path]:
        """Return some files of a node, of rows or of journals. Its marker is not one: without that it is away.

        If the node alone has the journals, none of theirs: what one root loses of them is lost.
        """
        out = {layout.MARKER, ".tmp"} | (set() if node in self._replaceable else {"cluster", "groups", "journal"})
        files: list[Path] = []
        for folder, _, names in os.walk(self.nodes[node]):
            files += [Path(folder, name) for name in names]
        files = [each for each in files if not out.intersection(each.relative_to(self.nodes[node]).parts)]
        return self._dice.sample(files, min(len(files), self._dice.randint(1, most)))

    def make_whole(self) -> None:
        """Repair what is damaged, and wait until all nodes are in sync and have every file; fail if that takes long."""
        deadline = time.monotonic() + WHOLE_SECONDS
        while missing := self._missing():
            assert time.monotonic() < deadline, f"after {WHOLE_SECONDS} s: {missing}"
            time.sleep(0.1)
        self._lost.clear()

    def _missing(self) -> str:
        """Return what a node lacks still, or an empty text."""
        try:
            client = TopicClient(self.nodes.root)
            for node in NODES:
                Follower(client.log, node).round()
            for topic in client.log.topics():
                handle = client.log.topic(topic)
                for p, each in enumerate(handle.partitions):
                    if set(each.isr) <= self._lost:  # as an operator does if the whole ISR has lost its disks
                        words = ("--unclean", "--yes", "--broker-session-timeout-ms", workers.SESSION_TIMEOUT_MS)
                        self._command.run("topics", "elect-leaders", topic, *words, code=None)
                    if set(each.isr) != set(NODES):
                        return f"{topic}, partition {p}: only {each.isr} are in sync"
        except LogError as error:
            return str(error)
        repaired = self._command.run("verify", "--repair", code=None)
        return "" if repaired.exit_code == 0 else f"{repaired.stdout} {repaired.stderr}"

    def _until_done(self, *words: str) -> None:
        """Run a command until it succeeds, as somebody would who was told to try again."""
        deadline = time.monotonic() + WHOLE_SECONDS
        while (done := self._command.run(*words, code=None)).exit_code != 0:
            assert time.monotonic() < deadline, f"{' '.join(words)}: {done.stderr} {done.exception}"
            time.sleep(0.1)
