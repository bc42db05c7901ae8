"""Replay: a journal's state, folded from a stored snapshot and the entries after it.

    evolve(state, event) -> state

Each entry must name the hash of the entry before it. The `Journal` is a replay that keeps up with the newest entry; its
history uses another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import msgspec

from pyspark_log_coordinator.journal import journal_entry, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, digest
from pyspark_log_coordinator.journal.objects import Objects
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_coordinator.journal.single_store import EntryLog
from pyspark_log_coordinator.journal.snapshot import Snapshot
from pyspark_log_coordinator.journal.state_machine import C, Machine, S
from pyspark_log_storage import decoding
from pyspark_log_storage.decoding import IMPOSSIBLE
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, OutOfChain, StoreError

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.place import JournalPlace


class EntryMissing(CorruptObject):
    """An entry is missing, and a later one exists."""


class Replay(Generic[S, C]):
    """The state after an entry, and access to the stored objects with which it continues."""

    def __init__(self, place: JournalPlace, folder: str, machine: Machine[S, C]) -> None:
        """`folder` holds the entries and snapshots, and ends with "/". Reads nothing yet."""
        self.folder = folder
        self._machine = machine
        self._environment = place.environment
        self.place = place
        self.entries = self.entries_at(place)
        self.objects = self.objects_at(place)
        self._reset()

    def entries_at(self, place: JournalPlace) -> EntryLog | Registers:
        if isinstance(place, OneStore):
            return EntryLog(place, self.folder)
        return Registers(place, self.folder)

    def objects_at(self, place: JournalPlace) -> Objects:
        return Objects(place, self.folder)

    def _reset(self) -> None:
        self.state: S = self._machine.initial
        self.number = 0
        """The number of the newest entry in `state`."""
        self.time_ms = 0
        """When the newest entry that was read was written, by its writer's clock."""
        self.last_hash = NO_HASH
        """The hash of the newest known entry, zeros before the first."""

    @property
    def generation(self) -> int:
        """The generation of the place in which the journal continues after the newest known entry."""
        return self._machine.generation(self.state)

    def begin(self) -> Replay[S, C]:
        """Return another replay of the same journal, before its first entry."""
        return Replay(self.place, self.folder, self._machine)

    def copy(self) -> Replay[S, C]:
        """Return another replay of the same journal, after the same entry."""
        other = self.begin()
        other.state, other.number, other.time_ms = self.state, self.number, self.time_ms
        other.last_hash = self.last_hash
        return other

    def load_newest(self, after: int = 0) -> bool:
        """Load the newest snapshot of an entry later than `after`; return whether there is one.

        A damaged one gives way to the one before it; on several stores, so does one that cannot be read. If the entries
        after that were trimmed, to read them will fail. Raises `CorruptObject`, `NewerFormat`, `StoreError`.
        """
        while numbers := [each for each in self.objects.snapshots() if each > after]:
            errors: list[LogError] = []
            for number in numbers:
                try:
                    self.load(number)
                except (CorruptObject, StoreError) as error:
                    if self.place.certain and not isinstance(error, (CorruptObject, ObjectMissing)):
                        raise
                    errors.append(error)
                else:
                    return True
            # One that is missing was deleted since it was listed, if there is a newer one. If not, a majority of
            # several stores never had it, and no entry was trimmed because of it.
            if next(self.objects.snapshots(), 0) == numbers[0]:
                if not self.place.certain and all(isinstance(error, ObjectMissing) for error in errors):
                    return False
                raise errors[-1]
        return False

    def load(self, number: int) -> None:
        """Load the state from a snapshot. Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`."""
        found = self.objects.read(number)
        self.state = self.state_in(found)
        self.number = number
        self.last_hash = found.hash

    def take_next(self, data: bytes | None = None) -> list[Any]:
        """Fold the next entry, which must exist, and return its events. `data`: its bytes, if they were read already.

        Raises `CorruptObject`, `NewerFormat`.
        """
        name = self.entries.name(self.number + 1)
        data = data or self.entries.read(self.number + 1)
        if data is None:
            raise EntryMissing(name, "it is missing, and a later one exists")
        events = self._decode(data, name)
        self._fold(data, events)
        return events

    def state_in(self, found: Snapshot) -> S:
        """Return the state in a snapshot. Raises `CorruptObject`, `NewerFormat`."""
        machine = self._machine

        def checked(encoded: bytes | msgspec.Raw) -> S:
            state = machine.decode_state(encoded)
            machine.check(machine.initial, state)
            return state

        return decoding.decode(checked, found.state, self.objects.name(found.number))

    def encoded_snapshot(self) -> tuple[str, bytes]:
        """Return key and bytes of the snapshot of the newest known entry, whether or not it is stored."""
        key = snapshot.key(self.folder, self.number)
        return key, snapshot.encode(self._snapshot(), key)

    def create_snapshot(self, objects: Objects | None = None) -> None:
        """Write the snapshot of the newest known entry, here or to `objects` in another place. Raises `StoreError`."""
        (objects or self.objects).create(self._snapshot())

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.number, self.last_hash, msgspec.Raw(self._machine.encode_state(self.state)))

    def _fold(self, data: bytes, events: list[Any]) -> None:
        """Fold the next entry. Raises `CorruptObject`, and changes nothing, if its events cannot follow the state."""
        try:
            state = self._after(events)
        except IMPOSSIBLE as error:
            raise self._impossible(error) from error
        self._advance(data, state)

    def _after(self, events: list[Any]) -> S:
        """Return the state after the events of the next entry. Raises `CorruptObject` if that state is impossible."""
        state = self.state
        for event in events:
            state = self._machine.evolve(state, event)
        try:
            self._machine.check(self.state, state)
        except ValueError as error:
            raise self._impossible(error) from error
        return state

    def _advance(self, data: bytes, state: S) -> None:
        """Make the next entry, and the state after it, the newest known ones."""
        self.state = state
        self.number += 1
        self.last_hash = digest(data)

    def _impossible(self, error: Exception) -> CorruptObject:
        name = self.entries.name(self.number + 1)
        return CorruptObject(name, f"its events cannot follow the entries before it ({decoding.reason(error)})")

    def _decode(self, data: bytes, name: str) -> list[Any]:
        """Return the events of the stored entry that follows the newest known one.

        Raises `CorruptObject`, `NewerFormat`.
        """
        entry = journal_entry.decode(data, name, journal_entry.place(self.folder, self.number + 1))
        if entry.previous != self.last_hash:
            raise OutOfChain(name, "it does not follow the entry before it: that has another hash")
        self.time_ms = entry.time_ms
        return decoding.decode(self._machine.decode_events, entry.events, name)
