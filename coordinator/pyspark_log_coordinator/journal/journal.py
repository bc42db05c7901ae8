"""The journal: the one writer of a state machine's entries. It refreshes, decides and appends.

    decide(state, command, now) -> list[Event]  (or raises)

`submit` refreshes to the newest entry, decides, and creates entry N+1. If that exists already it folds the existing
entry and decides again. So the decisions of all processes are linearizable, with no lock and no server. The state is
kept, and a refresh reads only what is new.

Entries before an existing snapshot may be trimmed (`trimming`). A process that was suspended meanwhile finds no next
entry, or an old slot free. So a missing entry means the end only if there is no newer snapshot. A created entry counts
only if there is none either, or if the entries up to that snapshot follow it; if these are gone, the process reloads
and decides again. No clock decides this.

A journal may end here, because it goes on at other stores: its last entry says so, and nothing after it is decided or
read here. Who comes to that entry gets `LogMoved`.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyspark_log_coordinator.environment import CLOCKS_AGREE_MS
from pyspark_log_coordinator.journal import journal_entry
from pyspark_log_coordinator.journal.inbox import Answer
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, Entry, digest
from pyspark_log_coordinator.journal.pace import Pace
from pyspark_log_coordinator.journal.replay import EntryMissing, Replay
from pyspark_log_coordinator.journal.state_machine import Machine, Outcome
from pyspark_log_storage.decoding import IMPOSSIBLE
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    LogMoved,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
)

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.inbox import Inbox
    from pyspark_log_coordinator.journal.place import JournalPlace

SNAPSHOT_EVERY = 256
_CONFLICT_BACKOFF_SECONDS, _CONFLICT_BACKOFF_SECONDS_MAX = 0.002, 0.1
_LOSSES_MAX = 2
"""A process that knows the newest entry waits for others after it has lost so many."""
_POLL_SHARE = 4
"""A process that waits looks for its answer again after a fourth of the time for which it has waited."""

S = TypeVar("S")
C = TypeVar("C")


class _Tries(msgspec.Struct):
    """What has become of a command so far."""

    losses: int = 0
    """How often another process was first."""
    met_others: bool = False
    """Whether commands of other processes were in the inbox."""
    is_unknown: bool = False
    """Whether one of its entries may be part of the journal, which nothing tells any more."""
    backoff: float = _CONFLICT_BACKOFF_SECONDS
    may_be_late: bool = True
    """Whether to take the next entry before the inbox is looked into: others may have carried the command out."""


class Journal(Replay[S, C]):
    """One journal. Used by one thread."""

    def __init__(self, place: JournalPlace, folder: str, machine: Machine[S, C]) -> None:
        """`folder` holds the entries and snapshots, and ends with "/". Reads nothing yet."""
        super().__init__(place, folder, machine)
        self._pace = Pace()
        self._opened = False
        """Whether the newest snapshot was loaded. If not, the next refresh starts with it."""

    def _reset(self) -> None:
        super()._reset()
        self._is_gapless = False
        """Whether the newest known entry was once found to be the last one that exists."""
        self._looked = -float("inf")
        """When the newest known entry was the newest, or nearly, by the monotonic clock."""
        self._seen = 0
        """The newest entry after which this process found no newer snapshot."""
        self._durable = 0
        """The newest entry that this process knows to be durable."""

    def _advance(self, data: bytes, state: S) -> None:
        was_opened, self._opened = self._opened, False  # if this is interrupted, the journal is read from the beginning
        super()._advance(data, state)
        self._opened = was_opened

    def refresh(self, *, polls: bool = False, seconds: float = 0.0) -> S:
        """Fold the new entries and return the state. An error never leaves an older state than before.

        `polls` is for callers that ask again and again, so that each time costs little: on one store a request, by the
        name of the next entry. If that was trimmed, this is found when the last full refresh is a second ago, in an
        object store a minute; `seconds` may make it later. Raises `LogMoved` if the journal has ended here;
        `CorruptObject`, `NewerFormat`, `StoreError`.
        """
        is_due = self._environment.monotonic() - self._looked >= max(self.entries.refresh_seconds, seconds)
        knows_all = self._opened and not self.has_ended and not is_due
        if polls and knows_all and not self.entries.may_have(self.number + 1):
            return self.state
        known = self.state, self.number, self.last_hash
        try:
            state = self._refresh()
        except BaseException:
            if self.number < known[1]:  # it started again from a snapshot
                self.state, self.number, self.last_hash = known
                self._opened = False
            raise
        if self.has_ended and self.place.certain:
            name, generation = self.entries.name(self.number), self.generation
            raise CorruptObject(name, f"it moves the journal to generation {generation}: one at the root stays there")
        if self.has_ended:
            raise LogMoved(f"journal in {self.folder} of {self.place.url}")
        return state

    def _refresh(self) -> S:
        end: int | None = None  # the newest entry that there was when this began, if one request tells
        ahead: dict[int, bytes] = {}  # entries that were read together
        incomplete = 0  # the newest snapshot, if a majority of several stores lacks it
        while True:
            if end is None and self._opened and not self.has_ended:
                end = self.entries.end_after(self.number)
            is_end = end is not None and end <= self.number
            if end is not None and self.number + 1 not in ahead:
                ahead = self.entries.read_several(self.number + 1, end)
            if not self._opened:
                self._reset()
                self.load_newest()
                self._opened = True
            elif self.has_ended:
                return self.state
            elif not is_end and (data := ahead.get(self.number + 1) or self.entries.read(self.number + 1)) is not None:
                self._take(data)
            elif not is_end and (newest := self.entries.newest_snapshot()) > max(self.number, incomplete):
                # This process was suspended: the next entry, or one before it, has been trimmed.
                if not self._load_newer():
                    incomplete = newest
            else:
                if not self._is_gapless or not (end is None or is_end) or self.entries.is_followed(self.number + 1):
                    if self._has_more(incomplete):
                        end = None
                        continue
                    self._is_gapless, self._pace.is_contended = True, False
                self._looked, self._seen = self._environment.monotonic(), self.number
                return self.state

    def _has_more(self, incomplete: int) -> bool:
        """Return whether there is more to read. Raises `EntryMissing` if the next entry is lost.

        Called once after the journal is opened, from when on the process has read every entry that existed, and when
        there is a later one. Of snapshots up to `incomplete` a majority has none.
        """
        later = self.entries.newest_after(self.number + 1)
        if later == 0 or (self.number == 0 and self._has_only_begun(later)):
            return False
        is_missing = self.entries.read(self.number + 1) is None
        if is_missing and self.entries.newest_snapshot() <= max(self.number, incomplete):
            raise EntryMissing(
                self.entries.name(self.number + 1),
                f"it is missing, and entry {later} exists; nothing was read or written without it",
            )
        return True

    def _has_only_begun(self, newest: int) -> bool:
        """Return whether `newest` is the first entry of a `begin_at` that was interrupted before its snapshot."""
        data = self.entries.read(newest)
        return data is not None and journal_entry.decode(data, self.entries.name(newest)).previous == NO_HASH

    @property
    def has_ended(self) -> bool:
        """Whether the newest known entry is the last one here, or one that only a later place has."""
        return self.generation > self.place.generation

    def submit(self, command: C, inbox: Inbox[C] | None = None) -> Outcome[S]:
        """Execute a command and return its outcome once it is durable.

        With an `inbox` the command, whose repetition must change nothing, may be carried out by another process. Then
        the outcome has its answer, or is that of the repetition. If the entry also has other processes' commands, the
        outcome has neither their events nor the state after them. Raises what `decide` raises, and
        `OutcomeUnknown` if it cannot be known whether the entry was written, or whether it counts. A command with an
        `inbox` is decided again in the latter case; what refuses it then says nothing about the first try.
        """
        tries = _Tries()
        try:
            return self._submit(command, inbox, tries)
        except LogError as error:
            if not tries.is_unknown or isinstance(error, OutcomeUnknown):
                raise
            message = (
                "the outcome is unknown, because this process had been suspended, and was refused when it tried again"
            )
            raise OutcomeUnknown(f"{message}: {error}") from error

    def _submit(self, command: C, inbox: Inbox[C] | None, tries: _Tries) -> Outcome[S]:
        while True:
            if inbox is not None and (answer := self._answer_of_others(command, inbox, tries)) is not None:
                self._pace.has_lost = True
                return Outcome(answer.number, self.state, [], answer.outcome)
            events = self._decide(command, tries.losses, is_final=inbox is not None)
            if not events:
                if self._was_suspended():
                    continue
                return self._unchanged(tries, inbox)
            after = self._after(events)  # before they are written: an entry that cannot be folded would end the journal
            own = Outcome(self.number + 1, after, events)
            others: dict[str, Answer] = {}
            if inbox is not None and (inbox.is_used or self._pace.wants_a_look(self.number + 1)):
                if tries.may_be_late and self._take_next():
                    continue
                tries.may_be_late = False
                inbox.look()
                tries.met_others |= inbox.has_others
                events, after = self._combine(events, after, inbox, others)
            if self._propose(events, after, tries, is_repeatable=inbox is not None):
                if inbox is not None and others:
                    inbox.reply(others)
                return own
            tries.losses += 1
            if inbox is None or not inbox.is_used:
                self._environment.sleep(self._environment.uniform(0, tries.backoff))
                tries.backoff = min(tries.backoff * 2, _CONFLICT_BACKOFF_SECONDS_MAX)

    def _unchanged(self, tries: _Tries, inbox: Inbox[C] | None) -> Outcome[S]:
        """Return the outcome of a command that has nothing to change after the newest entry, once that is durable."""
        # The outcome rests on entries that were only read: their writer may have died before they were durable.
        if inbox is None or self._durable < self.number:
            self.entries.confirm(self.number)
        self._pace.has_lost = tries.losses > 0 or (inbox is not None and inbox.is_used)
        return Outcome(self.number, self.state, [])

    def _answer_of_others(self, command: C, inbox: Inbox[C], tries: _Tries) -> Answer | None:
        """Let another process carry the command out, and return its answer; None if this process is to do it.

        That is one without competitors, one that knows all entries but the newest, and one whose command has waited
        longest in vain. It is enough if those read the entries: the rest only look for their answers. The processes
        that wrote the last two entries take turns, so that one writes while the other's next rows arrive.
        """
        if not self._pace.is_slow or not (tries.losses or self._pace.has_lost) or not self._opened or self.has_ended:
            return None
        if self._pace.has_lost and tries.losses < _LOSSES_MAX and (not tries.may_be_late or self._is_near_end()):
            return None
        inbox.put(self.number, command)
        answer = self._wait_for_answer(inbox) if inbox.is_used else None
        if answer is None:
            self.refresh()
            tries.may_be_late = False
        return answer

    def _is_near_end(self) -> bool:
        """Return whether this process knows all entries but the newest; also if it was suspended for long."""
        return self.entries.leads(self.number + 1) or not self.entries.may_have(self.number + 2)

    def _wait_for_answer(self, inbox: Inbox[C]) -> Answer | None:
        """Return the answer to the command in the inbox, or None if it is this process's turn."""
        vain, oldest, may_be_next = 0, "", True
        number = max(self.number, inbox.heard_of)
        if not inbox.expects_answer:
            inbox.look()
            if not inbox.must_wait(0):
                return None
        while (answer := self._next_answer(inbox, inbox.patience(vain))) is None:
            if may_be_next and self.entries.may_have(number + 1):
                number, may_be_next = number + 1, False  # others write entries, and the next may have the command
                continue
            inbox.look()
            if not inbox.must_wait(vain):
                return inbox.answer()  # it may have come in the meantime
            vain = vain + 1 if inbox.oldest == oldest else 0
            oldest, may_be_next = inbox.oldest, True
        return answer

    def _next_answer(self, inbox: Inbox[C], seconds: float) -> Answer | None:
        """Return the answer to the command in the inbox, or None if it does not come in time."""
        environment = self._environment
        begin = environment.monotonic()
        while (answer := inbox.answer()) is None:
            waited = environment.monotonic() - begin
            if waited > seconds:
                break
            pause = max(inbox.poll_seconds, waited / _POLL_SHARE)
            environment.sleep(environment.uniform(pause / 2, pause))
        return answer

    def _now_ms(self) -> int:
        """Return the time of the next entry: not before the newest known one's, unless that is in the future."""
        now = self._environment.now_ms()
        return max(now, self.time_ms) if self.time_ms <= now + CLOCKS_AGREE_MS else now

    def _combine(self, events: list[Any], after: S, inbox: Inbox[C], answers: dict[str, Answer]) -> tuple[list[Any], S]:
        """Return the events of the next entry, with those of all commands in the inbox, and the state after them.

        `events` are those of the own command, and `after` is the state after them. Add to `answers` what to tell the
        other processes as soon as the entry is durable.
        """
        machine, now_ms = self._machine, self._now_ms()
        for key, command in inbox.others():
            try:
                more = machine.decide(after, command, now_ms)
                then = functools.reduce(machine.evolve, more, after)
                machine.check(self.state, then)
            except (LogError, *IMPOSSIBLE):
                inbox.settle(key)  # its own process will meet the error, if it is one
                continue
            answer = machine.answer(command, Outcome(self.number + 1, then, more))
            if answer is not None:
                answers[key] = Answer(self.number + 1, answer)
            elif not more:
                inbox.settle(key)
            events, after = [*events, *more], then
        return events, after

    def _propose(self, events: list[Any], after: S, tries: _Tries, *, is_repeatable: bool) -> bool:
        """Propose the next entry, with `after` as the state after it. Return whether it became part of the journal."""
        mine = self._encode(events)
        begin = self._environment.monotonic()
        decided = self.entries.propose(self.number + 1, mine)
        self._pace.measure(self._environment.monotonic() - begin)
        counts = self._counts(self.number + 1, mine, decided)
        if counts:
            self._advance(mine, after)
            self._durable = self._seen = self.number
            self._looked = self._environment.monotonic()
            self._pace.is_contended = False
            self._pace.has_lost = tries.losses > 0 or tries.met_others
            if self.number % SNAPSHOT_EVERY == 0:
                # It only saves time, so a store that refuses it does not fail the command, which is durable.
                with contextlib.suppress(StoreError, CorruptObject):
                    self.create_snapshot()
            return True
        if counts is None or decided == mine:
            self._opened = False  # this process was suspended, and its entry may not count
            tries.is_unknown |= counts is None
            if counts is None and not is_repeatable:
                raise OutcomeUnknown(
                    f"{self.entries.name(self.number + 1)} was proposed by a process that had been suspended, and it "
                    "cannot be known any more whether it counted; look for its effect before trying again"
                )
        else:
            try:
                is_folded = self._take(decided)
            except (CorruptObject, StoreError) as error:
                if not self.entries.may_have_written:
                    raise
                raise OutcomeUnknown(f"{error}; it may be the one that was just proposed") from error
            self._durable = self.number if is_folded else 0
        return False

    def _was_suspended(self) -> bool:
        """Return whether the newest known entry may not count: its slot may have been trimmed before it was filled."""
        if self._seen == self.number or self.entries.newest_snapshot() <= self.number:
            return False
        self._opened = False
        return True

    def _take_next(self) -> bool:
        """Take the next entry if it exists, and return whether it does."""
        data = self.entries.read(self.number + 1)
        if data is not None:
            self._take(data)
        return data is not None

    def _decide(self, command: C, losses: int = 0, *, is_final: bool = False) -> list[Any]:
        """Return the events of a command after the newest entry. Raises if it is refused.

        A process that leads at the next entry, or has just seen the newest one, does not refresh: its proposal fails if
        the entry exists. One that loses again and again refreshes, or it would never catch up. With `is_final` a
        command that has nothing to change will never have.
        """
        if self._may_propose_unread(is_late=not is_final and losses > 0 and losses % 2 == 0):
            with contextlib.suppress(LogError):
                events = self._machine.decide(self.state, command, self._now_ms())
                if events or is_final:
                    return events
        self.refresh()
        return self._machine.decide(self.state, command, self._now_ms())

    @property
    def is_fresh(self) -> bool:
        """Whether not to refresh: the newest known entry was the newest a moment ago, and the store is slow.

        There a refresh costs as much as to lose an entry.
        """
        return self.is_recent and self._pace.is_slow

    @property
    def waits_for_store(self) -> bool:
        """Whether a commit waits for the store for the most part, so that this process has time for something else."""
        return self._pace.is_slow

    def expects_answer(self, inbox: Inbox[C]) -> bool:
        """Whether the next command with this inbox is likely to be carried out by another process."""
        return self._pace.is_slow and self._pace.has_lost and inbox.expects_answer

    @property
    def is_recent(self) -> bool:
        """Whether the newest known entry was the newest a moment ago."""
        return self._opened and self._environment.monotonic() - self._looked < self.entries.fresh_seconds

    def _may_propose_unread(self, *, is_late: bool) -> bool:
        """Return whether to propose the next entry without looking first whether it exists.

        A process that has not looked for long might find a trimmed slot, and not learn what became of its entry.
        """
        if not self._opened or self.has_ended:
            return False
        if self.entries.leads(self.number + 1):
            return True
        return self.entries.loses_cheaply and self._is_gapless and self.is_fresh and not is_late

    def begin_at(self, number: int, command: C) -> Outcome[S]:
        """Begin the journal, of which nothing exists, with the entry of this number and its snapshot.

        It looks as if its older entries were trimmed. So it can replace one that was lost: a process that knows an
        older entry of the lost one finds the snapshot. If an interrupted call has written an entry with the same
        events, the call is finished. Raises `StoreError`, and `OutcomeUnknown` if the entry has other events.
        """
        self._reset()
        self.number = number - 1
        self._opened = True
        events = self._machine.decide(self.state, command, self._now_ms())
        after = self._after(events)
        mine = self._encode(events)
        decided = self.entries.propose(number, mine)
        if decided != mine and self._decode(decided, self.entries.name(number)) != events:
            self._reset()
            raise OutcomeUnknown(f"{self.entries.name(number)} was written by another process; run this once at a time")
        self._advance(decided, after)
        self.create_snapshot()
        return Outcome(number, self.state, events)

    def _counts(self, number: int, mine: bytes, decided: bytes) -> bool | None:
        """Return whether the entry `mine`, which was just proposed for slot `number`, is part of the journal.

        None if that cannot be known any more. Raises `OutcomeUnknown` if a store fails, and never a retriable error:
        the entry may have been written.
        """
        if decided != mine and not self.entries.may_have_written:
            return False
        deadline = self._environment.monotonic() + self.place.patience_ms / 1000
        while True:
            try:
                return self._is_in_the_chain(number, mine, decided)
            except StoreError as error:
                if not error.retriable or self._environment.monotonic() > deadline:
                    message = f"{self.entries.name(number)} was written, and it cannot be known whether it counts"
                    raise OutcomeUnknown(f"{message}: {error}") from error
            self._environment.sleep(self._environment.uniform(0, _CONFLICT_BACKOFF_SECONDS_MAX))

    def _is_in_the_chain(self, number: int, mine: bytes, decided: bytes) -> bool | None:
        """Return whether the entry at `number` is `mine`. `decided` is what the slot held a moment ago.

        If there is a snapshot of that entry or a later one, the slot may have been trimmed before it was filled with
        `decided`. The entry is in the chain if the hash in that snapshot leads back to it. None if entries between the
        two have been trimmed, too.
        """
        if self.entries.newest_snapshot() < number:
            return decided == mine
        try:
            later = self.begin()
            if not later.load_newest(number - 1):
                return decided == mine
            expected = later.last_hash
            for each in range(later.number, number, -1):
                data = self.entries.read(each)
                if data is None or digest(data) != expected:
                    return None
                expected = journal_entry.decode(data, self.entries.name(each)).previous
        except (CorruptObject, ObjectMissing):
            return None
        return expected == digest(mine)

    def _encode(self, events: list[Any]) -> bytes:
        encoded = msgspec.Raw(msgspec.msgpack.encode(events))
        entry = Entry(self._environment.nonce(), self._now_ms(), self.last_hash, encoded)
        return journal_entry.encode(entry, journal_entry.place(self.folder, self.number + 1))

    def _load_newer(self) -> bool:
        """Load the newest snapshot after the newest known entry; return whether there is one."""
        self._opened = self._is_gapless = False
        found = self.load_newest(self.number)
        self._opened = True
        return found

    def _take(self, data: bytes) -> bool:
        """Fold the stored entry that follows the newest known one, or load a newer snapshot; return whether it folded.

        After trimming, a suspended process may find an entry that does not follow.
        """
        try:
            events = self._decode(data, self.entries.name(self.number + 1))
        except CorruptObject:
            if not self._load_newer():
                raise
            return False
        self._fold(data, events)
        self._pace.is_contended = True
        return True
