"""Registers: where a journal's entries are decided when several stores hold it, each on a node of its own.

    <folder><number, 20 digits>.<ballot>            envelope b"PLRG", version 1, body: b"V" and the value, or b"N" (nil)
    <folder><number, 20 digits>.<ballot>.claim      the same, body: b"C" and the nonce of the attempt that claims

Created once and never replaced; `agreement` says who may write what, and what is decided. All keys of a journal lie in
one folder: a folder for each entry would cost a local store more flushes.

A store counts only in the incarnation that the journal was told: its marker is read before the first call, and again
after each. A store that was wiped, or is not mounted, has lost what it promised. One that is restored from a backup
has, too, and its marker does not show that: it must be given a new incarnation before it is used.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from pyspark_log_coordinator import agreement
from pyspark_log_coordinator.agreement import NIL, Attempt, Call, Register, Task
from pyspark_log_storage.envelope import seal, unseal
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NewerFormat,
    NodeMissing,
    ObjectMissing,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.layout import number as digits
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.store import Store

ANSWER_SECONDS = 1.0
"""How long a store may take where the others do not suffice without it, until one goes on without its answer."""
BACKLOG_MAX = 256
"""How many calls may wait for one store: a store that hangs is not asked for more."""
_BACKOFF_SECONDS_MIN = 0.01
_BACKOFF_SECONDS_MAX = 1.0
_MAGIC = b"PLRG"
_VERSION = 1
_VALUE, _NIL, _CLAIM = b"V", b"N", b"C"


class Member(msgspec.Struct, frozen=True):
    """A store that takes part in deciding, and as which node's, in which incarnation."""

    store: Store
    node: str
    incarnation: str


class Answer(msgspec.Struct, frozen=True):
    """What came of a call at a store."""

    nonce: bytes
    store: int
    call: Call
    content: bytes | None
    error: Exception | None


class Calls(Protocol):
    """Makes calls at several stores at once. Used by one thread."""

    def start(self, store: int, call: Callable[[], Answer]) -> bool:
        """Begin a call at the store of this number. False where too many wait there already."""

    def next(self, seconds: float) -> Answer | None:
        """Return the next answer, None where none came in so many seconds."""


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


