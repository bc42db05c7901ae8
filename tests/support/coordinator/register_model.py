"""All that can happen to one entry: the production machine of `agreement`, on stores that keep or lose what they hold.

    answer      a store does what it is asked, and the answer arrives
    lost        it does so, and the answer does not arrive: the process asks again, or goes on without
    late        it does so only after the process has gone on to its next task, ended or crashed
    time-out    a process stops waiting for those that have not answered
    damage      a register is damaged, or something else is put in its place: its store answers nobody who asks for it
    mended      a damaged register gets what the same register holds on a majority of the stores
    loss        a store is wiped or restored from a backup: by its marker it is another from then on, and answers nobody

In any order, one store at a time: an attempt has up to one call under way at each store. A process that crashes
takes no more steps, so every state is also one after crashes, and a process that begins again is another one. That an
answer takes its time needs no step of its own: until it arrives, the process does what it would do with it, nothing.
Bounds: the processes, the highest ballot that they may claim, the numbers of losses and of damaged registers.

States that differ only in the order of the stores are one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import msgspec

from pyspark_log_coordinator.journal import paxos
from pyspark_log_coordinator.journal.paxos import NIL, Attempt, Call, Found, Register, Task

STORES = 3
MAJORITY = 2

Held = frozenset[tuple[Register, bytes]]
"""Registers with what is in them."""
NOTHING: Held = frozenset()
Item = TypeVar("Item")


class Store(NamedTuple):
    """One store."""

    held: Held
    answers: tuple[tuple[bytes | None, ...], ...]
    """What it answered to each process in its present task."""
    late: Held = NOTHING
    """What it was asked and has not done, by processes that went on."""
    past: Held | None = None
    """What it held when it was lost."""
    damaged: Register | None = None
    """A register that cannot be read any more, or has another one's content. What it held is kept here."""
    mended: bool = False

    def get(self, register: Register) -> bytes | None:
        return next((content for each, content in self.held if each == register), None)

    def put(self, register: Register, content: bytes) -> Store:
        late = frozenset(each for each in self.late if each[0] != register)
        return self._replace(held=self.held | {(register, content)}, late=late)

    def answer(self, process: int, answers: tuple[bytes | None, ...]) -> Store:
        return self._replace(answers=_with(self.answers, process, answers))


class Process(NamedTuple):
    """A process: its attempt without the answers, which the stores have."""

    attempt: Attempt
    begun: bool
    """A reader begins at some time; what was decided by then it must find."""
    must_find: bool = False
    stopped: bool = False
    """It has come to the highest ballot, where the search ends."""


class State(NamedTuple):
    """The processes and the stores."""

    processes: tuple[Process, ...]
    stores: tuple[Store, ...]

    def with_store(self, number: int, store: Store) -> State:
        """Return the state with another store; the order of the stores is one for all states that are the same."""
        return self._replace(stores=tuple(sorted(_with(self.stores, number, store), key=hash)))


class Flaws(NamedTuple):
    """What a wrong variant does otherwise."""

    close_writes_nothing: bool = False
    everybody_leads: bool = False
    highest: Callable[[Attempt], Found | None] = paxos.highest
    claims_are_not_counted: bool = False
    marker_is_not_read: bool = False


class Result(NamedTuple):
    """What a search came to."""

    states: int
    violation: str | None
    scenario: list[str]
    decided: int
    """How many states have a decided value: a search that decides nothing shows nothing."""
    ended: int
    """How many have a process that has its answer."""


