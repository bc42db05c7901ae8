"""What is done to the nodes: to one at a time, and to no other before this one is whole again.

That is what is promised: with acks=all and min.insync.replicas=2 of 3, whatever happens to one node loses nothing. An
old copy of a node's folder has the journals as they are: a store of journals must never be set back.
"""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError
from tests.processes.disk import Disk
from tests.processes.nodes import NODES, Nodes
from tests.processes.small_topic import TopicClient
from tests.support.command_line import CommandLine

DISK_BYTES = 256 << 20
WHOLE_SECONDS = 120
"""So long a node may take to be whole again, on a busy machine."""


class Attacks:
    """The nodes, and what can be done to them."""

    def __init__(self, nodes: Nodes, disks: dict[str, Disk], dice: random.Random, journals: int) -> None:
        """Without `disks` none is full or read-only. The one node of the journals, if there is one, may not be lost."""
        self.nodes = nodes
        self._disks = disks
        self._dice = dice
        self._replaceable = NODES if journals == len(NODES) else NODES[1:]
        self._command = CommandLine(Path(nodes.root))
        every: list[Callable[[], contextlib.AbstractContextManager[None]]] = [
            self.away,
            self.wiped,
            self.old_copy,
            self.lost_files,
            self.flipped_bit,
        ]
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
        self.nodes.take_away(node)
        self.nodes.keep_journals(node)
        restore()
        yield
        self.nodes.throw_away(node)

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
        """Return some files of a node, of rows or of journals. Its marker is not one: without that it is away."""
        files: list[Path] = []
        for folder, _, names in os.walk(self.nodes[node]):
            files += [Path(folder, name) for name in names]
        files = [each for each in files if each.name != layout.MARKER and ".tmp" not in each.parts]
        return self._dice.sample(files, min(len(files), self._dice.randint(1, most)))

    def make_whole(self) -> None:
        """Repair what is damaged, and wait until all nodes are in sync and have every file; fail if that takes long."""
        deadline = time.monotonic() + WHOLE_SECONDS
        while missing := self._missing():
            assert time.monotonic() < deadline, f"after {WHOLE_SECONDS} s: {missing}"
            time.sleep(0.1)

    def _missing(self) -> str:
        """Return what a node lacks still, or an empty text."""
        try:
            client = TopicClient(self.nodes.root)
            for node in NODES:
                Follower(client.log, node).round()
            for topic in client.log.topics():
                handle = client.log.topic(topic)
                for p, each in enumerate(handle.partitions):
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