class Registers:
    """The slots of a journal on several stores, as one thread of one process sees them. Does what `EntryLog` does."""

    def __init__(
        self,
        members: Sequence[Member],
        folder: str,
        environment: Environment,
        patience_ms: int,
        calls: Calls | None = None,
    ) -> None:
        """`folder` ends with "/". `patience_ms` bounds how long a majority that does not answer is asked."""
        self._members = tuple(members)
        self._folder = folder
        self._environment = environment
        self._patience_ms = patience_ms
        self._calls = calls or ThreadCalls(len(self._members))
        self._greeted: set[int] = set()
        """The stores that have shown their markers since they last failed to."""
        self._process = os.getpid()
        self._leads = 0
        """The entry whose vote 0 this process may fill, once; 0 for none."""
        self._led = 0
        """The newest entry for which it ever might: nobody may twice."""

    def name(self, n: int) -> str:
        """Return what errors call entry `n`."""
        return f"journal entry {digits(n)} in {self._folder} of {', '.join(each.store.url for each in self._members)}"

    def key(self, n: int, register: Register) -> str:
        """Return where a register of entry `n` lies on each store."""
        return f"{self._folder}{digits(n)}.{register.ballot}{'.claim' if register.is_claim else ''}"

    def read(self, n: int) -> bytes | None:
        """Return the bytes decided for slot `n`, or None where none were when this was called.

        Where a store is silent and the others do not suffice to tell, it finishes what another began, or rules it out.
        Raises `StoreUnavailable` where a majority did not answer within the patience, other errors where it cannot.
        """
        return self._run(n, agreement.read(len(self._members), self._nonce())).value

    def confirm(self, n: int) -> None:
        """Return once the entry in slot `n`, and so all before it, is durable; nothing for 0, before the first."""
        if n > 0:
            self._run(n, agreement.read(len(self._members), self._nonce(), durable=True))

    def propose(self, n: int, data: bytes) -> bytes:
        """Return the bytes decided for slot `n`: `data`, or what another got in first.

        `data` holds a nonce, so equal bytes are one's own. Raises `OutcomeUnknown` where a majority did not answer and
        `data` may be decided yet; `StoreUnavailable`, which is retriable, or another error where it cannot be.
        """
        leads = self._leads == n and self._process == os.getpid()
        self._leads = 0
        attempt = agreement.propose(len(self._members), self._nonce(), data, leads=leads)
        decided = self._run(n, attempt).value
        assert decided is not None, "who proposes a value does not end without one"
        if decided == data and n + 1 > self._led:
            # A forked process has this memory too, and must not lead: the process is part of the right.
            self._leads = self._led = n + 1
            self._process = os.getpid()
        return decided

    def _nonce(self) -> bytes:
        return self._environment.nonce().encode()

    def _run(self, n: int, attempt: Attempt) -> Attempt:
        """Make the calls that an attempt wants until it is done."""
        environment = self._environment
        deadline = environment.monotonic() + self._patience_ms / 1000
        backoff = _BACKOFF_SECONDS_MIN
        troubles = _Troubles(self.name(n), self._members, attempt.own)
        while attempt.task is not Task.DONE:
            before = attempt
            calls = agreement.wanted(attempt)
            if calls:
                attempt = self._ask(n, attempt, calls, troubles)
            else:
                troubles.raise_if_hopeless(in_time=environment.monotonic() < deadline)
                attempt = agreement.again(attempt)
            lost = attempt.task is Task.CLAIM and (before.task, before.ballot) != (attempt.task, attempt.ballot)
            if lost and environment.monotonic() >= deadline:
                troubles.give_up(f"others claimed ballot after ballot, up to {attempt.ballot - 1}")
            if lost or not calls:
                environment.sleep(environment.uniform(backoff / 2, backoff))
                backoff = min(backoff * 2, _BACKOFF_SECONDS_MAX)
        return attempt

    def _ask(self, n: int, attempt: Attempt, calls: dict[int, Call], troubles: _Troubles) -> Attempt:
        """Begin the calls that are not on their way, and return the attempt after the next answer."""
        for store, call in calls.items():
            if (store, call) not in troubles.under_way:
                if not self._calls.start(store, partial(self._answer, n, attempt.nonce, store, call)):
                    troubles.note(store, call, self._unavailable(store, f"{BACKLOG_MAX} calls wait for its answer"))
                    return agreement.silent(attempt, [store])
                troubles.under_way.add((store, call))
        answer = self._calls.next(ANSWER_SECONDS)
        if answer is None:
            for store, call in calls.items():
                troubles.note(store, call, self._unavailable(store, f"no answer within {ANSWER_SECONDS:g} s"))
            return agreement.silent(attempt, list(calls))
        if answer.nonce != attempt.nonce:
            return attempt  # of an attempt that is over
        troubles.under_way.discard((answer.store, answer.call))
        troubles.note(answer.store, answer.call, answer.error)
        if calls.get(answer.store) != answer.call:
            return attempt  # of a task that is over
        if answer.error is not None:
            return agreement.silent(attempt, [answer.store])
        return agreement.answered(attempt, answer.store, answer.content)

    def _answer(self, n: int, nonce: bytes, store: int, call: Call) -> Answer:
        """Make one call. Runs beside the calls at other stores."""
        try:
            return Answer(nonce, store, call, self._content(n, store, call), None)
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            return Answer(nonce, store, call, None, error)

    def _content(self, n: int, number: int, call: Call) -> bytes | None:
        """Return what is in a register after a call, of the store in the incarnation that is expected."""
        member = self._members[number]
        if number not in self._greeted:
            # Else what is written below a mount point could count, once the disk is mounted.
            require_marker(member.store, member.node, member.incarnation)
            self._greeted.add(number)
        content = self._create_or_read(n, member.store, call)
        try:
            require_marker(member.store, member.node, member.incarnation)
        except LogError:
            self._greeted.discard(number)
            raise
        return content

    def _create_or_read(self, n: int, store: Store, call: Call) -> bytes | None:
        key = self.key(n, call.register)
        if call.content is not None and store.create(key, encode(call.register, call.content)):
            return call.content
        try:
            data = store.read(key)
        except ObjectMissing as error:
            if call.content is None:
                return None
            raise StoreUnavailable(store.url, key, f"{key} was there and is gone: it is asked for again") from error
        return decode(call.register, data, f"{store.url}/{key}")

    def _unavailable(self, store: int, reason: str) -> StoreUnavailable:
        return StoreUnavailable(self._members[store].store.url, self._folder, reason)