class Model:
    """The states that can be reached from the first one."""

    def __init__(
        self,
        proposers: int,
        ballots: int,
        *,
        readers: int = 0,
        losses: int = 0,
        damages: int = 0,
        leader_claims: bool = True,
        flaws: Flaws | None = None,
    ) -> None:
        """`leader_claims`: whether the leader goes on when its fast path has failed, or crashes then."""
        self.flaws = flaws or Flaws()
        self.losses = losses
        self.damages = damages
        self.ballots = ballots
        self._leader_claims = leader_claims
        self.names = [chr(ord("P") + i) for i in range(proposers)] + [f"reader {i + 1}" for i in range(readers)]
        starts = []
        for i in range(proposers):
            leads = i == 0 or self.flaws.everybody_leads
            value, nonce = b"%c" % (ord("p") + i), b"%c" % (ord("P") + i)
            starts.append(Process(_bare(paxos.propose(STORES, nonce, value, leads=leads)), begun=True))
        reads = [paxos.read(STORES, b"R%d" % i, durable=i % 2 == 1) for i in range(readers)]
        starts += [Process(_bare(attempt), begun=False) for attempt in reads]
        self.first = State(tuple(starts), (Store(NOTHING, ((),) * len(starts)),) * STORES)

    def search(self) -> Result:
        """Visit all states, the nearest first, up to the first one that breaks a rule."""
        with mock.patch.object(paxos, "highest", self.flaws.highest):
            return self._search()

    def _search(self) -> Result:
        known: dict[Any, Any] = {}

        def one(part: Any) -> Any:
            """Return the one that stands for all that are equal, so that millions of states fit into memory."""
            return known.setdefault(part, part)

        came_from: dict[State, State | None] = {self.first: None}
        waiting, decided, ended = deque([self.first]), 0, 0
        while waiting:
            state = waiting.popleft()
            for _, reached in self._events(state):
                after = State(tuple(map(one, reached.processes)), tuple(map(one, reached.stores)))
                if after in came_from:
                    continue
                came_from[after] = state
                values = self._decided(after)
                decided += bool(values)
                ended += any(each.attempt.task is Task.DONE for each in after.processes)
                if (violation := self._violation(after, values)) is not None:
                    return Result(len(came_from), violation, self._story(after, came_from), decided, ended)
                waiting.append(after)
        return Result(len(came_from), None, [], decided, ended)

    def _violation(self, state: State, values: set[bytes]) -> str | None:
        if len(values) > 1:
            return f"two values are decided: {' and '.join(sorted(each.decode() for each in values))}"
        for name, process in zip(self.names, state.processes, strict=True):
            value = process.attempt.value
            if process.attempt.task is not Task.DONE:
                continue
            if value is None and process.must_find:
                return f"{name} finds nothing decided, and {values.pop().decode()} was, before it began"
            if value is not None and value not in values:
                return f"{name} was told {value.decode()}, which is not decided"
        return None

    def _decided(self, state: State) -> set[bytes]:
        """Return all values that any ballot has decided, by what stores hold or have held."""
        held = [each for store in state.stores for each in store.held | (store.past or NOTHING)]
        return {
            content for register, content in held if _is_vote(register, content) and held.count((register, content)) > 1
        }

    def _events(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all that can happen next, and the state after it."""
        for i, process in enumerate(state.processes):
            if not process.begun:
                begun = process._replace(begun=True, must_find=bool(self._decided(state)))
                yield f"{self.names[i]} begins", state._replace(processes=_with(state.processes, i, begun))
            elif not process.stopped:
                yield from self._steps_of(state, i, process)
        for s, store in enumerate(state.stores):
            for register, content in store.late:
                if register != store.damaged:
                    words = f"late: a store gets {_name_of(register)} = {content!r}"
                    yield words, state.with_store(s, store.put(register, content))
        yield from self._losses(state)
        yield from self._damages(state)

    def _steps_of(self, state: State, i: int, process: Process) -> Iterator[tuple[str, State]]:
        attempt = msgspec.structs.replace(process.attempt, answers=tuple(each.answers[i] for each in state.stores))
        calls = paxos.wanted(attempt)
        for s, call in calls.items():
            store = state.stores[s]
            if self._is_lost(store) or store.damaged == call.register or store in state.stores[:s]:
                continue  # at a store like another, the same happens
            content, written = self._called(store, call)
            words = f"{self.names[i]} finds {_name_of(call.register)} = {content!r}"
            yield words, self._gone_on(state, i, paxos.answered(attempt, s, content), calls, (s, written))
            if written != store:
                yield f"{words}; the answer is lost", state.with_store(s, written)
        if calls:
            after = paxos.silent(attempt, list(calls))
            if _is_other(after, attempt):
                yield f"{self.names[i]} waits no longer", self._gone_on(state, i, after, calls, None)

    def _called(self, store: Store, call: Call) -> tuple[bytes | None, Store]:
        """Return what a call at a store finds, and the store after it."""
        content, only_reads = store.get(call.register), self._only_reads(call)
        if self.flaws.claims_are_not_counted and call.register.is_claim:
            content = call.content
        if content is None and only_reads:
            return NIL, store
        if content is None and call.content is not None:
            content = call.content
        if call.content is not None and not only_reads and store.get(call.register) is None:
            store = store.put(call.register, call.content)
        return content, store

    def _gone_on(
        self, state: State, i: int, attempt: Attempt, calls: dict[int, Call], done: tuple[int, Store] | None
    ) -> State:
        """Return the state after a process took a step; calls of a task that is over may be done late."""
        process = state.processes[i]
        if not _is_other(attempt, process.attempt):
            assert done is not None
            return state.with_store(done[0], done[1].answer(i, attempt.answers[done[0]]))
        highest = self.ballots if i > 0 or self._leader_claims else 0
        stopped = attempt.task is Task.DONE or (attempt.task is Task.CLAIM and attempt.ballot > highest)
        processes = _with(state.processes, i, process._replace(attempt=_bare(attempt), stopped=stopped))
        stores = [self._left(store, calls.get(s)) for s, store in enumerate(state.stores)]
        if done is not None:
            stores[done[0]] = done[1]
        return State(processes, tuple(sorted((each.answer(i, ()) for each in stores), key=hash)))

    def _left(self, store: Store, call: Call | None) -> Store:
        """Return a store after a process has gone on without the answer to its call."""
        if call is None or call.content is None or self._only_reads(call) or self._is_lost(store):
            return store
        if store.get(call.register) is not None:
            return store
        return store._replace(late=store.late | {(call.register, call.content)})

    def _losses(self, state: State) -> Iterator[tuple[str, State]]:
        if sum(store.past is not None for store in state.stores) >= self.losses:
            return
        for s, store in enumerate(state.stores):
            # If nobody is answered by it any more, what it holds from now on does not matter.
            lost = store._replace(past=store.held, late=NOTHING)
            if self.flaws.marker_is_not_read:
                lost = store._replace(past=store.held, held=NOTHING)
            yield "a store is wiped, or restored from a backup as another", state.with_store(s, lost)

    def _damages(self, state: State) -> Iterator[tuple[str, State]]:
        registers = [Register(ballot) for ballot in range(self.ballots + 1)]
        registers += [Register(ballot, is_claim=True) for ballot in range(1, self.ballots + 1)]
        is_enough = sum(store.damaged is not None or store.mended for store in state.stores) >= self.damages
        for s, store in enumerate(state.stores):
            if store.damaged is None and not store.mended and not is_enough:
                for register in registers:
                    yield f"{_name_of(register)} is damaged", state.with_store(s, store._replace(damaged=register))
            if (register := store.damaged) is not None:
                held = [each.get(register) for each in state.stores if each.damaged != register]
                for content in {each for each in held if each is not None and held.count(each) >= MAJORITY}:
                    mended = store._replace(held=store.held - {(register, store.get(register))})
                    mended = mended.put(register, content)._replace(damaged=None, mended=True)
                    yield f"{_name_of(register)} is mended with {content!r}", state.with_store(s, mended)

    def _is_lost(self, store: Store) -> bool:
        return store.past is not None and not self.flaws.marker_is_not_read

    def _only_reads(self, call: Call) -> bool:
        return self.flaws.close_writes_nothing and call.content == NIL

    def _story(self, last: State, came_from: dict[State, State | None]) -> list[str]:
        """Return the steps to a state, each with what the stores hold after it."""
        story, state = [], last
        while (before := came_from[state]) is not None:
            words = next(words for words, after in self._events(before) if after == state)
            held = [{_name_of(register): content for register, content in store.held} for store in state.stores]
            story.append(f"{words}: {held}")
            state = before
        return story[::-1]


def _with(items: tuple[Item, ...], number: int, item: Item) -> tuple[Item, ...]:
    return (*items[:number], item, *items[number + 1 :])


def _bare(attempt: Attempt) -> Attempt:
    return msgspec.structs.replace(attempt, answers=((),) * STORES, mute=frozenset())


def _is_other(after: Attempt, before: Attempt) -> bool:
    return (after.task, after.ballot) != (before.task, before.ballot)


def _is_vote(register: Register, content: bytes) -> bool:
    return not register.is_claim and content != NIL


def _name_of(register: Register) -> str:
    return f"{'claim' if register.is_claim else 'vote'} {register.ballot}"
