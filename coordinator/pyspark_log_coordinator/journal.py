"""The journal: refresh, decide, append, replay. The only writer of a state machine's entries.

    decide(state, command, now) -> list[Event]  (or raises)      evolve(state, event) -> state

`submit` refreshes to the newest entry, decides, and creates entry N+1; where that exists already, it folds it
and decides again. So every decision is linearizable, whoever makes it, with no lock and no server. The state
is kept and brought up to date by reading only what is new.

Below an existing snapshot entries may be removed (`trim`). A process that slept meanwhile finds no next entry, or an
old slot free: so a missing entry means the end only if there is no newer snapshot, and an entry that was created
counts only if no newer snapshot says otherwise. No clock decides this.
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
from pyspark_log_storage.errors import (
    CorruptObject,
    NewerFormat,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    UnknownVersion,
)
from pyspark_log_storage.layout import born_name, born_of, has_born, newest_first, number_of_newest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.store import Store

SNAPSHOT_EVERY = 256
SNAPSHOTS_KEPT = 4
"""How many snapshots trimming leaves: so many times 256 versions can still be asked for."""
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
        self._patience_ms = patience_ms
        self._entries = EntryLog(store, f"{folder}entries/", environment, patience_ms)
        self._events = msgspec.msgpack.Decoder(GenericAlias(list, (machine.event_types,)))
        self._opened = False
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
        while True:
            if (data := self._entries.read(self.number + 1)) is not None:
                self._take(data)
            elif self._newest_snapshot() > self.number:
                # This process slept: what came next has been trimmed, or lies beyond a slot that was.
                self._reload()
            else:
                return self.state

    def submit(self, command: C) -> Outcome[S]:
        """Carry out a command and return what it came to, once it is durable.

        Raises what `decide` raises, and `OutcomeUnknown` where it cannot be known whether the entry was written.
        """
        self.refresh()
        backoff = _CONFLICT_BACKOFF_SECONDS
        while True:
            events = self._machine.decide(self.state, command, self._environment.now_ms())
            if not events:
                # The promise rests on entries that were only read: their writer may have died before they were durable.
                self._entries.confirm(self.number)
                return Outcome(self.number, self.state, [])
            mine = self._encode(events)
            decided = self._entries.propose(self.number + 1, mine)
            if decided == mine and self._counts(self.number + 1, mine):
                self._fold(mine, events)
                self._write_snapshot_when_due()
                return Outcome(self.number, self.state, events)
            if decided == mine:
                self._reload()
            else:
                self._take(decided)
            self._environment.sleep(self._environment.uniform(0, backoff))
            backoff = min(backoff * 2, _CONFLICT_BACKOFF_SECONDS_MAX)
            self.refresh()

    def history(self) -> Iterator[tuple[int, list[Any], S]]:
        """Yield number, events and the state afterwards of every kept entry, oldest first, read afresh.

        Begins after the oldest snapshot where the first entries have been trimmed. Each snapshot that is passed is held
        against the folded state. Raises `CorruptObject`.
        """
        self.refresh()
        past = Journal(self._store, self._folder, self._machine, self._environment)
        past._opened = True
        snapshots = self._kept_snapshots()
        begin = snapshots[0] if snapshots and self._is_trimmed(snapshots[0]) else 0
        while past.number < self.number:
            try:
                if begin > past.number:
                    past._load(begin)
                    continue
                events = past._take_next()
            except (CorruptObject, ObjectMissing):
                # What was trimmed while this was read is no damage.
                tried, begin = begin, min(self._kept_snapshots(), default=0)
                if begin <= max(tried, past.number) or not self._is_trimmed(begin):
                    raise
                continue
            yield past.number, events, past.state
            with contextlib.suppress(ObjectMissing):  # trimmed likewise
                if past.number in snapshots and past._read_snapshot(past.number).hashes[-1] != past._hashes[-1]:
                    name = self._snapshot_name(past.number)
                    raise CorruptObject(name, "it is of another history than the entries are")

    def state_at(self, number: int) -> S:
        """Return the state as it was after entry `number`, without changing what this journal knows.

        Raises `UnknownVersion` for an entry that has been trimmed, or is not there yet.
        """
        self.refresh()
        before: tuple[int, ...] = ()
        while True:
            snapshots = self._kept_snapshots()
            oldest = snapshots[0] if snapshots and self._is_trimmed(snapshots[0]) else 1
            if not oldest <= number <= self.number:
                raise UnknownVersion(number, oldest, self.number)
            try:
                return self._folded_up_to(number, max((each for each in snapshots if each <= number), default=0))
            except (CorruptObject, ObjectMissing):
                # What has been trimmed while it was read is no damage, and another look shows that it is gone.
                if (oldest, *snapshots) == before:
                    raise
                before = (oldest, *snapshots)

    def _folded_up_to(self, number: int, snapshot_number: int) -> S:
        """Return the state after entry `number`, folded from a snapshot, or from the first entry where that is 0."""
        past = Journal(self._store, self._folder, self._machine, self._environment)
        past._opened = True
        if snapshot_number > 0:
            past._load(snapshot_number)
        while past.number < number:
            past._take_next()
        return past.state

    def _is_trimmed(self, oldest: int) -> bool:
        """Return whether entries before the oldest snapshot's are missing; after a power failure some may be back."""
        return sum(1 for _ in self._entries.keys_below(oldest)) < oldest - 1

    def trim(self) -> int:
        """Remove entries, manifests and snapshots that nobody needs; return how many objects went.

        The newest `SNAPSHOTS_KEPT` snapshots stay, with the oldest one's entry and all after it. Snapshots go first, so
        that one that is there has all its successors, wherever this is cut short; then entries in ascending order.
        """
        self.refresh()
        numbers = sorted(self._snapshot_numbers())
        if len(numbers) <= SNAPSHOTS_KEPT:
            return 0
        oldest = numbers[-SNAPSHOTS_KEPT]
        doomed = [f"{self._snapshots}{newest_first(number)}" for number in numbers[:-SNAPSHOTS_KEPT]]
        doomed += self._entries.keys_below(oldest)
        folder = f"{self._folder}manifests/"
        # A manifest is of the entry after its born, and of no other: with that slot it goes.
        for key in self._store.list(folder):
            name = key.removeprefix(folder)
            if has_born(name) and born_of(name) + 1 < oldest:
                doomed.append(key)
        for key in doomed:
            self._store.delete(key)
        return len(doomed)

    def _counts(self, number: int, mine: bytes) -> bool:
        """Return whether the entry just created at `number` is part of the journal.

        Raises `OutcomeUnknown` where it cannot be known, and never a retriable error: the entry has been written.
        """
        deadline = self._environment.monotonic() + self._patience_ms / 1000
        while True:
            try:
                return self._is_in_the_chain(number, mine)
            except StoreError as error:
                # A snapshot that was listed may have been trimmed since.
                passing = error.retriable or isinstance(error, ObjectMissing)
                if not passing or self._environment.monotonic() > deadline:
                    message = f"{self._entries.name(number)} was written, and it cannot be known whether it counts"
                    raise OutcomeUnknown(f"{message}: {error}") from error
            self._environment.sleep(self._environment.uniform(0, _CONFLICT_BACKOFF_SECONDS_MAX))

    def _is_in_the_chain(self, number: int, mine: bytes) -> bool:
        """Return whether the entry at `number` is `mine`, by the newest snapshot.

        A snapshot of it or a later one means that the slot may have been collected before: the snapshot's hashes
        tell. Raises `OutcomeUnknown` where they do not go back so far.
        """
        newest = self._newest_snapshot()
        if newest < number:
            return True
        hashes = self._read_snapshot(newest).hashes
        index = len(hashes) - 1 - (newest - number)
        if index < 0:
            raise OutcomeUnknown(
                f"{self._entries.name(number)} was written by a process that had slept, and it cannot be known any "
                "more whether it counted; look for its effect before trying again"
            )
        return hashes[index] == digest(mine)

    def _reload(self) -> None:
        """Start again from the newest snapshot."""
        self._reset()
        self._load_snapshot()

    def _encode(self, events: list[Any]) -> bytes:
        encoded = msgspec.msgpack.encode(events)
        nonce = self._environment.nonce()
        named = None
        if len(encoded) > journal_entry.INLINE_BYTES_MAX:
            stored = manifest.encode(encoded)
            named = ManifestName(born_name(self.number, nonce), digest(stored))
            self._store.create(f"{self._folder}manifests/{named.name}", stored)
        previous = self._hashes[-1] if self._hashes else NO_HASH
        raw = NO_EVENTS if named else msgspec.Raw(encoded)
        return journal_entry.encode(Entry(nonce, self._environment.now_ms(), previous, raw, named))

    def _take_next(self) -> list[Any]:
        """Fold the next entry, which is there, and return its events."""
        name = self._entries.name(self.number + 1)
        data = self._entries.read(self.number + 1)
        if data is None:
            raise CorruptObject(name, "it is missing, and a later one is there")
        entry = self._decode(data, name)
        events = self._decode_events(entry, name)
        self._fold(data, events)
        return events

    def _decode(self, data: bytes, name: str) -> Entry:
        """Return the stored entry that follows the newest known one. Raises `CorruptObject`, `NewerFormat`."""
        entry = journal_entry.decode(data, name)
        if entry.previous != (self._hashes[-1] if self._hashes else NO_HASH):
            raise CorruptObject(name, "it does not follow the entry before it: the hash that it names is another")
        return entry

    def _take(self, data: bytes) -> None:
        """Fold the stored entry that follows the newest known one, or start again where that one has been trimmed."""
        name = self._entries.name(self.number + 1)
        try:
            entry = self._decode(data, name)
            events = self._decode_events(entry, name)
        except (CorruptObject, ObjectMissing):
            # To a process that slept a chain may not fit, or a manifest be gone with its entry, and nothing be wrong.
            if self._newest_snapshot() <= self.number:
                raise
            self._reload()
        else:
            self._fold(data, events)

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
        while (number := self._newest_snapshot()) > 0:
            try:
                self._load(number)
            except ObjectMissing:
                # Removed since it was listed: there is a newer one.
                if self._newest_snapshot() == number:
                    raise
            else:
                return

    def _load(self, number: int) -> None:
        found = self._read_snapshot(number)
        try:
            self.state = self._machine.decode_state(bytes(found.state))
        except msgspec.ValidationError as error:
            raise NewerFormat(self._snapshot_name(number), str(error)) from error
        self.number = self._snapshot_number = number
        self._hashes = deque(found.hashes, maxlen=HASHES_MAX)

    def _read_snapshot(self, number: int) -> Snapshot:
        name = self._snapshot_name(number)
        found = snapshot.decode(self._store.read(f"{self._snapshots}{newest_first(number)}"), name)
        if found.number != number:
            raise CorruptObject(name, f"it is the snapshot of entry {found.number}")
        return found

    def _snapshot_name(self, number: int) -> str:
        return f"snapshot {self._store.url}/{self._snapshots}{newest_first(number)}"

    def _newest_snapshot(self) -> int:
        """Return the number of the newest snapshot, 0 where there is none."""
        return next(self._snapshot_numbers(), 0)

    def _kept_snapshots(self) -> list[int]:
        """Return the numbers of the snapshots after which all entries are kept, ascending.

        Trimming leaves the newest. An older one, after which an entry is missing, was written late by a process that
        slept, or came back after a power failure.
        """
        numbers = sorted(self._snapshot_numbers())
        older, newest = numbers[:-SNAPSHOTS_KEPT], numbers[-SNAPSHOTS_KEPT:]
        if not older:
            return newest
        there = set(self._entries.keys_below(newest[0]))
        first = newest[0]
        while self._entries.key(first - 1) in there:
            first -= 1
        return [number for number in older if number + 1 >= first] + newest

    def _snapshot_numbers(self) -> Iterator[int]:
        """Yield the numbers of the snapshots, newest first."""
        for key in self._store.list(self._snapshots):
            with contextlib.suppress(ValueError):  # a file system may leave files of its own in any folder
                yield number_of_newest_first(key.removeprefix(self._snapshots))

    def _snapshot_was_missed(self) -> bool:
        """Return whether none was written for so long that one was missed, by this process or another."""
        if self.number - self._snapshot_number < 2 * SNAPSHOT_EVERY:
            return False
        with contextlib.suppress(StoreError):
            self._snapshot_number = max(self._snapshot_number, self._newest_snapshot())
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
