"""Registers: where a journal's entries are decided when several stores hold it, each on a node of its own.

    <journal>/entries/<number, 20 digits>.<ballot>          the vote: b"V" and the value, or b"N" (nil)
    <journal>/entries/<number, 20 digits>.<ballot>.claim    b"C" and the nonce of the attempt that claims the ballot

Each register has a spare (`spare`): one that was lost is not filled again with something else. In later generations of
the journal's stores (`generations`) the folder is `entries.<generation>/`. So what two generations decide never mixes,
though a store be in both.

Each is the body of an envelope b"PLRG", version 1. A value is a stored journal entry.
Created once and never replaced; `agreement` says who may write what, and what is decided. All keys of a journal lie in
one folder: a folder for each entry would cost a local store more flushes. `members` says which stores count.

**Trimmed slots.** A store lets go of registers only when it has a newer snapshot itself. So who finds a register
empty, or fills it, looks at that store's snapshots next, in the same call: of the stores that answer one had a vote of
whatever was decided there, and its snapshot tells. What is decided in such a slot later on is void (`journal`).
"""

from __future__ import annotations

import itertools
import os
import re
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyspark_log_coordinator.journal import paxos, snapshot
from pyspark_log_coordinator.journal.paxos import NIL, Attempt, Call, Register, Task
from pyspark_log_coordinator.journal.quorum import ANSWER_SECONDS
from pyspark_log_coordinator.journal.store_threads import BACKLOG_MAX
from pyspark_log_storage import spare
from pyspark_log_storage.envelope import seal, unseal
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NewerFormat,
    NodeMissing,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.layout import entries as entries_folder
from pyspark_log_storage.layout import number as digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_storage.store import Store

_BACKOFF_SECONDS_MIN = 0.01
_BACKOFF_SECONDS_MAX = 1.0
_MAGIC = b"PLRG"
_VERSION = 1
_VALUE, _NIL, _CLAIM = b"V", b"N", b"C"
T = TypeVar("T")
_NAME = re.compile(r"([0-9]{20})\.([0-9]+)(\.claim)?")


def encode(register: Register, content: bytes) -> bytes:
    """Return the stored bytes of a register that holds `content`: a nonce, a value, or `NIL`."""
    kind = _CLAIM if register.is_claim else _NIL if content == NIL else _VALUE
    return seal(_MAGIC, _VERSION, kind + content)


def decode(register: Register, data: bytes, name: str) -> bytes:
    """Return the content of a register. Raises `CorruptObject`, `NewerFormat`."""
    body = unseal(_MAGIC, _VERSION, data, name)
    kind, content = body[:1], body[1:]
    if kind not in {_VALUE, _NIL, _CLAIM}:
        raise NewerFormat(name, f"it holds something of kind {kind!r}")
    if (kind == _CLAIM) != register.is_claim or (kind == _NIL) != (content == NIL):
        raise CorruptObject(name, f"it holds something of kind {kind!r}, {len(content)} bytes")
    return content


def parse(name: str) -> tuple[int, Register] | None:
    """Return which entry's register a file of this name is, None for one that a file system left there."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), Register(int(found[2]), found[3] is not None)) if found else None


def slot_of(name: str) -> int | None:
    """Return whose entry's a file of this name is, None for one that a file system left there."""
    found = parse(name)
    return found[0] if found else None


