"""What a state of `register_model` is made of: stores as columns, processes, and their numbers."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log_coordinator.journal.paxos import Attempt, Register

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
    backup: tuple[tuple[Content, ...], tuple[Content, ...]] | None = None
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
