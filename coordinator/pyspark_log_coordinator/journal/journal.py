"""The journal: refresh, decide, append. The only writer of a state machine's entries.

    decide(state, command, now) -> list[Event]  (or raises)

`submit` refreshes to the newest entry, decides, and creates entry N+1; where that exists already, it folds it
and decides again. So every decision is linearizable, whoever makes it, with no lock and no server. The state
is kept and brought up to date by reading only what is new.

Below an existing snapshot entries may be removed (`trim`). A process that slept meanwhile finds no next entry, or an
old slot free: so a missing entry means the end only if there is no newer snapshot, and an entry that was created
counts only if no newer snapshot says otherwise. No clock decides this.

A journal may move to other stores (`generations`): an entry says so, which is the last one here. Nobody decides or
reads anything behind it but there, where the journal begins with the snapshot of that entry and the entry itself.
Whoever folds it goes on there, and begins the journal where nobody has.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pyspark_log_coordinator.journal import journal_entry, manifest, snapshot
from pyspark_log_coordinator.journal.journal_entry import NO_EVENTS, Entry, ManifestName, digest
from pyspark_log_coordinator.journal.replay import PATIENCE_MS, EntryMissing, Replay
from pyspark_log_coordinator.journal.snapshot import Snapshot
from pyspark_log_coordinator.journal.state_machine import Machine
from pyspark_log_storage import spare
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, OutcomeUnknown, StoreError
from pyspark_log_storage.layout import born_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.place import JournalPlace, Objects
    from pyspark_log_storage.spare import Fault

    Follow = Callable[[int], JournalPlace]
    """Returns the place of a generation of a journal, or a later one in which the journal is known to have begun."""

SNAPSHOT_EVERY = 256
SNAPSHOTS_KEPT = 4
"""How many snapshots trimming leaves: so many times 256 versions can still be asked for."""
_CONFLICT_BACKOFF_SECONDS = 0.002
_CONFLICT_BACKOFF_SECONDS_MAX = 0.1

S = TypeVar("S")
C = TypeVar("C")


class Outcome(msgspec.Struct, Generic[S], frozen=True):
    """What a command came to: the events, none where nothing had to change, and the state after them."""

    number: int
    state: S
    events: list[Any]


class Journal(Replay[S, C]):
    """One journal, as one thread of one process sees it."""

    def __init__(
        self,
        place: JournalPlace,
        folder: str,
        machine: Machine[S, C],
        environment: Environment,
        patience_ms: int = PATIENCE_MS,
        follow: Follow | None = None,
    ) -> None:
        """`folder`, which ends with "/", is where entries, snapshots and manifests lie. Reads nothing yet.

        `follow` finds the place of a generation, where the journal may have moved. Without it the journal is read up to
        the entry that moves it, and nothing is submitted behind that.
        """
        super().__init__(place, folder, machine, environment, patience_ms)
        self._follow = follow
        self._opened = False
        """Whether the newest snapshot was looked for; the next refresh does it where not."""
        self.left_at = 0
        """The newest entry known here when the journal went on elsewhere; 0 where it did not."""

    def _reset(self) -> None:
        super()._reset()
        self._snapshot_number = 0
        """The newest entry that is known to have a snapshot."""
        self._is_gapless = False
        """Whether it was made sure, since this began, that no entry behind the newest known one is there."""

    def load(self, number: int) -> None:
        super().load(number)
        self._snapshot_number = number

    def refresh(self) -> S:
        """Fold what is new and return the state, which is never older than it was, also where this fails.

        Raises `CorruptObject`, `NewerFormat`, `StoreError`.
        """
        known = self.state, self.number, self._hashes.copy(), self._snapshot_number
        try:
            return self._refresh()
        except BaseException as error:
            if self.number < known[1]:  # it began again, and did not get so far
                self.state, self.number, self._hashes, self._snapshot_number = known
                self._opened = False
            # The stores may be gone that the journal has left meanwhile.
            if not isinstance(error, StoreError) or not self._is_elsewhere():
                raise
        return self.refresh()

    def _refresh(self) -> S:
        while True:
            if not self._opened:
                self._reset()
                self._load_snapshot()
                self._opened = True
            elif self._has_moved():
                if self._follow is None:
                    return self.state
                self._go_on_there(self._follow)
            elif (data := self.entries.read(self.number + 1)) is not None:
                self._take(data)
            elif (newest := self.entries.newest_snapshot()) > self.number:
                # This process slept: what came next has been trimmed, or lies beyond a slot that was.
                known = self.number
                self._reset()
                self._load_snapshot()
                if self.number == known:
                    self.load(newest)  # which could not be read just now, and nothing else leads on
            else:
                self._check_begun()
                if self._is_gapless or not self._is_behind_a_gap():
                    self._is_gapless = True
                    return self.state

    def _is_behind_a_gap(self) -> bool:
        """Return whether there is more to read after all. Raises `EntryMissing` if it is the next entry that is lost.

        Asked once when a journal is opened. Later on a process has read all that was there.
        """
        later = self.entries.newest_behind(self.number + 1)
        if later == 0:
            return False
        if self.number == 0 and self._has_only_begun(later):
            return False
        if self.entries.read(self.number + 1) is None and self.entries.newest_snapshot() <= self.number:
            raise EntryMissing(
                self.entries.name(self.number + 1),
                f"it is missing, and entry {later} is there. Nothing was read or written without it",
            )
        return True

    def _has_only_begun(self, newest: int) -> bool:
        """Return whether `newest` is the entry of a `begin_at` that was cut short before its snapshot."""
        data = self.entries.read(newest)
        name = self.entries.name(newest)
        return data is not None and journal_entry.decode(data, name).previous == journal_entry.NO_HASH

    def _has_moved(self) -> bool:
        """Return whether the newest known entry is the last one here, or one that is not here any more."""
        return self._machine.generation(self.state) > self._place.generation

    def _go_on_there(self, follow: Follow) -> None:
        """Go on in the place that the newest known entry names, and begin the journal there where nobody has.

        A snapshot may lead further than to the next generation: then first in the one before, in which the journal had
        begun when that entry was decided there.
        """
        generation = self._machine.generation(self.state)
        if generation > self._place.generation + 1:
            self._live_in(self._later(follow(generation - 1)))
            return
        place = self._later(follow(generation))
        if place.generation == generation:
            self._begin_in(place)
        self.left_at = self.number
        self._live_in(place)

    def _later(self, place: JournalPlace) -> JournalPlace:
        """Return a later place. Raises `CorruptObject` if it is none: whoever looked there would look for ever."""
        if place.generation <= self._place.generation:
            generation = self._machine.generation(self.state)
            raise CorruptObject(
                self.entries.name(self.number),
                f"it moves the journal to generation {generation} of the journals' stores, and the cluster has none "
                f"after {self._place.generation}",
            )
        return place

    def _begin_in(self, place: JournalPlace) -> None:
        """Make sure that the journal has begun in the place to which its newest known entry moves it.

        It has where that entry is decided there. Its snapshot comes first, on a majority; and before that the entry
        must be durable here, for nobody here looks for another one afterwards. Whoever does this writes the same
        bytes. Raises `EntryMissing`, `StoreError`.
        """
        number = self.number
        there = place.entries(self._folder, self._environment, self._patience_ms)

        def has_begun() -> bool:
            return there.read(number) is not None or there.newest_snapshot() > number

        if has_begun():
            return
        self.entries.confirm(number)
        data = self.entries.read(number)
        if data is not None and digest(data) == self.last_hash:
            self._create_snapshot(place.objects(self._folder, self._environment, self._patience_ms))
            there.propose(number, data, shared=True)
        elif not has_begun():
            # What is gone here has been trimmed, which nobody does before the journal has begun there.
            raise EntryMissing(
                self.entries.name(number), f"it is missing, and the journal has not begun at {place.url}"
            )

    def _is_elsewhere(self) -> bool:
        """Return whether the journal is known to live in a later place, and go on there if so."""
        if self._follow is None:
            return False
        with contextlib.suppress(LogError):
            return self.go_on_in(self._follow(self._place.generation))
        return False

    def go_on_in(self, place: JournalPlace) -> bool:
        """Go on in a later place, in which the journal is known to have begun; return whether it is later."""
        if place.generation <= self._place.generation:
            return False
        self._live_in(place)
        return True

    def _check_begun(self) -> None:
        """Raise `EntryMissing` where this place knows nothing of a journal that must have begun in it."""
        if self.number > 0 and self._machine.generation(self.state) != self._place.generation:
            name = self.entries.name(self.number + 1)
            raise EntryMissing(name, "the journal has moved here, and nothing of it is here; is a disk an old copy?")

    def submit(self, command: C) -> Outcome[S]:
        """Carry out a command and return what it came to, once it is durable.

        Raises what `decide` raises, and `OutcomeUnknown` where it cannot be known whether the entry was written.
        """
        backoff = _CONFLICT_BACKOFF_SECONDS
        while True:
            events = self._decide(command)
            if not events:
                # The promise rests on entries that were only read: their writer may have died before they were durable.
                self.entries.confirm(self.number)
                return Outcome(self.number, self.state, [])
            after = self._after(events)  # before they are written: nobody could get past what cannot be folded
            mine = self._encode(events)
            decided = self.entries.propose(self.number + 1, mine)
            if decided == mine and self._counts(self.number + 1, mine):
                self._advance(mine, after)
                self._write_snapshot_when_due()
                return Outcome(self.number, self.state, events)
            if decided == mine:
                self._opened = False  # this process slept: it begins again
            else:
                self._take(decided)
            self._environment.sleep(self._environment.uniform(0, backoff))
            backoff = min(backoff * 2, _CONFLICT_BACKOFF_SECONDS_MAX)

    def _decide(self, command: C) -> list[Any]:
        """Return what a command comes to, by the newest entry. Raises where it is refused.

        Who leads at the next entry need not look whether it is there: the proposal tells, if there is one.
        """
        if self._opened and self.entries.leads(self.number + 1) and not self._has_moved():
            with contextlib.suppress(LogError):
                events = self._machine.decide(self.state, command, self._environment.now_ms())
                if events:
                    return events
        self.refresh()
        assert not self._has_moved(), "only who can follow a journal decides on it"
        return self._machine.decide(self.state, command, self._environment.now_ms())

    def begin_at(self, number: int, command: C) -> Outcome[S]:
        """Begin the journal, of which nothing is there, with an entry of this number and its snapshot.

        It looks like one whose older entries were trimmed. So it takes the place of one that was lost: whoever knows an
        older entry of that one, and looks for the next, finds the snapshot. Raises `StoreError`, and `OutcomeUnknown`
        where another began it.
        """
        self._reset()
        self.number = number - 1
        self._opened = True
        events = self._machine.decide(self.state, command, self._environment.now_ms())
        after = self._after(events)
        mine = self._encode(events)
        if self.entries.propose(number, mine) != mine:
            self._reset()
            raise OutcomeUnknown(f"{self.entries.name(number)} was written by another; do not do this twice at once")
        self._advance(mine, after)
        self._create_snapshot()
        return Outcome(number, self.state, events)

    def trim(self) -> int:
        """Remove entries, manifests and snapshots that nobody needs; return how many objects went.

        The newest `SNAPSHOTS_KEPT` snapshots stay, with the oldest one's entry and all after it. Snapshots go first, so
        that one that is there has all its successors, wherever this is cut short; then entries in ascending order.
        """
        self.refresh()
        oldest = self._oldest_kept()
        # Also if there are no more snapshots: another trimming may have been cut short behind its snapshots.
        return self._remove_before(oldest) if oldest > 0 else 0

    def faults(self) -> list[tuple[str, Fault]]:
        """Return what of the journal is missing or damaged, and can be made again; with the address of its store.

        A spare that is missing or torn is no fault: a process or the power may have failed before it was written.
        """
        found = self._objects.faults(self._oldest_kept(), contents=True)
        return [(url, fault) for url, fault in found if fault.key == fault.of]

    def mend(self, *, contents: bool = False) -> list[str]:
        """Make again what is missing, and what is damaged if `contents` are read; return what was made, for people.

        If entries since the newest snapshot are lost for good, the state that this process knows is written as one.
        """
        self.refresh()
        made = self._objects.mend(self._oldest_kept(), contents=contents)
        newest = self._newest_snapshot()
        if self._place.certain and len(list(self.entries.numbers_after(newest))) < self.number - newest:
            self._create_snapshot()
            made.append(self.snapshot_name(self.number))
        return made

    def _oldest_kept(self) -> int:
        """Return the oldest entry whose snapshot trimming leaves, 0 for none that is trimmed by."""
        numbers = sorted(self.snapshot_numbers(everywhere=True))
        return numbers[-SNAPSHOTS_KEPT] if len(numbers) >= SNAPSHOTS_KEPT else 0

    def bury(self) -> int:
        """Remove all but the end of a journal that has ended; return how many objects went.

        The last entry and its snapshot stay for ever: who slept finds there that the journal has ended, and that what
        it writes into older slots counts for nothing.
        """
        self.refresh()
        self._create_snapshot()
        return self._remove_before(self.number)

    def end_keys(self) -> tuple[str, ...]:
        """Return the keys of what holds the newest known entry, and of its snapshot."""
        stored = snapshot.key(self._folder, self.number)
        return *self.entries.keys(self.number), stored, spare.key(self._folder, stored)

    def newest_snapshot(self) -> tuple[str, bytes]:
        """Return key and bytes of the snapshot of the newest known entry, whether or not it is stored."""
        state = msgspec.Raw(self._machine.encode_state(self.state))
        data = snapshot.encode(Snapshot(self.number, list(self._hashes), state))
        return snapshot.key(self._folder, self.number), data

    def clear(self, place: JournalPlace) -> int:
        """Remove what nobody needs in a place from which this object has followed the journal; return how many objects.

        The entry with which it left stays there, and its snapshot: whoever slept finds where the journal went on. What
        was older than that cannot be read any more, here or there. Raises `StoreError`.
        """
        number, check = self.left_at, partial(snapshot.decode_of, self.left_at)
        if number == 0 or place.entries(self._folder, self._environment, self._patience_ms).read(number) is None:
            return 0

        def checked(data: bytes, name: str) -> bytes:
            check(data, name)
            return data

        key = snapshot.key(self._folder, number)
        data = self._objects.read(key, checked)
        there = place.objects(self._folder, self._environment, self._patience_ms)
        there.create(key, data, check)
        return there.remove_before(number, check)

    def _remove_before(self, oldest: int) -> int:
        """Remove what is older than a snapshot that is there; return how many objects went."""
        return self._objects.remove_before(oldest, partial(snapshot.decode_of, oldest))

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
                    message = f"{self.entries.name(number)} was written, and it cannot be known whether it counts"
                    raise OutcomeUnknown(f"{message}: {error}") from error
            self._environment.sleep(self._environment.uniform(0, _CONFLICT_BACKOFF_SECONDS_MAX))

    def _is_in_the_chain(self, number: int, mine: bytes) -> bool:
        """Return whether the entry at `number` is `mine`, by the newest snapshot.

        A snapshot of it or a later one means that the slot may have been collected before: the snapshot's hashes
        tell. Raises `OutcomeUnknown` where they do not go back so far.
        """
        newest = self.entries.newest_snapshot()
        if newest < number:
            return True
        hashes = self.read_snapshot(newest).hashes
        index = len(hashes) - 1 - (newest - number)
        if index < 0:
            raise OutcomeUnknown(
                f"{self.entries.name(number)} was written by a process that had slept, and it cannot be known any "
                "more whether it counted; look for its effect before trying again"
            )
        return hashes[index] == digest(mine)

    def _encode(self, events: list[Any]) -> bytes:
        encoded = msgspec.msgpack.encode(events)
        nonce = self._environment.nonce()
        named = None
        if len(encoded) > journal_entry.INLINE_BYTES_MAX:
            stored = manifest.encode(encoded)
            named = ManifestName(born_name(self.number, nonce), digest(stored))
            self._objects.create(manifest.key(self._folder, named.name), stored, manifest.decode)
        raw = NO_EVENTS if named else msgspec.Raw(encoded)
        return journal_entry.encode(Entry(nonce, self._environment.now_ms(), self.last_hash, raw, named))

    def _take(self, data: bytes) -> None:
        """Fold the stored entry that follows the newest known one, or start again where that one has been trimmed."""
        name = self.entries.name(self.number + 1)
        try:
            events = self._decode(data, name)
        except (CorruptObject, ObjectMissing):
            # To a process that slept a chain may not fit, or a manifest be gone with its entry, and nothing be wrong.
            if self._newest_snapshot() <= self.number:
                raise
            self._opened = False
        else:
            self._fold(data, events)

    def _load_snapshot(self) -> None:
        while numbers := list(self.snapshot_numbers()):
            try:
                self._load_newest(numbers)
            except ObjectMissing:
                # Removed since it was listed: there is a newer one.
                if self._newest_snapshot() == numbers[0]:
                    if self._place.certain:
                        raise
                    return  # a majority has not got it, so nothing has been trimmed by it: the entries lead there
            else:
                return

    def _load_newest(self, numbers: Sequence[int]) -> None:
        """Take the newest snapshot that is whole; on several stores one that can be read, for few may have the newest.

        What is missing behind an older one shows when the entries are read.
        """
        for number in numbers[:-1]:
            try:
                self.load(number)
            except (CorruptObject, StoreError) as error:
                if self._place.certain and not isinstance(error, CorruptObject):
                    raise
            else:
                return
        self.load(numbers[-1])

    def _newest_snapshot(self) -> int:
        """Return the number of the newest snapshot, 0 where there is none."""
        return next(self.snapshot_numbers(), 0)

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
        with contextlib.suppress(StoreError):
            self._create_snapshot()
        self._snapshot_number = self.number

    def _create_snapshot(self, objects: Objects | None = None) -> None:
        """Write the snapshot of the newest known entry, here or among other `objects` of the journal."""
        key, data = self.newest_snapshot()
        (objects or self._objects).create(key, data, partial(snapshot.decode_of, self.number))