class Registers:
    """The slots of a journal on several stores, as one thread of one process sees them. Does what `EntryLog` does."""

    def __init__(
        self, members: Members, journal: str, environment: Environment, patience_ms: int, generation: int = 1
    ) -> None:
        """`journal`, its folder, ends with "/". `patience_ms` bounds how long a majority that is silent is asked."""
        self._members = members
        self._journal = journal
        self._folder = entries_folder(journal, generation)
        self._environment = environment
        self._patience_ms = patience_ms
        self._process = os.getpid()
        self._leads = 0
        """The entry whose vote 0 this process may fill, once; 0 for none."""
        self._led = 0
        """The newest entry for which it ever might: nobody may twice."""
        self._snapshot: int | None = None
        """The newest snapshot that the stores had when they gave their last answers; None where they were not asked."""

    def name(self, n: int) -> str:
        """Return what errors call entry `n`."""
        return f"journal entry {digits(n)} in {self._folder} of {self._members.urls}"

    def key(self, n: int, register: Register) -> str:
        """Return where a register of entry `n` lies on each store."""
        return f"{self._folder}{digits(n)}.{register.ballot}{'.claim' if register.is_claim else ''}"

    def keys(self, n: int) -> tuple[str, ...]:
        """Return the keys of what holds entry `n`, on any store. Raises `StoreUnavailable` without a majority."""

        def keys_in(store: Store) -> list[str]:
            after = store.list(self._folder, f"{self._folder}{digits(n)}")
            found = list(itertools.takewhile(lambda key: slot_of(key.removeprefix(self._folder)) == n, after))
            return [*found, *(spare.key(self._journal, key) for key in found)]

        return tuple(sorted({key for keys in self._list(keys_in) for key in keys}))

    def read(self, n: int) -> bytes | None:
        """Return the bytes decided for slot `n`, or None where none were when this was called.

        Where a store is silent and the others do not suffice to tell, it finishes what another began, or rules it out.
        Raises `StoreUnavailable` where a majority did not answer within the patience, other errors where it cannot.
        """
        return self._run(n, paxos.read(len(self._members), self._nonce())).value

    def confirm(self, n: int) -> None:
        """Return once the entry in slot `n`, and so all before it, is durable; nothing for 0, before the first."""
        if n > 0:
            self._run(n, paxos.read(len(self._members), self._nonce(), durable=True))

    def propose(self, n: int, data: bytes, *, shared: bool = False) -> bytes:
        """Return the bytes decided for slot `n`: `data`, or what another got in first.

        `data` holds a nonce, so equal bytes are one's own; unless they are `shared`: others may propose the same, and
        then nobody may take them for a sign that he leads at the next slot. Raises `OutcomeUnknown` where a majority
        did not answer and `data` may be decided yet; `StoreUnavailable`, which is retriable, or another error where it
        cannot be.
        """
        leads = self.leads(n)
        self._leads = 0
        attempt = paxos.propose(len(self._members), self._nonce(), data, leads=leads)
        decided = self._run(n, attempt, is_proposal=True).value
        assert decided is not None, "who proposes a value does not end without one"
        if decided == data and not shared and n + 1 > self._led:
            # A forked process has this memory too, and must not lead: the process is part of the right.
            self._leads = self._led = n + 1
            self._process = os.getpid()
        return decided

    def leads(self, n: int) -> bool:
        """Return whether this process was the last to decide an entry, as far as it knows, and `n` is the next."""
        return self._leads == n and self._process == os.getpid()

    def newest_snapshot(self) -> int:
        """Return the newest snapshot that there was when `read` or `propose` answered last, or later; 0 for none.

        Raises `StoreUnavailable` where a majority does not answer.
        """
        newest, self._snapshot = self._snapshot, None
        if newest is not None:
            return newest
        return max(self._list(lambda store: next(snapshot.numbers(store, self._journal), 0)))

    def newest_behind(self, n: int) -> int:
        """Return the newest entry behind slot `n` that anybody has begun to decide, who knew all before; 0 for none.

        Raises `StoreUnavailable` without a majority.
        """

        def newest_in(store: Store) -> int:
            keys = store.list(self._folder, f"{self._folder}{digits(n)}~")
            return max((slot_of(key.removeprefix(self._folder)) or 0 for key in keys), default=0)

        return max(self._list(newest_in))

    def numbers_below(self, n: int) -> Iterator[int]:
        """Yield the numbers of the entries before `n` that are there for certain, in ascending order.

        That is where a majority has a vote 0: it is filled or closed before anything is decided, and is the first of
        its slot to go. A store that is away may hide some, and one that was away may have more.
        """
        counts: dict[int, int] = {}
        for slots in self._list(lambda store: self._voted(store, below=n), all_within_a_second=True):
            for slot in slots:
                counts[slot] = counts.get(slot, 0) + 1
        yield from sorted(slot for slot, count in counts.items() if count >= self._members.majority)

    def numbers_after(self, n: int) -> Iterator[int]:
        """Yield the numbers of the entries behind `n`, in ascending order, whether or not one is missing between."""
        listed = self._list(lambda store: self._voted(store, above=n), all_within_a_second=True)
        for slot in sorted(set().union(*listed)):
            if self.read(slot) is not None:
                yield slot

    def _voted(self, store: Store, *, above: int = 0, below: int | None = None) -> set[int]:
        """Return the slots of which a store has the vote 0."""
        slots = set()
        for key in store.list(self._folder, f"{self._folder}{digits(above)}~"):
            found = parse(key.removeprefix(self._folder))
            if found is not None and below is not None and found[0] >= below:
                break
            if found is not None and found[1] == Register(0):
                slots.add(found[0])
        return slots

    def _list(self, act: Callable[[Store], T], *, all_within_a_second: bool = False) -> list[T]:
        """Return what `act` gives at a majority of the stores, at all that answer within a second if so asked."""
        is_majority = self._members.is_majority
        enough = None if all_within_a_second else is_majority
        answers = self._members.ask(act, self._environment, self._patience_ms, enough=enough, settled=is_majority)
        if not is_majority(answers):
            raise self._members.failure(f"the journal in {self._folder} cannot be listed", answers)
        return [each.result for each in answers if each.error is None]

    def _nonce(self) -> bytes:
        return self._environment.nonce().encode()

    def _run(self, n: int, attempt: Attempt, *, is_proposal: bool = False) -> Attempt:
        """Make the calls that an attempt wants until it is done.

        Where a proposal has lost the vote 0 another has most likely been decided: to read that takes one round or two,
        and to claim a ballot, which is safe too, more.
        """
        environment = self._environment
        deadline = environment.monotonic() + self._patience_ms / 1000
        backoff = _BACKOFF_SECONDS_MIN
        troubles = _Troubles(self.name(n), self._members, attempt.own)
        self._snapshot = None
        while attempt.task is not Task.DONE:
            before = attempt
            calls = paxos.wanted(attempt)
            if calls:
                attempt = self._ask(n, attempt, calls, troubles)
            else:
                troubles.raise_if_hopeless(in_time=environment.monotonic() < deadline)
                attempt = paxos.again(attempt)
            lost = attempt.task is Task.CLAIM and (before.task, before.ballot) != (attempt.task, attempt.ballot)
            if lost and is_proposal and before.ballot == 0:
                is_proposal = False
                found = self._run(n, paxos.read(len(self._members), self._nonce()))
                if found.value is not None:
                    return found
            if lost and environment.monotonic() >= deadline:
                troubles.give_up(f"others claimed ballot after ballot, up to {attempt.ballot - 1}")
            if lost or not calls:
                environment.sleep(environment.uniform(backoff / 2, backoff))
                backoff = min(backoff * 2, _BACKOFF_SECONDS_MAX)
            if attempt.task is Task.DONE and not _looked_at_snapshots(before.task, attempt.value):
                self._snapshot = None
        return attempt

    def _ask(self, n: int, attempt: Attempt, calls: dict[int, Call], troubles: _Troubles) -> Attempt:
        """Begin the calls that are not on their way, and return the attempt after the next answer."""
        for store, call in calls.items():
            if (store, call) not in troubles.under_way:
                if not self._members.start(attempt.nonce, store, call, partial(self._content, n, call)):
                    error = self._members.unavailable(store, f"{BACKLOG_MAX} calls wait for its answer")
                    troubles.note(store, call, error)
                    return paxos.silent(attempt, [store])
                troubles.under_way.add((store, call))
        answer = self._members.next(ANSWER_SECONDS)
        if answer is None:
            for store, call in calls.items():
                troubles.note(store, call, self._members.unavailable(store, f"no answer within {ANSWER_SECONDS:g} s"))
            return paxos.silent(attempt, list(calls))
        if answer.asker != attempt.nonce:
            return attempt  # of an attempt that is over
        assert isinstance(answer.call, Call)
        troubles.under_way.discard((answer.store, answer.call))
        troubles.note(answer.store, answer.call, answer.error)
        if calls.get(answer.store) != answer.call:
            return attempt  # of a task that is over
        if answer.error is not None:
            return paxos.silent(attempt, [answer.store])
        content, newest = answer.result
        self._snapshot = max(self._snapshot or 0, newest)
        return paxos.answered(attempt, answer.store, content)

    def _content(self, n: int, call: Call, store: Store) -> tuple[bytes | None, int]:
        """Return what is in a register after a call, and the store's newest snapshot where that is of interest."""
        content = self._create_or_read(n, store, call)
        if call.register.is_claim or content not in {None, call.content} or content == NIL:
            return content, 0
        return content, next(snapshot.numbers(store, self._journal), 0)

    def _create_or_read(self, n: int, store: Store, call: Call) -> bytes | None:
        key = self.key(n, call.register)
        if call.content is not None:
            data = encode(call.register, call.content)
            # A register that was lost must not be filled with something else.
            if spare.spare_of(store, self._journal, key) in {None, data} and store.create(key, data):
                # Before the answer: of three stores two may be all that ever get it.
                return decode(call.register, spare.add(store, self._journal, key, data), f"{store.url}/{key}")
        found = spare.read(store, self._journal, key)
        if found is not None:
            return decode(call.register, found, f"{store.url}/{key}")
        if call.content is None:
            return None
        raise StoreUnavailable(store.url, key, f"{key} was there and is gone: it is asked for again")


