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

States that differ only in the order of the stores are one, or in claims of ballots that nobody will ask for again. A
state is a sorted tuple of columns, each with what lies on one store and what it has answered; columns and processes
are numbers, so that millions of states fit into memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from pyspark_log_coordinator.journal import paxos
from pyspark_log_coordinator.journal.paxos import NIL, Attempt, Call, Found, Register, Task

STORES = 3
MAJORITY = 2


Content = bytes | None
Write = tuple[Register, bytes]


class Column(NamedTuple):
    """One store."""

    votes: tuple[Content, ...]
    claims: tuple[Content, ...]
    answers: tuple[tuple[Content, ...], ...]
    """What it answered to each process in its present task."""
    late: frozenset[Write]
    """What it was asked and has not done, by processes that went on."""
    past: tuple[Content, ...] | None = None
    """The votes that it held when it was lost."""
    damaged: Register | None = None
    """A register that cannot be read any more, or has another one's content. What it held is kept here."""
    mended: bool = False

    def get(self, register: Register) -> Content:
        contents = self.claims if register.is_claim else self.votes
        return contents[register.ballot] if register.ballot < len(contents) else None

    def put(self, register: Register, content: bytes) -> Column:
        contents = list(self.claims if register.is_claim else self.votes)
        contents[register.ballot] = content
        late = self.late and frozenset(write for write in self.late if write[0] != register)
        if register.is_claim:
            return self._replace(claims=tuple(contents), late=late)
        return self._replace(votes=tuple(contents), late=late)

    def answer(self, process: int, answers: tuple[Content, ...]) -> Column:
        return self._replace(answers=(*self.answers[:process], answers, *self.answers[process + 1 :]))


class Process(NamedTuple):
    """A process: its attempt without the answers, which are in the columns."""

    attempt: Attempt
    begun: bool
    """A reader begins at some time; what was decided by then it must find."""
    must_find: bool = False
    stopped: bool = False
    """It has come to the highest ballot, where the search ends."""


class Step(NamedTuple):
    """What a call at a store comes to, in words and numbers."""

    words: str
    after: int
    """The process after the answer."""
    done: int
    """The column after it."""
    written: int | None
    """The column if the answer is lost; None if nothing was written."""


