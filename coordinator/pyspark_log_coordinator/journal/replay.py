"""Replay: a journal's state, folded from what is stored: a snapshot, then entry after entry.

    evolve(state, event) -> state

Each entry must name the hash of the one before it, each manifest have the hash that its entry names. Reads only. The
journal is one that follows the newest entry; its history begins another.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from pyspark_log_coordinator.journal import journal_entry, manifest, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, Entry, digest
from pyspark_log_coordinator.journal.snapshot import HASHES_MAX, Snapshot
from pyspark_log_coordinator.journal.state_machine import C, Machine, S
from pyspark_log_storage import decoding
from pyspark_log_storage.decoding import IMPOSSIBLE
from pyspark_log_storage.errors import CorruptObject, OutOfChain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.place import JournalPlace

PATIENCE_MS = 120_000


class EntryMissing(CorruptObject):
    """An entry is not there, and one behind it is."""


class Replay(Generic[S, C]):
    """A state, the number of the newest entry in it, and the stored objects to go on with."""

    def __init__(
        self,
        place: JournalPlace,
        folder: str,
        machine: Machine[S, C],
        environment: Environment,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """`folder`, which ends with "/", is where entries, snapshots and manifests lie. Reads nothing yet."""
        self._folder = folder
        self._machine = machine
        self._environment = environment
        self._patience_ms = patience_ms
        self._live_in(place)
        self._reset()

    def _live_in(self, place: JournalPlace) -> None:
        """Go on with what is stored in a place; what is known of the journal stays known."""
        self._place = place
        self.entries = place.entries(self._folder, self._environment, self._patience_ms)
        self._objects = place.objects(self._folder, self._environment, self._patience_ms)

    def _reset(self) -> None:
        self.state: S = self._machine.initial
        self.number = 0
        """The newest entry that `state` contains."""
        self._hashes: deque[bytes] = deque(maxlen=HASHES_MAX)

    @property
    def place(self) -> JournalPlace:
        """Where the journal lives."""
        return self._place

    def begin(self) -> Replay[S, C]:
        """Return another replay of the same journal, before its first entry."""
        return Replay(self._place, self._folder, self._machine, self._environment, self._patience_ms)

    def load(self, number: int) -> None:
        """Take the state from a snapshot. Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`."""
        found = self.read_snapshot(number)
        self.state = self.state_in(found)
        self.number = number
        self._hashes = deque(found.hashes, maxlen=HASHES_MAX)

    def take_next(self) -> list[Any]:
        """Fold the next entry, which is there, and return its events. Raises `CorruptObject`, `NewerFormat`."""
        name = self.entries.name(self.number + 1)
        data = self.entries.read(self.number + 1)
        if data is None:
            raise EntryMissing(name, "it is missing, and a later one is there")
        events = self._decode(data, name)
        self._fold(data, events)
        return events

    def read_snapshot(self, number: int) -> Snapshot:
        """Return the snapshot of an entry. Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`."""

        def decode(data: bytes, name: str) -> Snapshot:
            return snapshot.decode_of(number, data, name)

        return self._objects.read(snapshot.key(self._folder, number), decode)

    def state_in(self, found: Snapshot) -> S:
        """Return the state that a snapshot holds. Raises `CorruptObject`, `NewerFormat`."""
        machine = self._machine

        def checked(encoded: bytes | msgspec.Raw) -> S:
            state = machine.decode_state(encoded)
            machine.check_state(state, found.number)
            return state

        return decoding.decode(checked, found.state, self.snapshot_name(found.number))

    def snapshot_name(self, number: int) -> str:
        """Return what errors call the snapshot of entry `number`."""
        return self._objects.name(snapshot.key(self._folder, number))

    def snapshot_numbers(self, *, everywhere: bool = False) -> Iterator[int]:
        """Return the numbers of the snapshots, newest first; see `Objects.snapshots`."""
        return self._objects.snapshots(everywhere=everywhere)

    @property
    def last_hash(self) -> bytes:
        """The hash of the newest entry, zeros before the first."""
        return self._hashes[-1] if self._hashes else NO_HASH

    def _fold(self, data: bytes, events: list[Any]) -> None:
        """Fold the next entry. Raises `CorruptObject` if its events cannot follow the state; then nothing changes."""
        try:
            state = self._after(events)
        except IMPOSSIBLE as error:
            raise self._impossible(error) from error
        self._advance(data, state)

    def _after(self, events: list[Any]) -> S:
        """Return the state after the events of the next entry."""
        state = self.state
        for event in events:
            state = self._machine.evolve(state, event)
        self._machine.check_entry(self.state, events, state, self.number + 1)
        return state

    def _advance(self, data: bytes, state: S) -> None:
        """Take the next entry, and the state after it."""
        self.state = state
        self.number += 1
        self._hashes.append(digest(data))

    def _impossible(self, error: Exception) -> CorruptObject:
        name = self.entries.name(self.number + 1)
        return CorruptObject(name, f"its events cannot follow the entries before it ({decoding.reason(error)})")

    def _decode(self, data: bytes, name: str) -> list[Any]:
        """Return the events of the stored entry that follows the newest one.

        Raises `CorruptObject`, `NewerFormat`, and `ObjectMissing` where its manifest is missing.
        """
        entry = journal_entry.decode(data, name)
        if entry.previous != self.last_hash:
            raise OutOfChain(name, "it does not follow the entry before it: the hash that it names is another")
        raw, name = self._events_of(entry, name)
        return decoding.decode(self._machine.decode_events, raw, name)

    def _events_of(self, entry: Entry, name: str) -> tuple[bytes | msgspec.Raw, str]:
        """Return an entry's encoded events, and what errors call the object that holds them."""
        if entry.manifest is None:
            return entry.events, name
        named = entry.manifest

        def decode(stored: bytes, name: str) -> tuple[bytes, str]:
            if digest(stored) != named.hash:
                raise CorruptObject(name, "its hash is not the one that its entry names")
            return manifest.decode(stored, name), name

        return self._objects.read(manifest.key(self._folder, named.name), decode)
