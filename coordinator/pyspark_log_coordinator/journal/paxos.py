"""Agreement of several stores on one journal entry: what to create or read next, given the answers so far.

Paxos over write-once registers (Howard and Mortier, "A generalised solution to distributed consensus", 2019). A store
has, for each entry and each ballot 0, 1, 2, ..., two registers that are written once: the **claim**, which holds the
nonce of the attempt that wants the ballot, and the **vote**, which holds a value or nil. No store decides anything.

    decided     one value in the votes of one ballot on a majority of the stores

    FILL 0      the leader writes its value into vote 0 of all stores: the fast path, one round
    CLAIM r     else: write a nonce into claim r of all stores; a majority owns ballot r, else on to r + 1
    CLOSE r     write nil into the votes below r, or learn what is in them, on a majority: no other can be decided there
    FILL r      write the value of the highest ballot found, else one's own, into vote r
    LOOK r      a reader looks at vote r of all stores, from 0 up to the first ballot that nobody can have used

The leader is the one attempt that may fill vote 0 unasked: its process proposed what was decided for the entry before.
So each ballot has one value at most, whoever copies it: a reader that cannot tell whether a value was decided, for
a store is silent, fills the other votes of the same ballot with it, which disturbs nobody.

Pure: an attempt is a frozen value; `wanted` says which call comes next at each store, `answered` takes an answer,
`silent` that there is none. An answer that is late or comes twice changes nothing: registers never change.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

NIL = b""
"""The content of a vote that is closed. Values and nonces are not empty."""


class Task(Enum):
    """What an attempt is at."""

    LOOK = "look"
    CLAIM = "claim"
    CLOSE = "close"
    FILL = "fill"
    DONE = "done"


class Register(msgspec.Struct, frozen=True, order=True):
    """One register of an entry, on any store."""

    ballot: int
    is_claim: bool = False


class Call(msgspec.Struct, frozen=True):
    """What to do at a store: create `content` in a register if it is empty, and learn what is in it; or only read."""

    register: Register
    content: bytes | None
    """None: only read."""


class Found(msgspec.Struct, frozen=True, order=True):
    """The value of a ballot."""

    ballot: int
    value: bytes


class Attempt(msgspec.Struct, frozen=True):
    """One try of one process to have an entry decided, or to learn what it is."""

    nonce: bytes
    own: bytes | None
    """What this process proposes; None for a reader."""
    durable: bool
    """Whether a reader must make sure that what it found stays, whatever loses power."""
    task: Task
    ballot: int
    value: bytes | None
    """What FILL writes; of DONE what is decided, None where nothing was when the attempt began."""
    floor: int
    """The lowest ballot to claim. Nothing was decided at it or above when the attempt began, if it reads."""
    found: Found | None
    """The highest value that a reader saw and that may be decided."""
    answers: tuple[tuple[bytes | None, ...], ...]
    """Of each store: what was in the registers that the task asks for, None for an empty one."""
    mute: frozenset[int]
    """The stores that do not answer."""


def propose(stores: int, nonce: bytes, value: bytes, *, leads: bool) -> Attempt:
    """Return the attempt to have `value` decided. `leads` may be true once for an entry, in one process alone."""
    assert value
    task, ballot = (Task.FILL, 0) if leads else (Task.CLAIM, 1)
    return _turn(_idle(stores, nonce, value), task, ballot, value if leads else None)


def read(stores: int, nonce: bytes, *, durable: bool = False) -> Attempt:
    """Return the attempt to learn what is decided. It writes only where that cannot be known else, or is `durable`."""
    return _turn(msgspec.structs.replace(_idle(stores, nonce, None), durable=durable), Task.LOOK, 0)


def majority(stores: int) -> int:
    """Return how many of `stores` stores decide."""
    return stores // 2 + 1


def wanted(attempt: Attempt) -> dict[int, Call]:
    """Return the next call at each store from which an answer is missing."""
    calls = {}
    for store, answers in enumerate(attempt.answers):
        if store not in attempt.mute and len(answers) < _questions(attempt):
            calls[store] = _call(attempt, len(answers))
    return calls


def answered(attempt: Attempt, store: int, content: bytes | None) -> Attempt:
    """Return the attempt after the answer to the call that was wanted at `store`: what is in the register now."""
    answers = list(attempt.answers)
    answers[store] = (*answers[store], content)
    return _go_on(msgspec.structs.replace(attempt, answers=tuple(answers)))


def silent(attempt: Attempt, stores: Sequence[int]) -> Attempt:
    """Return the attempt after `stores` have failed, or taken too long. What they were asked for may be done yet."""
    return _go_on(msgspec.structs.replace(attempt, mute=attempt.mute.union(stores)))


def again(attempt: Attempt) -> Attempt:
    """Return the attempt with new hope for the stores that did not answer."""
    return msgspec.structs.replace(attempt, mute=frozenset())


def _idle(stores: int, nonce: bytes, own: bytes | None) -> Attempt:
    nothing: tuple[tuple[bytes | None, ...], ...] = ((),) * stores
    return Attempt(nonce, own, False, Task.DONE, 0, None, 1, None, nothing, frozenset())


def _turn(attempt: Attempt, task: Task, ballot: int, value: bytes | None = None) -> Attempt:
    """Begin a task, with no answers yet."""
    nothing: tuple[tuple[bytes | None, ...], ...] = ((),) * len(attempt.answers)
    return msgspec.structs.replace(attempt, task=task, ballot=ballot, value=value, answers=nothing, mute=frozenset())


def _questions(attempt: Attempt) -> int:
    """Return how many answers the task wants from a store."""
    match attempt.task:
        case Task.DONE:
            return 0
        case Task.CLOSE:
            return attempt.ballot
        case _:
            return 1


def _call(attempt: Attempt, index: int) -> Call:
    match attempt.task:
        case Task.LOOK:
            return Call(Register(attempt.ballot), None)
        case Task.CLAIM:
            return Call(Register(attempt.ballot, is_claim=True), attempt.nonce)
        case Task.CLOSE:
            return Call(Register(index), NIL)
        case _:
            return Call(Register(attempt.ballot), attempt.value)


def _go_on(attempt: Attempt) -> Attempt:
    """Begin the next task where the answers suffice for it."""
    match attempt.task:
        case Task.LOOK:
            return _look(attempt)
        case Task.CLAIM:
            return _claim(attempt)
        case Task.CLOSE:
            return _close(attempt)
        case Task.FILL:
            return _fill(attempt)
        case Task.DONE:
            return attempt


def _look(attempt: Attempt) -> Attempt:
    contents = _first_answers(attempt)
    stores, ballot = len(attempt.answers), attempt.ballot
    minority = stores - majority(stores)
    values = [content for content in contents if content]
    for value in values:
        if values.count(value) >= majority(stores):
            # A read shows what is there, and only a create promises that it is durable.
            return _turn(attempt, Task.FILL if attempt.durable else Task.DONE, ballot, value)
    if contents.count(None) > minority:
        # Whoever decides above has closed this vote on a majority before.
        return _end_look(msgspec.structs.replace(attempt, floor=max(ballot, 1)))
    if contents.count(None) + contents.count(NIL) > minority:
        return _turn(attempt, Task.LOOK, ballot + 1)
    if not wanted(attempt) and len(contents) > minority:
        found = Found(ballot, max(values))
        return _turn(msgspec.structs.replace(attempt, found=found), Task.LOOK, ballot + 1)
    return attempt


def _end_look(attempt: Attempt) -> Attempt:
    if attempt.found is None:
        return _turn(attempt, Task.DONE, attempt.ballot)
    return _turn(attempt, Task.FILL, attempt.found.ballot, attempt.found.value)


def _claim(attempt: Attempt) -> Attempt:
    match _won(attempt, attempt.nonce):
        case True:
            return _turn(attempt, Task.CLOSE, attempt.ballot)
        case False:
            return _turn(attempt, Task.CLAIM, attempt.ballot + 1)
    return attempt


def _close(attempt: Attempt) -> Attempt:
    closed = [answers for answers in attempt.answers if len(answers) == attempt.ballot]
    if len(closed) < majority(len(attempt.answers)):
        return attempt
    found = highest(attempt)
    if found is not None and _votes(attempt, found) >= majority(len(attempt.answers)):
        return _turn(attempt, Task.DONE, found.ballot, found.value)
    value = attempt.own if found is None else found.value
    return _turn(attempt, Task.DONE if value is None else Task.FILL, attempt.ballot, value)


def highest(attempt: Attempt) -> Found | None:
    """Return the value of the highest ballot among the closed votes, None where all are nil."""
    found = [Found(ballot, value) for answers in attempt.answers for ballot, value in enumerate(answers) if value]
    return max(found, default=None)


def _votes(attempt: Attempt, found: Found) -> int:
    return sum(answers[found.ballot : found.ballot + 1] == (found.value,) for answers in attempt.answers)


def _fill(attempt: Attempt) -> Attempt:
    assert attempt.value is not None
    match _won(attempt, attempt.value):
        case True:
            return _turn(attempt, Task.DONE, attempt.ballot, attempt.value)
        case False:
            return _turn(attempt, Task.CLAIM, max(attempt.floor, attempt.ballot + 1))
    return attempt


def _won(attempt: Attempt, content: bytes) -> bool | None:
    """Return whether a majority has `content`; None while that is open.

    A majority that has answered otherwise ends the waiting, once nothing more is to come: to lose a ballot that could
    have been won costs time only.
    """
    contents = _first_answers(attempt)
    stores = len(attempt.answers)
    if contents.count(content) >= majority(stores):
        return True
    others = len(contents) - contents.count(content)
    if others > stores - majority(stores) or (len(contents) >= majority(stores) and not wanted(attempt)):
        return False
    return None


def _first_answers(attempt: Attempt) -> list[bytes | None]:
    return [answers[0] for answers in attempt.answers if answers]
