"""Members: the stores that hold journals together, and calls at all of them at once.

A store counts only in the incarnation that it is expected in: its marker is read before the first call, and again
after each. A store that was wiped, or is not mounted, has lost what it promised. One that is restored from a backup
has, too, and its marker does not show that: it must be given a new incarnation before it is used.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_coordinator.journal import paxos
from pyspark_log_coordinator.journal.store_threads import BACKLOG_MAX, Answer, Calls, ThreadCalls
from pyspark_log_storage.errors import LogError, StoreError, StoreRefused, StoreUnavailable
from pyspark_log_storage.node import require_marker
from pyspark_log_storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment

ANSWER_SECONDS = 1.0
"""How long a store may take where the others do not suffice without it, until one goes on without its answer."""

T = TypeVar("T")


class Member(msgspec.Struct, frozen=True):
    """A store that takes part in deciding, and as which node's, in which incarnation."""

    store: Store
    node: str
    incarnation: str


class Members:
    """The stores, as one thread of one process sees them. All journals of a log share them, and their threads."""

    def __init__(self, members: Sequence[Member], calls: Calls | None = None) -> None:
        self.members = tuple(members)
        self._calls = calls or ThreadCalls()
        self._greeted: set[int] = set()
        """The stores that have shown their markers since they last failed to."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def majority(self) -> int:
        """How many of the stores decide."""
        return paxos.majority(len(self.members))

    @property
    def urls(self) -> str:
        """The addresses, for errors."""
        return ", ".join(each.store.url for each in self.members)

    def start(self, asker: bytes, store: int, call: object, act: Callable[[Store], object]) -> bool:
        """Begin `act` at a store; False where too many calls wait there already."""
        return self._calls.start(store, partial(self._answer, asker, store, call, act))

    def next(self, seconds: float) -> Answer | None:
        """Return the next answer to anybody, None where none came in so many seconds.

        An error of another kind than the world's is raised at once.
        """
        answer = self._calls.next(seconds)
        if answer is not None and answer.error is not None and not isinstance(answer.error, LogError):
            raise answer.error
        return answer

    def ask(
        self,
        act: Callable[[Store], object],
        environment: Environment,
        patience_ms: int,
        *,
        enough: Callable[[Sequence[Answer]], bool] | None = None,
        settled: Callable[[Sequence[Answer]], bool] | None = None,
    ) -> list[Answer]:
        """Return what comes of `act` at the stores, asked all at once: all answers, or as soon as they are `enough`.

        Stores that do not answer are waited for as long as the patience lasts; where the others' answers are `settled`,
        for a second. What they were asked for may be done yet.
        """
        asker = environment.nonce().encode()
        deadline = environment.monotonic() + patience_ms / 1000
        answers = [
            Answer(asker, store, None, None, self.unavailable(store, f"{BACKLOG_MAX} calls wait for its answer"))
            for store in range(len(self))
            if not self.start(asker, store, None, act)
        ]
        while len(answers) < len(self) and not (enough is not None and enough(answers)):
            answer = self.next(ANSWER_SECONDS)
            if answer is None:
                if environment.monotonic() >= deadline or (settled is not None and settled(answers)):
                    break
                environment.sleep(ANSWER_SECONDS / 10)
            elif answer.asker == asker:
                answers.append(answer)
        return answers

    def is_majority(self, answers: Sequence[Answer]) -> bool:
        """Return whether a majority has done what it was asked."""
        return sum(each.error is None for each in answers) >= self.majority

    def unavailable(self, store: int, reason: str) -> StoreUnavailable:
        """Return the error of a store that does not answer."""
        return StoreUnavailable(self.members[store].store.url, "", reason)

    def blame(self, errors: Mapping[int, Exception]) -> str:
        """Return what failed at which store, in words."""
        return "; ".join(
            f"node {self.members[store].node!r} at {self.members[store].store.url}: {error}"
            for store, error in sorted(errors.items())
        )

    def failure(self, what: str, answers: Sequence[Answer], must: int | None = None) -> StoreError:
        """Return the error where too few stores did something: `StoreUnavailable`, `StoreRefused` where that lasts.

        `must` is how many must, if not a majority.
        """
        must = must or self.majority
        errors = {each.store: each.error for each in answers if isinstance(each.error, LogError)}
        lasting = sum(not error.retriable for error in errors.values())
        for store in set(range(len(self))) - {each.store for each in answers}:
            errors[store] = self.unavailable(store, f"no answer within {ANSWER_SECONDS:g} s")
        facts = f"{what}: {len(errors)} of {len(self)} stores do not answer, and {must} must; "
        facts += self.blame(errors)
        urls = ", ".join(self.members[store].store.url for store in sorted(errors))
        if lasting > len(self) - must:
            return StoreRefused(urls, "", f"{facts}. Repair a store")
        return StoreUnavailable(urls, "", f"{facts}. Try again")

    def _answer(self, asker: bytes, store: int, call: object, act: Callable[[Store], object]) -> Answer:
        """Make one call. Runs beside the calls at other stores."""
        try:
            return Answer(asker, store, call, self._visit(store, act), None)
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            return Answer(asker, store, call, None, error)

    def _visit(self, number: int, act: Callable[[Store], T]) -> T:
        """Return what `act` gives at a store, which is in the expected incarnation before and after."""
        member = self.members[number]
        if number not in self._greeted:
            # Else what is written below a mount point could count, once the disk is mounted.
            require_marker(member.store, member.node, member.incarnation)
            self._greeted.add(number)
        result = act(member.store)
        try:
            require_marker(member.store, member.node, member.incarnation)
        except LogError:
            self._greeted.discard(number)
            raise
        return result
