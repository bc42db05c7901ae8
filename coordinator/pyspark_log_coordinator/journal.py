"""The journal: refresh, decide, append, replay. The only writer of a state machine's entries.

    decide(state, command, now) -> list[Event]  (or raises)      evolve(state, event) -> state

`submit` refreshes to the newest entry, decides, and creates entry N+1; where that exists already, it folds it
and decides again. So every decision is linearizable, whoever makes it, with no lock and no server. The state
is kept and brought up to date by reading only what is new.
"""

from __future__ import annotations

import contextlib
from collections import deque
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pyspark_log_coordinator import journal_entry, manifest, snapshot
from pyspark_log_coordinator.entry_log import EntryLog
from pyspark_log_coordinator.journal_entry import NO_EVENTS, NO_HASH, Entry, ManifestName, digest
from pyspark_log_coordinator.snapshot import HASHES_MAX, Snapshot
from pyspark_log_storage.errors import CorruptObject, NewerFormat, StoreError
from pyspark_log_storage.layout import born_name, newest_first, number_of_newest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.store import Store

SNAPSHOT_EVERY = 256
PATIENCE_MS = 120_000
_CONFLICT_BACKOFF_SECONDS = 0.002
_CONFLICT_BACKOFF_SECONDS_MAX = 0.1

S = TypeVar("S")
C = TypeVar("C")


class Machine(msgspec.Struct, Generic[S, C], frozen=True):
    """A state machine: two pure functions over frozen values, and how its values are stored."""

    initial: S
    decide: Callable[[S, C, int], list[Any]]
    """(state, command, now in ms) -> events; raises `LogError` where the command is refused."""
    evolve: Callable[[S, Any], S]
    event_types: Any
    """The union of the event structs, all tagged."""
    encode_state: Callable[[S], bytes]
    decode_state: Callable[[bytes], S]


class Outcome(msgspec.Struct, Generic[S], frozen=True):
    """What a command came to: the events, none where nothing had to change, and the state after them."""

    number: int
    state: S
    events: list[Any]


