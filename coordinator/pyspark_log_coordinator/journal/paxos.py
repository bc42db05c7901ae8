"""The agreement of several stores on one journal entry: what to create or read next, given the answers so far.

Paxos over write-once registers (Howard and Mortier, "A generalised solution to distributed consensus", 2019). For each
entry and each ballot 0, 1, 2, ..., a store has two registers: the **claim**, with the nonce of the attempt that wants
the ballot, and the **vote**, with a value or nil. The stores themselves decide nothing.

    decided     one value in the votes of one ballot on a majority of the stores

    FILL 0      the leader writes its value into vote 0 of all stores: the fast path, one round
    CLAIM r     else: write the nonce into claim r of all stores; with a majority the attempt owns ballot r, else r + 1
    CLOSE r     write nil into the votes below r, or read them, on a majority: no other value can be decided there
    FILL r      write the value of the highest ballot found, else the attempt's own value, into vote r
    LOOK r      a reader reads vote r of all stores, from 0 up to the first ballot that cannot have been used

The leader is the one attempt that may fill vote 0 without a claim: its process proposed what was decided for the entry
before. So each ballot has at most one value, and any attempt may copy it: a reader that cannot tell whether a value was
decided, because a store is silent, fills the other votes of that ballot with it.

Pure: an attempt is a frozen value. `wanted` returns the next call for each store, `answered` takes an answer, `silent`
its absence. A late or repeated answer changes nothing, because registers never change.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

NIL = b""
"""The content of a closed vote. Values and nonces are not empty."""


class Task(Enum):
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
    """A call to a store: create `content` in a register if it is empty, and return what is in it; or only read."""

    register: Register
    content: bytes | None
    """None: only read."""


class Found(msgspec.Struct, frozen=True, order=True):
    ballot: int
    value: bytes


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a process to have an entry decided, or to read it."""

    nonce: bytes
    own: bytes | None
    """The proposed value; None for a reader."""
    durable: bool
    """Whether a reader must make the value durable."""
    task: Task
    ballot: int
    value: bytes | None
    """The value that FILL writes. With DONE the decided value, None if none was when the attempt began."""
    floor: int
    """The lowest ballot to claim. For a reader: nothing was decided at it or above when the attempt began."""
    found: Found | None
    """The highest value that a reader found and that may be decided."""
    answers: tuple[tuple[bytes | None, ...], ...]
    """For each store the contents of the registers that the task reads, None for an empty one."""
    mute: frozenset[int]
    """The stores that do not answer."""


def propose(stores: int, nonce: bytes, value: bytes, *, leads: bool) -> Attempt:
    """Return the attempt to have `value` decided. `leads` may be true only once for an entry, in one process."""
    assert value
    task, ballot = (Task.FILL, 0) if leads else (Task.CLAIM, 1)
    return _turn(_idle(stores, nonce, value), task, ballot, value if leads else None)


def read(stores: int, nonce: bytes, *, durable: bool = False) -> Attempt:
    """Return the attempt to read the decided value. It writes only if it cannot know otherwise, or is `durable`."""
    return _turn(msgspec.structs.replace(_idle(stores, nonce, None), durable=durable), Task.LOOK, 0)


def majority(stores: int) -> int:
    return stores // 2 + 1


def wanted(attempt: Attempt) -> dict[int, Call]:
    """Return the next call for each store whose answers are not complete."""
    calls = {}
    for store, answers in enumerate(attempt.answers):
        if store not in attempt.mute and len(answers) < _questions(attempt):
            calls[store] = _call(attempt, len(answers))
    return calls


def answered(attempt: Attempt, store: int, content: bytes | None) -> Attempt:
    """Return the attempt after the answer to the call that was wanted at `store`: the content of the register."""
    answers = list(attempt.answers)
    answers[store] = (*answers[store], content)
    return _go_on(msgspec.structs.replace(attempt, answers=tuple(answers)))


def silent(attempt: Attempt, stores: Sequence[int]) -> Attempt:
    """Return the attempt after `stores` have failed or timed out. Their calls may still be executed."""
    return _go_on(msgspec.structs.replace(attempt, mute=attempt.mute.union(stores)))


def again(attempt: Attempt) -> Attempt:
    """Return the attempt to retry the stores that did not answer."""
    return msgspec.structs.replace(attempt, mute=frozenset())


def _idle(stores: int, nonce: bytes, own: bytes | None) -> Attempt:
    nothing: tuple[tuple[bytes | None, ...], ...] = ((),) * stores
    return Attempt(nonce, own, False, Task.DONE, 0, None, 1, None, nothing, frozenset())


def _turn(attempt: Attempt, task: Task, ballot: int, value: bytes | None = None) -> Attempt:
    """Begin a task, with no answers yet."""
    nothing: tuple[tuple[bytes | None, ...], ...] = ((),) * len(attempt.answers)
    return msgspec.structs.replace(attempt, task=task, ballot=ballot, value=value, answers=nothing, mute=frozenset())


def _questions(attempt: Attempt) -> int:
    """Return how many answers the task needs from a store."""
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
    """Begin the next task if the answers suffice."""
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
            # Only a create promises that what it finds is durable, not a read.
            return _turn(attempt, Task.FILL if attempt.durable else Task.DONE, ballot, value)
    if contents.count(None) > minority:
        # Before a higher ballot is decided, this vote is closed on a majority.
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
    """Return the value of the highest ballot among the closed votes, or None if all are nil."""
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
    """Return whether a majority has `content`, or None if that is still open.

    It is not open any more if a majority has answered and no other answer is expected: to lose a ballot that could have
    been won only costs time.
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
