"""Disks: the stores of the nodes, and what may happen to each by itself.

silent       it does not answer for some time, nobody or one process
slow         each operation takes longer
read-only    it can be read, and takes nothing
unmounted    an empty folder lies at its address, without marker, until it is mounted again
wiped        empty, the marker too
restored     it has what it had some time ago, and the marker of now: a backup
lost file    one file is gone
flipped      one byte of a file is another
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects import node
from tests.simulator.store import Objects

_MARKER_READ_SECONDS = 12.0
"""How long it takes at most until who has written or read something has looked at the marker again."""


class Disk:
    """One node's store, as it really is."""

    def __init__(self, node_id: str, url: str, now: Callable[[], float]) -> None:
        self.node_id = node_id
        self.url = url
        self.real = Objects()
        self.slowness = 1.0
        self.read_only = self.was_read_only = False
        self._is_mounted = self._mount_wanted = True
        self.was_away = False
        """Whether something else than the disk's content was ever found at its address."""
        self.in_hand = False
        """Whether an operator is at it."""
        self.flips = 0
        self.lost: set[str] = set()
        """What a fault took or damaged, and nobody has made again."""
        self.made_again: set[str] = set()
        """What a fault took or damaged, and somebody has made again: who slept may have found it gone."""
        self.was_there: dict[str, set[str]] = {}
        """What was ever written to the disk itself, by its incarnation at that time."""
        self.first_incarnation = ""
        self.backup: dict[str, bytes] = {}
        self.restored = False
        """Whether it has what it had some time ago, and nobody has put that right."""
        self._below = Objects()
        self._below.watcher = self
        """What is written at the address while the disk is not mounted."""
        self._journal_used_below = -_MARKER_READ_SECONDS
        """When somebody wrote or looked for a part of a journal there last."""
        self._written_below = -_MARKER_READ_SECONDS
        """When somebody wrote a file there last."""
        self._now = now
        self._silent_until = -1.0
        self._silent_to: str | None = None
        self.is_gone = False
        """Whether it was taken away for good, after its node was removed."""

    @property
    def objects(self) -> Objects:
        """What a process finds at the address."""
        return self.real if self.mounted else self._below

    @property
    def mounted(self) -> bool:
        """Whether the disk is at its address."""
        # Nobody may take a vote that was written below the mount point for one on the disk, or what is not there for
        # what is not on the disk.
        if self._mount_wanted and self._now() >= self._journal_used_below + _MARKER_READ_SECONDS:
            self._is_mounted = True
        return self._is_mounted

    @property
    def incarnation(self) -> str:
        """What the marker says, empty where there is none."""
        data = self.real.data.get(layout.MARKER)
        try:
            return "" if data is None else node.decode(data, self.url).incarnation
        except CorruptObject:
            return ""

    @property
    def is_silent(self) -> bool:
        """Whether somebody gets no answer now."""
        return self.is_gone or self._now() < self._silent_until

    def silent_to(self, process: str) -> bool:
        return self.is_gone or (self.is_silent and self._silent_to in (None, process))

    def looked(self, key: str) -> None:
        if not self.mounted and ("/entries" in key or "/snapshots/" in key):
            self._journal_used_below = self._now()

    def be_silent(self, seconds: float, to: str | None) -> None:
        """Give no answers for so long, to nobody or to one process."""
        self._silent_until, self._silent_to = self._now() + seconds, to

    def take_nothing(self) -> None:
        """Be read-only."""
        self.read_only = self.was_read_only = True

    def come_back(self) -> None:
        """Answer again, at the usual speed, with the disk mounted for reading and writing."""
        self._silent_until = -1.0
        self.read_only = False
        self.slowness = 1.0
        self._mount_wanted = True

    def written(self, key: str) -> None:
        """Note that an object was written to the disk."""
        self.was_there.setdefault(self.incarnation, set()).add(key)
        self.made_again |= self.lost & {key}
        self.lost.discard(key)

    def created(self, key: str, data: bytes) -> None:
        """Take in what was written below the mount point."""
        self.looked(key)
        self._written_below = self._now()

    def replaced(self, key: str, data: bytes) -> None:
        """Take in what was replaced below the mount point."""

    def deleting(self, key: str) -> None:
        """Take in what goes below the mount point."""

    def has_lost_of(self, key: str) -> bool:
        """Return whether a fault took a file, or the other one of the same segment."""
        segment = key.removesuffix(".index").removesuffix(".log")
        return not self.lost.isdisjoint({key, *layout.segment_files(segment)})

    def unmount(self) -> None:
        """Let an empty folder lie at the address.

        Who has written a file there reads the marker, and then looks at the file: the disk is mounted in between at
        most once.
        """
        if self._now() >= self._written_below + _MARKER_READ_SECONDS:
            self._is_mounted, self._mount_wanted, self.was_away = False, False, True

    def marked(self) -> None:
        """Note that the disk has got its marker: what was written after it was wiped is its own, too."""
        self.was_there[self.incarnation] = set(self.real.data)
        self.first_incarnation = self.first_incarnation or self.incarnation

    def wipe(self, kept: Callable[[str], bool] = lambda _: False) -> None:
        """Empty the disk, the marker too, but for keys that are `kept`."""
        self.was_away = True
        self.restored = False
        data = {key: value for key, value in self.real.data.items() if kept(key)}
        self.real.data.clear()
        self.real.data.update(data)
        self.lost.clear()
        self.backup.clear()

    def take_backup_when_due(self, of: Callable[[str], bool], chance: random.Random) -> None:
        """Remember what is there now of the keys that are `of` the backup, now and then."""
        if self.backup and chance.random() < 0.5:
            return
        self.backup = {key: value for key, value in self.real.data.items() if of(key) and key not in self.lost}

    def restore(self, of: Callable[[str], bool]) -> None:
        """Put the disk back to the backup, as far as the keys are `of` it."""
        now = {key for key in self.real.data if of(key)}
        self.lost |= now - self.backup.keys()
        for key in now:
            del self.real.data[key]
        self.real.data.update(self.backup)
        self.lost -= self.backup.keys()

    def lose(self, key: str) -> None:
        """Take one file away."""
        del self.real.data[key]
        self.lost.add(key)

    def flip(self, key: str, position: int) -> None:
        """Change one bit of a file."""
        data = bytearray(self.real.data[key])
        data[position % len(data)] ^= 1
        self.flips += 1
        self.real.data[key] = bytes(data)
        self.lost.add(key)