class Journal(Generic[S, C]):
    """One journal, as one thread of one process sees it."""

    def __init__(
        self,
        store: Store,
        folder: str,
        machine: Machine[S, C],
        environment: Environment,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """`folder`, which ends with "/", is where entries, snapshots and manifests lie. Reads nothing yet."""
        self._store = store
        self._folder = folder
        self._snapshots = f"{folder}snapshots/"
        self._machine = machine
        self._environment = environment
        self._entries = EntryLog(store, f"{folder}entries/", environment, patience_ms)
        self._events = msgspec.msgpack.Decoder(GenericAlias(list, (machine.event_types,)))
        self._opened = False
        self._manifest: ManifestName | None = None
        """What the command that is being carried out has written for its events."""
        self._reset()

    def _reset(self) -> None:
        self.state: S = self._machine.initial
        self.number = 0
        """The newest entry that `state` contains."""
        self._hashes: deque[bytes] = deque(maxlen=HASHES_MAX)
        self._snapshot_number = 0
        """The newest entry that is known to have a snapshot."""

    def refresh(self) -> S:
        """Fold what is new and return the state. Raises `CorruptObject`, `NewerFormat`, `StoreError`."""
        if not self._opened:
            self._load_snapshot()
            self._opened = True
        while (data := self._entries.read(self.number + 1)) is not None:
            self._take(data)
        return self.state

    def submit(self, command: C) -> Outcome[S]:
        """Carry out a command and return what it came to, once it is durable.

        Raises what `decide` raises, and `OutcomeUnknown` where the store did not say whether the entry
        was written.
        """
        self.refresh()
        self._manifest = None
        backoff = _CONFLICT_BACKOFF_SECONDS
        while True:
            events = self._machine.decide(self.state, command, self._environment.now_ms())
            if not events:
                # The promise rests on entries that were only read: their writer may have died before they were durable.
                self._entries.confirm(self.number)
                return Outcome(self.number, self.state, [])
            mine = self._encode(events)
            decided = self._entries.propose(self.number + 1, mine)
            if decided == mine:
                self._fold(mine, events)
                self._write_snapshot_when_due()
                return Outcome(self.number, self.state, events)
            self._take(decided)
            self._environment.sleep(self._environment.uniform(0, backoff))
            backoff = min(backoff * 2, _CONFLICT_BACKOFF_SECONDS_MAX)
            self.refresh()

    def _encode(self, events: list[Any]) -> bytes:
        encoded = msgspec.msgpack.encode(events)
        nonce = self._environment.nonce()
        named = None
        if len(encoded) > journal_entry.INLINE_BYTES_MAX:
            named = self._write_manifest(encoded, nonce)
        previous = self._hashes[-1] if self._hashes else NO_HASH
        raw = NO_EVENTS if named else msgspec.Raw(encoded)
        return journal_entry.encode(Entry(nonce, self._environment.now_ms(), previous, raw, named))

    def _write_manifest(self, encoded: bytes, nonce: str) -> ManifestName:
        """Return the manifest of a command's events: a second attempt that came to the same ones has it already.

        Else a command with many events would be the slowest to try again, and lose the next entry too.
        """
        stored = manifest.encode(encoded)
        found = digest(stored)
        if self._manifest is None or self._manifest.hash != found:
            named = ManifestName(born_name(self.number, nonce), found)
            self._store.create(f"{self._folder}manifests/{named.name}", stored)
            self._manifest = named
        return self._manifest

    def _take(self, data: bytes) -> None:
        """Fold the stored entry that follows the newest known one."""
        name = self._entries.name(self.number + 1)
        entry = journal_entry.decode(data, name)
        if entry.previous != (self._hashes[-1] if self._hashes else NO_HASH):
            raise CorruptObject(name, "it does not follow the entry before it: the hash that it names is another")
        self._fold(data, self._decode_events(entry, name))

    def _decode_events(self, entry: Entry, name: str) -> list[Any]:
        raw: bytes | msgspec.Raw
        if entry.manifest is not None:
            key = f"{self._folder}manifests/{entry.manifest.name}"
            name = f"manifest {self._store.url}/{key}"
            stored = self._store.read(key)
            if digest(stored) != entry.manifest.hash:
                raise CorruptObject(name, "its hash is not the one that its entry names")
            raw = manifest.decode(stored, name)
        else:
            raw = entry.events
        try:
            events: list[Any] = self._events.decode(raw)
        except msgspec.ValidationError as error:
            raise NewerFormat(name, str(error)) from error
        return events

    def _fold(self, data: bytes, events: list[Any]) -> None:
        state = self.state
        for event in events:
            state = self._machine.evolve(state, event)
        self.state = state
        self.number += 1
        self._hashes.append(digest(data))

    def _load_snapshot(self) -> None:
        folder = self._snapshots
        key = self._newest_snapshot_key()
        if key is None:
            return
        name = f"snapshot {self._store.url}/{key}"
        found = snapshot.decode(self._store.read(key), name)
        if key != f"{folder}{newest_first(found.number)}":
            raise CorruptObject(name, f"it is the snapshot of entry {found.number}")
        try:
            self.state = self._machine.decode_state(bytes(found.state))
        except msgspec.ValidationError as error:
            raise NewerFormat(name, str(error)) from error
        self.number = self._snapshot_number = found.number
        self._hashes.extend(found.hashes)

    def _newest_snapshot_key(self) -> str | None:
        return next(iter(self._store.list(self._snapshots)), None)

    def _snapshot_was_missed(self) -> bool:
        """Return whether none was written for so long that one was missed, by this process or another."""
        if self.number - self._snapshot_number < 2 * SNAPSHOT_EVERY:
            return False
        with contextlib.suppress(StoreError, ValueError):
            if key := self._newest_snapshot_key():
                self._snapshot_number = number_of_newest_first(key.removeprefix(self._snapshots))
        return self.number - self._snapshot_number >= 2 * SNAPSHOT_EVERY

    def _write_snapshot_when_due(self) -> None:
        """Write a snapshot at every 256th entry, or at the first chance after one was missed.

        A snapshot only saves time, so a store that refuses it does not fail the command, which is done.
        """
        if self.number % SNAPSHOT_EVERY != 0 and not self._snapshot_was_missed():
            return
        state = msgspec.Raw(self._machine.encode_state(self.state))
        data = snapshot.encode(Snapshot(self.number, list(self._hashes), state))
        with contextlib.suppress(StoreError):
            self._store.create(f"{self._snapshots}{newest_first(self.number)}", data)
        self._snapshot_number = self.number
