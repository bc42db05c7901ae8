"""The write-once registers in which several stores, each on its own node, decide a journal's entries.

    <journal>/entries/<number, 20 digits>.<ballot>          the vote: the value, or nothing (nil)
    <journal>/entries/<number, 20 digits>.<ballot>.claim    the nonce of the attempt that claims the ballot

Each is in an envelope b"PLRG", version 3, whose place is its key. Under another key it is damaged, neither a vote nor a
claim of its store, which counts as silent in that slot. A value is a stored journal entry. A register is created once
and never replaced; `paxos` has the rules for what is written and what is decided. All registers of a journal are in one
folder, because a folder for each entry would cost a local store more flushes. In later generations of the journal's
stores the folder is `entries.<generation>/`, so that a store in two generations keeps their registers apart.

**Trimmed slots.** A store deletes registers only when it has a newer snapshot itself. So a call that finds a register
empty, or fills it, also reads that store's newest snapshot. If a value had been decided in the slot, one of the stores
that answer had a vote for it, and its snapshot shows this. What is decided in a trimmed slot later is void (`journal`).
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyspark_log_coordinator.journal import paxos, snapshot
from pyspark_log_coordinator.journal.journal_entry import slot_of
from pyspark_log_coordinator.journal.pace import FRESH_SECONDS, REFRESH_SECONDS
from pyspark_log_coordinator.journal.paxos import NIL, Attempt, Call, Register, Task
from pyspark_log_coordinator.journal.place import ANSWER_SECONDS, BACKLOG_MAX
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    LogError,
    NodeMissing,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.layout import entries as entries_folder
from pyspark_log_storage.layout import number as digits
from pyspark_log_storage.objects.envelope import is_whole, read_if_there, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.journal.place import SeveralStores
    from pyspark_log_storage.stores.store import Store
    from pyspark_log_storage.stores.store_threads import Answer

_BACKOFF_SECONDS_MIN = 0.01
_BACKOFF_SECONDS_MAX = 1.0
_MAGIC = b"PLRG"
_VERSION = 3
BEHIND_ENTRIES = 3
"""A store that has no votes of so many entries at the end of a journal is behind."""
T = TypeVar("T")
_NAME = re.compile(r"([0-9]{20})\.([0-9]+)(\.claim)?")


def encode(content: bytes, place: str = "") -> bytes:
    """Return the stored bytes of a register with `content`: a nonce, a value, or `NIL`."""
    return seal(_MAGIC, _VERSION, content, place)


def decode(data: bytes, name: str, place: str | None = None) -> bytes:
    """Return the content of a register. Raises `CorruptObject`, also for another place, and `NewerFormat`."""
    return unseal(_MAGIC, _VERSION, data, name, place)


def parse(name: str) -> tuple[int, Register] | None:
    found = _NAME.fullmatch(name)
    return (int(found[1]), Register(int(found[2]), found[3] is not None)) if found else None


class Registers:
    """The slots of a journal on several stores; see `EntryLog`. Used by one thread."""

    loses_cheaply = False
    """Whether to propose for a slot that is filled costs no more than to read it first."""
    fresh_seconds = FRESH_SECONDS
    refresh_seconds = REFRESH_SECONDS

    def __init__(self, place: SeveralStores, journal: str) -> None:
        """`journal`, its folder, ends with "/"."""
        self._place = place
        self._journal = journal
        self._folder = entries_folder(journal, place.generation)
        self._environment = place.environment
        self._process = os.getpid()
        self._leads = 0
        """The entry whose vote 0 this process may fill, once; 0 for none."""
        self._led_newest = 0
        """The newest entry for which it ever might: a process must not lead twice at the same entry."""
        self.may_have_written = False
        """Whether the last proposal may have been written although other bytes are decided."""
        self._snapshot: int | None = None
        """The newest snapshot of the stores at their last answers; None if they were not asked."""

    def name(self, n: int) -> str:
        return f"journal entry {digits(n)} in {self._folder} of {self._place.url}"

    def key(self, n: int, register: Register) -> str:
        """Return the key of a register of entry `n`, on every store."""
        return f"{self._folder}{digits(n)}.{register.ballot}{'.claim' if register.is_claim else ''}"

    def read(self, n: int) -> bytes | None:
        """Return the bytes that are decided for slot `n`, or None if none were when this was called.

        If the answers do not tell because a store is silent, complete the other process's proposal or rule it out.
        Raises `StoreUnavailable` if no majority answered within the patience, another error if none can.
        """
        return self._run(n, paxos.read(len(self._place), self._nonce())).value

    def read_several(self, first: int, last: int) -> dict[int, bytes]:
        """Return nothing: no one request tells how many entries there are."""
        return {}

    def may_have(self, n: int) -> bool:
        """Return true: to find out costs as much as to read."""
        return True

    def has(self, n: int) -> bool:
        """Return whether entry `n` certainly exists. A store that does not answer may hide one.

        A majority has its vote 0, which is filled or closed before anything is decided, and deleted first.
        """
        key = self.key(n, Register(0))

        def is_enough(answers: Sequence[Answer]) -> bool:
            return sum(each.result is True for each in answers) >= self._place.majority

        settled = self._place.is_majority
        return is_enough(self._place.ask(lambda store: store.exists(key), enough=is_enough, settled=settled))

    def is_followed(self, n: int) -> bool:
        """Return false: a majority has each entry."""
        return False

    def confirm(self, n: int) -> None:
        """Make the entry in slot `n`, and so all before it, durable. Does nothing for 0."""
        if n > 0:
            self._run(n, paxos.read(len(self._place), self._nonce(), durable=True))

    def propose(self, n: int, data: bytes) -> bytes:
        """Return the bytes that are decided for slot `n`: `data`, or those of another process that was faster.

        `data` contains a nonce, so equal bytes are this process's own. Raises `OutcomeUnknown` if no majority answered
        and `data` may still be decided; if it cannot be, `StoreUnavailable`, which is retriable, or another error.
        """
        leads = self.leads(n)
        self._leads = 0
        attempt = paxos.propose(len(self._place), self._nonce(), data, leads=leads)
        failures = _Failures(self.name(n), self._place, data)
        decided = self._run(n, attempt, is_proposal=True, failures=failures).value
        assert decided is not None, "a proposal always ends with a value"
        self.may_have_written = failures.may_have_written
        if decided == data and n + 1 > self._led_newest:
            # A forked process has this memory, too, and must not lead.
            self._leads = self._led_newest = n + 1
            self._process = os.getpid()
        return decided

    def end_after(self, n: int) -> int | None:
        """Return None: no single request tells where a journal on several stores ends."""
        return None

    def leads(self, n: int) -> bool:
        """Return whether this process, to its knowledge, decided the entry before `n`, and so may fill its vote 0."""
        return self._leads == n and self._process == os.getpid()

    def newest_snapshot(self) -> int:
        """Return the newest snapshot at the time of the last `read` or `propose`, or later; 0 if there is none.

        Raises `StoreUnavailable` without a majority.
        """
        newest, self._snapshot = self._snapshot, None
        if newest is not None:
            return newest
        return max(self._list(lambda store: next(snapshot.numbers(store, self._journal), 0)))

    def newest_after(self, n: int) -> int:
        """Return the newest entry after slot `n` for which any undamaged register exists; 0 if there is none.

        Raises `StoreUnavailable` without a majority.
        """

        def newest_in(store: Store) -> int:
            keys = store.list(self._folder, f"{self._folder}{digits(n)}~")
            found = [(slot, key) for key in keys if (slot := slot_of(key.removeprefix(self._folder))) is not None]
            return next((slot for slot, key in reversed(found) if is_whole(read_if_there(store, key) or b"", key)), 0)

        return max(self._list(newest_in))

    def _list(self, act: Callable[[Store], T]) -> list[T]:
        """Return the results of `act` at a majority of the stores."""
        is_majority = self._place.is_majority
        answers = self._place.ask(act, enough=is_majority, settled=is_majority)
        self._place.require_majority(answers, f"the journal in {self._folder} cannot be listed")
        return [each.result for each in answers if each.error is None]

    def _nonce(self) -> bytes:
        return self._environment.nonce().encode()

    def _run(
        self, n: int, attempt: Attempt, *, is_proposal: bool = False, failures: _Failures | None = None
    ) -> Attempt:
        """Make the calls that an attempt wants until it is done.

        If a proposal has lost vote 0, another one has most likely been decided. To read that takes a round or two; to
        claim a ballot, which would be safe, too, takes more. The read goes on with the `failures` of the proposal: if
        it fails, the proposal may be decided yet.
        """
        environment = self._environment
        deadline = environment.monotonic() + self._place.patience_ms / 1000
        backoff = _BACKOFF_SECONDS_MIN
        failures = failures or _Failures(self.name(n), self._place, attempt.own)
        self._snapshot = None
        while attempt.task is not Task.DONE:
            before = attempt
            calls = paxos.wanted(attempt)
            if calls:
                attempt = self._ask(n, attempt, calls, failures)
            else:
                failures.raise_if_hopeless(in_time=environment.monotonic() < deadline)
                failures.say_what_is_awaited(deadline - environment.monotonic())
                attempt = paxos.again(attempt)
            lost = attempt.task is Task.CLAIM and (before.task, before.ballot) != (attempt.task, attempt.ballot)
            if lost and is_proposal and before.ballot == 0:
                is_proposal = False
                found = self._run(n, paxos.read(len(self._place), self._nonce()), failures=failures)
                if found.value is not None:
                    return found
            if lost and environment.monotonic() >= deadline:
                failures.give_up(f"others claimed ballot after ballot, up to {attempt.ballot - 1}")
            if lost or not calls:
                environment.sleep(environment.uniform(backoff / 2, backoff))
                backoff = min(backoff * 2, _BACKOFF_SECONDS_MAX)
            looked_at_snapshots = before.task is Task.FILL or (before.task is Task.LOOK and attempt.value is None)
            if attempt.task is Task.DONE and not looked_at_snapshots:
                self._snapshot = None
        return attempt

    def _ask(self, n: int, attempt: Attempt, calls: dict[int, Call], failures: _Failures) -> Attempt:
        """Start the calls that are not under way, and return the attempt after the next answer."""
        for store, call in calls.items():
            if (attempt.nonce, store, call) not in failures.under_way:
                if not self._place.start(attempt.nonce, store, call, partial(self._content, n, call)):
                    error = self._place.unavailable(store, f"{BACKLOG_MAX} calls wait for its answer")
                    failures.note(store, call, error)
                    return paxos.silent(attempt, [store])
                failures.under_way.add((attempt.nonce, store, call))
        answer = self._place.next(ANSWER_SECONDS)
        if answer is None:
            for store, call in calls.items():
                failures.note(store, call, self._place.unavailable(store, f"no answer within {ANSWER_SECONDS:g} s"))
            return paxos.silent(attempt, list(calls))
        asker, call = answer.tag
        if asker != attempt.nonce:
            return attempt  # of an attempt that is over
        failures.under_way.discard((asker, answer.store, call))
        failures.note(answer.store, call, answer.error)
        if calls.get(answer.store) != call:
            return attempt  # of a task that is over
        if answer.error is not None:
            return paxos.silent(attempt, [answer.store])
        content, newest = answer.result
        self._snapshot = max(self._snapshot or 0, newest)
        return paxos.answered(attempt, answer.store, content)

    def _content(self, n: int, call: Call, store: Store) -> tuple[bytes | None, int]:
        """Return the content of a register after a call, and the store's newest snapshot if the slot may be trimmed."""
        content = self._create_or_read(n, store, call)
        if call.register.is_claim or content not in {None, call.content} or content == NIL:
            return content, 0
        return content, next(snapshot.numbers(store, self._journal), 0)

    def _create_or_read(self, n: int, store: Store, call: Call) -> bytes | None:
        key = self.key(n, call.register)
        if call.content is not None and store.create(key, encode(call.content, key)):
            return call.content
        found = read_if_there(store, key)
        if found is not None:
            return decode(found, f"{store.url}/{key}", key)
        if call.content is None:
            return None
        raise StoreUnavailable(store.url, key, f"{key} existed and is missing now; it will be read again")