def _looked_at_snapshots(last: Task, value: bytes | None) -> bool:
    """Return whether those whose answers ended an attempt were asked for their snapshots, too."""
    return last is Task.FILL or (last is Task.LOOK and value is None)


class _Troubles:
    """What went wrong at each store since it last answered, and whether one's own value may be somewhere."""

    def __init__(self, name: str, members: Members, own: bytes | None) -> None:
        self._name = name
        self._members = members
        self._own = own
        self._errors: dict[int, LogError] = {}
        self._written = False
        self.under_way: set[tuple[int, Call]] = set()
        """The calls that were begun and have not been answered."""

    def note(self, store: int, call: Call, error: Exception | None) -> None:
        """Take in how a call ended."""
        assert error is None or isinstance(error, LogError), error
        if error is None:
            self._errors.pop(store, None)
        else:
            self._errors[store] = error
        # Only a plain refusal promises that nothing was written; a marker may have gone after the create.
        if error is None or error.retriable or isinstance(error, NodeMissing):
            self._written = self._written or self._is_own(call)

    def raise_if_hopeless(self, *, in_time: bool) -> None:
        """Raise where too few stores will answer, whatever one waits for; all that do not answer have errors."""
        spare = len(self._members) - self._members.majority
        lasting = sum(not error.retriable for error in self._errors.values())
        missing = sum(not error.retriable or isinstance(error, NodeMissing) for error in self._errors.values())
        # Waiting here settles a proposal that was written somewhere. Otherwise the caller decides whether to wait.
        if in_time and (lasting if self._written else missing) <= spare:
            return
        failing = f"{len(self._errors)} of {len(self._members)} stores do not answer"
        self.give_up(f"{failing}, and {len(self._members) - spare} must", act=lasting > spare)

    def give_up(self, reason: str, *, act: bool = False) -> NoReturn:
        """Raise what says whether the own value may be decided yet. `act`: an operator must, else nothing changes."""
        facts = "; ".join(filter(None, [reason, self._members.blame(self._errors)]))
        first = next(iter(self._errors.values()), None)
        if self._written or any(self._is_own(call) for _, call in self.under_way):
            message = (
                f"{self._name} may or may not be decided as proposed: {facts}. Look for its effect before trying again"
            )
            raise OutcomeUnknown(message) from first
        urls = ", ".join(self._members.members[store].store.url for store in sorted(self._errors))
        if act:
            message = f"{self._name} cannot be decided or read: {facts}. Nothing was proposed; repair a store"
            raise StoreRefused(urls, "", message) from first
        message = f"{self._name} cannot be decided or read now: {facts}. Nothing was proposed; try again"
        raise StoreUnavailable(urls, "", message) from first

    def _is_own(self, call: Call) -> bool:
        return self._own is not None and call.content == self._own