class _Troubles:
    """What went wrong at each store since it last answered, and whether one's own value may be somewhere."""

    def __init__(self, name: str, members: Sequence[Member], own: bytes | None) -> None:
        self._name = name
        self._members = members
        self._own = own
        self._errors: dict[int, LogError] = {}
        self._written = False
        self.under_way: set[tuple[int, Call]] = set()
        """The calls that were begun and have not been answered."""

    def note(self, store: int, call: Call, error: Exception | None) -> None:
        """Take in how a call ended. An error of another kind than the world's is raised at once."""
        if error is not None and not isinstance(error, LogError):
            raise error
        if error is None:
            self._errors.pop(store, None)
        else:
            self._errors[store] = error
        # Only a plain refusal promises that nothing was written; a marker may have gone after the create.
        if error is None or error.retriable or isinstance(error, NodeMissing):
            self._written = self._written or self._is_own(call)

    def raise_if_hopeless(self, *, in_time: bool) -> None:
        """Raise where too few stores will answer, whatever one waits for; all that do not answer have errors."""
        spare = len(self._members) - agreement.majority(len(self._members))
        lasting = [error for error in self._errors.values() if not error.retriable]
        if in_time and len(lasting) <= spare:
            return
        failing = f"{len(self._errors)} of {len(self._members)} stores do not answer"
        self.give_up(f"{failing}, and {len(self._members) - spare} must", act=len(lasting) > spare)

    def give_up(self, reason: str, *, act: bool = False) -> NoReturn:
        """Raise what says whether the own value may be decided yet. `act`: an operator must, else nothing changes."""
        stores = [
            f"node {self._members[store].node!r} at {self._members[store].store.url}: {error}"
            for store, error in sorted(self._errors.items())
        ]
        facts = "; ".join([reason, *stores])
        first = next(iter(self._errors.values()), None)
        if self._written or any(self._is_own(call) for _, call in self.under_way):
            message = (
                f"{self._name} may or may not be decided as proposed: {facts}. Look for its effect before trying again"
            )
            raise OutcomeUnknown(message) from first
        urls = ", ".join(self._members[store].store.url for store in sorted(self._errors))
        if act:
            message = f"{self._name} cannot be decided or read: {facts}. Nothing was proposed; repair a store"
            raise StoreRefused(urls, "", message) from first
        message = f"{self._name} cannot be decided or read now: {facts}. Nothing was proposed; try again"
        raise StoreUnavailable(urls, "", message) from first

    def _is_own(self, call: Call) -> bool:
        return self._own is not None and call.content == self._own


class ThreadCalls:
    """Calls in threads, one for each store: one that hangs holds up no other. They end with this object."""

    def __init__(self, stores: int) -> None:
        """Begin a thread for a store with its first call."""
        self._stores = stores
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._waiting: dict[int, queue.Queue[Callable[[], Answer] | None]] = {}
        weakref.finalize(self, _end, self._waiting)

    def start(self, store: int, call: Callable[[], Answer]) -> bool:
        if self._process != os.getpid():
            self._begin()  # a forked process has no threads
        if store not in self._waiting:
            waiting: queue.Queue[Callable[[], Answer] | None] = queue.Queue(BACKLOG_MAX)
            self._waiting[store] = waiting
            name = f"journal store {store}"
            # A daemon: a store that hangs must not keep the process from ending.
            threading.Thread(target=_work, args=(waiting, self._answers), name=name, daemon=True).start()
        try:
            self._waiting[store].put_nowait(call)
        except queue.Full:
            return False
        return True

    def next(self, seconds: float) -> Answer | None:
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None


def _work(waiting: queue.Queue[Callable[[], Answer] | None], answers: queue.SimpleQueue[Answer]) -> None:
    while (call := waiting.get()) is not None:
        answers.put(call())
        del call  # it refers to whoever made it, who could not go while it is kept here


def _end(waiting: dict[int, queue.Queue[Callable[[], Answer] | None]]) -> None:
    for each in waiting.values():
        with contextlib.suppress(queue.Full):
            each.put_nowait(None)