Answers = tuple[int, ...]
"""The numbers of what each store has answered to a process in its present task."""
State = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of the processes, and those of the columns."""


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
    steps: int
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
        self._processes: list[Process] = []
        self._columns: list[Column] = []
        self._numbers: dict[Process | Column, int] = {}
        self._wanted: dict[object, dict[int, Call]] = {}
        self._given: list[tuple[Content, ...]] = []
        self._given_numbers: dict[tuple[Content, ...], int] = {}
        self._answers: list[Answers] = []
        """What each column has answered, to each process."""
        self._at_stores: dict[object, Step] = {}
        self._alone: dict[object, int] = {}
        """The processes after they have waited no longer."""
        self._left: dict[object, int] = {}
        self._late: dict[int, list[tuple[str, int]]] = {}
        self._decided: dict[tuple[int, ...], frozenset[bytes]] = {}
        self._lowest_claims: dict[int, int] = {}
        """The lowest ballot that each process may claim yet."""
        self._without_claims: dict[tuple[int, int], int] = {}
        starts = []
        for i in range(proposers):
            leads = i == 0 or self.flaws.everybody_leads
            value, nonce = b"%c" % (ord("p") + i), b"%c" % (ord("P") + i)
            starts.append(Process(_bare(paxos.propose(STORES, nonce, value, leads=leads)), begun=True))
        reads = [paxos.read(STORES, b"R%d" % i, durable=i % 2 == 1) for i in range(readers)]
        starts += [Process(_bare(attempt), begun=False) for attempt in reads]
        empty = Column((None,) * (ballots + 1), (None,) * (ballots + 1), ((),) * len(starts), frozenset())
        self.first: State = (tuple(map(self._number, starts)), (self._number(empty),) * STORES)

    def search(self) -> Result:
        """Visit all states, the nearest first, up to the first one that breaks a rule."""
        agreement_highest, paxos.highest = paxos.highest, self.flaws.highest
        try:
            return self._search()
        finally:
            paxos.highest = agreement_highest

    def _search(self) -> Result:
        came_from: dict[State, State | None] = {self.first: None}
        waiting, steps, decided, ended = deque([self.first]), 0, 0, 0
        while waiting:
            state = waiting.popleft()
            for after in (self._same(each) for _, each in self._events(state)):
                steps += 1
                if after in came_from:
                    continue
                came_from[after] = state
                values = self._decided_in(after[1])
                decided += bool(values)
                ended += any(self._processes[each].attempt.task is Task.DONE for each in after[0])
                if (violation := self._violation(after, values)) is not None:
                    return Result(len(came_from), steps, violation, self._story(after, came_from), decided, ended)
                waiting.append(after)
        return Result(len(came_from), steps, None, [], decided, ended)

    def _same(self, state: State) -> State:
        """Return the state that stands for all that differ in the order of stores, or in claims of no use."""
        lowest = min(self._lowest_claims[number] for number in state[0])
        columns = []
        for number in state[1]:
            if (kept := self._without_claims.get((number, lowest))) is None:
                column = self._columns[number]
                claims = tuple(None if ballot < lowest else claim for ballot, claim in enumerate(column.claims))
                late = frozenset(each for each in column.late if not each[0].is_claim or each[0].ballot >= lowest)
                kept = self._number(column._replace(claims=claims, late=late))
                self._without_claims[number, lowest] = kept
            columns.append(kept)
        return state[0], tuple(sorted(columns))

    def _violation(self, state: State, values: frozenset[bytes]) -> str | None:
        if len(values) > 1:
            return f"two values are decided: {words_of(sorted(values))}"
        for name, number in zip(self.names, state[0], strict=True):
            process = self._processes[number]
            if process.attempt.task is not Task.DONE:
                continue
            value = process.attempt.value
            if value is None and process.must_find:
                return f"{name} finds nothing decided, and {words_of(values)} was, before it began"
            if value is not None and value not in values:
                return f"{name} was told {words_of([value])}, which is not decided"
        return None

    def _decided_in(self, columns: tuple[int, ...]) -> frozenset[bytes]:
        """Return all values that any ballot has decided, by what stores hold or have held."""
        columns = tuple(sorted(columns))
        if (known := self._decided.get(columns)) is None:
            decided = set()
            for ballot in range(self.ballots + 1):
                held = [
                    {votes[ballot] for votes in (column.votes, column.past) if votes is not None and votes[ballot]}
                    for column in (self._columns[number] for number in columns)
                ]
                values = set().union(*held)
                decided |= {value for value in values if sum(value in each for each in held) >= MAJORITY}
            known = self._decided[columns] = frozenset(decided)
        return known

    def _events(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all that can happen next, and the state after it."""
        processes, numbers = state
        columns = [self._columns[number] for number in numbers]
        for i, number in enumerate(processes):
            process = self._processes[number]
            if not process.begun:
                found = bool(self._decided_in(numbers))
                yield f"{self.names[i]} begins", self._with(state, i, process._replace(begun=True, must_find=found))
            elif not process.stopped:
                yield from self._steps_of(state, i, process, columns)
        for s, number in enumerate(numbers):
            for words, after in self._late_at(number) if number not in numbers[:s] else ():
                yield f"late: store {s + 1} gets {words}", (processes, (*numbers[:s], after, *numbers[s + 1 :]))
        yield from self._losses(state, columns)
        yield from self._damages(state, columns)

    def _late_at(self, number: int) -> list[tuple[str, int]]:
        """Return what may come late at a store, and the column after it."""
        if (found := self._late.get(number)) is None:
            column = self._columns[number]
            found = self._late[number] = [
                (f"{name_of(register)} = {words_of([content])}", self._number(column.put(register, content)))
                for register, content in column.late
                if register != column.damaged
            ]
        return found

    def _steps_of(self, state: State, i: int, process: Process, columns: list[Column]) -> Iterator[tuple[str, State]]:
        number, numbers = state[0][i], state[1]
        answers = tuple(self._answers[column][i] for column in numbers)
        calls = self._calls_of(number, answers)
        for s in calls:
            if self._is_lost(columns[s]) or columns[s].damaged == calls[s].register or numbers[s] in numbers[:s]:
                continue  # at a store like another, the same happens
            key = (number, answers, s, numbers[s])
            if (step := self._at_stores.get(key)) is None:
                step = self._at_stores[key] = self._at_store(i, number, answers, s, columns[s])
            words, after, done, written = step
            yield words, self._moved(state, i, answers, after, (s, done))
            if written is not None:
                yield f"{words}; the answer is lost", (state[0], (*numbers[:s], written, *numbers[s + 1 :]))
        if calls:
            if (after := self._alone.get((number, answers))) is None:
                after = self._alone[number, answers] = self._after(i, number, self._silent(number, answers))
            if after != number:
                words = f"{self.names[i]} waits no longer for store {' and '.join(str(s + 1) for s in calls)}"
                yield words, self._moved(state, i, answers, after, None)

    def _at_store(self, i: int, number: int, answers: Answers, s: int, column: Column) -> Step:
        """Return what the call of a process at a store comes to."""
        call, attempt = self._calls_of(number, answers)[s], self._attempt(number, answers)
        content, written = column.get(call.register), column
        if content is None and call.content is not None and not self._only_reads(call):
            content, written = call.content, column.put(call.register, call.content)
            words = f"{self.names[i]} writes {name_of(call.register)} = {words_of([content])} at store {s + 1}"
        else:
            words = f"{self.names[i]} finds {name_of(call.register)} = {words_of([content])} at store {s + 1}"
            if self._only_reads(call):
                content = NIL if content is None else content
            if self.flaws.claims_are_not_counted and call.register.is_claim:
                content = call.content
        answered = paxos.answered(attempt, s, content)
        after = self._after(i, number, answered)
        done = self._number(written.answer(i, answered.answers[s] if after == number else ()))
        return Step(words, after, done, None if written is column else self._number(written))

    def _attempt(self, number: int, answers: Answers) -> Attempt:
        given = tuple(self._given[each] for each in answers)
        return msgspec.structs.replace(self._processes[number].attempt, answers=given)

    def _calls_of(self, number: int, answers: Answers) -> dict[int, Call]:
        if (calls := self._wanted.get((number, answers))) is None:
            calls = self._wanted[number, answers] = paxos.wanted(self._attempt(number, answers))
        return calls

    def _silent(self, number: int, answers: Answers) -> Attempt:
        """Return the attempt after it has given up all that is missing."""
        return paxos.silent(self._attempt(number, answers), list(self._calls_of(number, answers)))

    def _after(self, i: int, number: int, attempt: Attempt) -> int:
        """Return the process when its attempt is this: another one if it begins a task."""
        process = self._processes[number]
        if not _is_other(attempt, process.attempt):
            return number
        highest = self.ballots if i > 0 or self._leader_claims else 0
        stopped = attempt.task is Task.DONE or (attempt.task is Task.CLAIM and attempt.ballot > highest)
        return self._number(process._replace(attempt=_bare(attempt), stopped=stopped))

    def _moved(self, state: State, i: int, answers: Answers, after: int, done: tuple[int, int] | None) -> State:
        """Return the state after a process took a step; calls of a task that is over may be done late."""
        processes, columns = state[0], list(state[1])
        if after != processes[i]:
            columns = [self._left_by(i, processes[i], answers, s, number) for s, number in enumerate(columns)]
            processes = (*processes[:i], after, *processes[i + 1 :])
        if done is not None:
            columns[done[0]] = done[1]
        return processes, tuple(columns)

    def _left_by(self, i: int, number: int, answers: Answers, s: int, before: int) -> int:
        """Return a store's column after a process has gone on to another task."""
        key = (number, answers, s, before)
        if (after := self._left.get(key)) is None:
            column, call = self._columns[before], self._calls_of(number, answers).get(s)
            writes = call is not None and call.content is not None and not self._only_reads(call)
            if writes and column.get(call.register) is None and not self._is_lost(column):
                column = column._replace(late=column.late | {(call.register, call.content)})
            after = self._left[key] = self._number(column.answer(i, ()))
        return after

    def _losses(self, state: State, columns: list[Column]) -> Iterator[tuple[str, State]]:
        if sum(column.past is not None for column in columns) >= self.losses:
            return
        for s, column in enumerate(columns):
            if self.flaws.marker_is_not_read:
                nothing = (None,) * (self.ballots + 1)
                lost = column._replace(votes=nothing, claims=nothing, past=column.votes)
                yield f"store {s + 1} is wiped", self._with_columns(state, {s: lost})
            else:
                # Nobody is answered by it any more, so that what it holds from now on does not matter.
                lost = column._replace(past=column.votes, late=frozenset())
                yield f"store {s + 1} is wiped", self._with_columns(state, {s: lost})
                yield f"store {s + 1} is restored from a backup as another", self._with_columns(state, {s: lost})

    def _damages(self, state: State, columns: list[Column]) -> Iterator[tuple[str, State]]:
        if sum(column.damaged is not None or column.mended for column in columns) < self.damages:
            registers = [Register(ballot) for ballot in range(self.ballots + 1)]
            registers += [Register(ballot, is_claim=True) for ballot in range(1, self.ballots + 1)]
            for s, column in enumerate(columns):
                for register in registers:
                    if column.damaged is None and not column.mended:
                        words = f"{name_of(register)} of store {s + 1} is damaged"
                        yield words, self._with_columns(state, {s: column._replace(damaged=register)})
        for s, column in enumerate(columns):
            if (register := column.damaged) is None:
                continue
            held = [each.get(register) for each in columns if each.damaged != register]
            for content in {each for each in held if each is not None}:
                if held.count(content) >= MAJORITY:
                    after = column.put(register, content)._replace(damaged=None, mended=True)
                    words = f"{name_of(register)} of store {s + 1} is mended with {words_of([content])}"
                    yield words, self._with_columns(state, {s: after})

    def _is_lost(self, column: Column) -> bool:
        return column.past is not None and not self.flaws.marker_is_not_read

    def _only_reads(self, call: Call) -> bool:
        return self.flaws.close_writes_nothing and call.content == NIL

    def _with(self, state: State, i: int, process: Process) -> State:
        return ((*state[0][:i], self._number(process), *state[0][i + 1 :]), state[1])

    def _with_columns(self, state: State, changed: dict[int, Column]) -> State:
        numbers = list(state[1])
        for s, column in changed.items():
            numbers[s] = self._number(column)
        return state[0], tuple(numbers)

    def _number(self, what: Process | Column) -> int:
        number = self._numbers.get(what)
        if number is None:
            known: list[Process] | list[Column] = self._processes if isinstance(what, Process) else self._columns
            number = self._numbers[what] = len(known)
            known.append(what)  # type: ignore[arg-type]
            if isinstance(what, Column):
                self._answers.append(tuple(map(self._answer_number, what.answers)))
            else:
                self._lowest_claims[number] = self.ballots + 1 if what.stopped else _lowest_claim(what.attempt)
        return number

    def _answer_number(self, answers: tuple[Content, ...]) -> int:
        number = self._given_numbers.setdefault(answers, len(self._given))
        if number == len(self._given):
            self._given.append(answers)
        return number

    def _story(self, last: State, came_from: dict[State, State | None]) -> list[str]:
        """Return the steps to a state, each store with the same name in all of them."""
        path: list[State] = []
        step: State | None = last
        while step is not None:
            path.append(step)
            step = came_from[step]
        path.reverse()
        story, state = [], path[0]
        for wanted in path[1:]:
            words, after = next(each for each in self._events(state) if self._same(each[1]) == wanted)
            told = words
            for i, name in enumerate(self.names):
                attempt = self._processes[after[0][i]].attempt
                if _is_other(attempt, self._processes[state[0][i]].attempt):
                    told += f"; {name} goes on to {goal_of(attempt)}"
            story.append(told)
            state = after
        return story


def _bare(attempt: Attempt) -> Attempt:
    return msgspec.structs.replace(attempt, answers=((),) * STORES, mute=frozenset())


def _lowest_claim(attempt: Attempt) -> int:
    match attempt.task:
        case Task.LOOK:
            return attempt.floor
        case Task.FILL:
            return max(attempt.floor, attempt.ballot + 1)
        case Task.CLAIM:
            return attempt.ballot
        case _:
            return attempt.ballot + 1


def _is_other(after: Attempt, before: Attempt) -> bool:
    return (after.task, after.ballot) != (before.task, before.ballot)


def name_of(register: Register) -> str:
    return f"{'claim' if register.is_claim else 'vote'} {register.ballot}"


def words_of(found: object) -> str:
    assert isinstance(found, list | frozenset)
    return " and ".join("empty" if each is None else "nil" if each == NIL else each.decode() for each in found)


def goal_of(attempt: Attempt) -> str:
    match attempt.task:
        case Task.DONE:
            return "its end: " + (
                "nothing decided" if attempt.value is None else f"{words_of([attempt.value])} is decided"
            )
        case Task.FILL:
            return f"FILL {attempt.ballot} with {words_of([attempt.value])}"
        case _:
            return f"{attempt.task.name} {attempt.ballot}"