def journals_behind(newest: Mapping[str, int], generation: int, store: Store) -> int:
    """Return in how many journals a store has vote 0 of none of the last `BEHIND_ENTRIES` slots.

    `newest` has the number of the newest entry by the journal's folder. A store may lack the votes of an entry or two
    although it is well, because a proposer ends when a majority has them.
    """

    def is_behind(journal: str, n: int) -> bool:
        names = (f"{entries_folder(journal, generation)}{digits(n - back)}.0" for back in range(BEHIND_ENTRIES))
        return n >= BEHIND_ENTRIES and not any(map(store.exists, names))

    return sum(is_behind(journal, n) for journal, n in newest.items())


class _Failures:
    """The error of each store since its last answer, and whether this process's own value may be on any store."""

    def __init__(self, name: str, place: SeveralStores, own: bytes | None) -> None:
        self._name = name
        self._place = place
        self._own = own
        self._errors: dict[int, LogError] = {}
        self._written = False
        self._is_said = False
        self.under_way: set[tuple[bytes, int, Call]] = set()
        """The calls that were started and have not been answered, each with the nonce of its attempt."""

    @property
    def may_have_written(self) -> bool:
        """Whether the own value may be on any store, or may come to be."""
        return self._written or any(self._is_own(call) for *_, call in self.under_way)

    def note(self, store: int, call: Call, error: Exception | None) -> None:
        assert error is None or isinstance(error, LogError), error
        if error is None:
            self._errors.pop(store, None)
        else:
            self._errors[store] = error
        # Only a refusal promises that nothing was written; a marker may have vanished after the create.
        if error is None or error.retriable or isinstance(error, NodeMissing):
            self._written = self._written or self._is_own(call)

    def raise_if_hopeless(self, *, in_time: bool) -> None:
        """Raise if too few stores will answer even after a wait. All stores that do not answer have errors."""
        minority = len(self._place) - self._place.majority
        lasting = sum(not error.retriable for error in self._errors.values())
        missing = sum(not error.retriable or isinstance(error, NodeMissing) for error in self._errors.values())
        # A wait may settle a proposal that was written on some store. Otherwise the caller decides whether to wait.
        if in_time and (lasting if self._written else missing) <= minority:
            return
        failing = f"{len(self._errors)} of {len(self._place)} stores failed"
        self.give_up(f"{failing}, and {len(self._place) - minority} must answer", act=lasting > minority)

    def say_what_is_awaited(self, seconds: float) -> None:
        """Log, the first time, that a proposal which is on a store waits for the others for up to `seconds`."""
        if self._written and not self._is_said:
            self._is_said = True
            facts = f"{self._name} is on too few stores: {self._place.describe(self._errors)}"
            logs.warning("retrying for up to %(seconds).3g s: %(error)s", seconds=seconds, error=facts)

    def give_up(self, reason: str, *, act: bool = False) -> NoReturn:
        """Raise an error that tells whether the own value may be decided. `act`: only an operator can help."""
        facts = "; ".join(filter(None, [reason, self._place.describe(self._errors)]))
        first = next(iter(self._errors.values()), None)
        if self.may_have_written:
            message = (
                f"{self._name} may or may not be decided as proposed: {facts}. Look for its effect before trying again"
            )
            raise OutcomeUnknown(message) from first
        urls = ", ".join(self._place.members[store].store.url for store in sorted(self._errors))
        if act:
            message = f"{self._name} cannot be decided or read: {facts}. Nothing was proposed; repair a store"
            raise StoreRefused(urls, "", message) from first
        message = f"{self._name} cannot be decided or read now: {facts}. Nothing was proposed; try again"
        raise StoreUnavailable(urls, "", message) from first

    def _is_own(self, call: Call) -> bool:
        return self._own is not None and call.content == self._own
