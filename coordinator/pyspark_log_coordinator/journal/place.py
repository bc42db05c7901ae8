"""Where journals are stored: on one store, or on several of which a majority decides.

On one store an entry is one object, created once (`single_store`). On several an entry is decided by a majority
(`registers`), and a majority has each snapshot (`objects`). Calls to several stores are made at once.

One of several stores counts only in its expected incarnation: its marker is read before the first call and after every
call. A store that was wiped or is not mounted has lost the registers that it answered for. So has one that was restored
from a backup, but its marker does not show that: it must get a new incarnation before it is used.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from pyspark_log_coordinator.journal import paxos
from pyspark_log_storage.errors import LogError, ObjectMissing, StoreError, StoreRefused, StoreUnavailable
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.stores.store import Store
from pyspark_log_storage.stores.store_threads import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment

ANSWER_SECONDS = 1.0
"""How long a store may take to answer before the others' answers are used without it."""

PATIENCE_MS = 120_000
"""How long a journal retries what a store leaves in doubt, and waits for a majority."""

BACKLOG_MAX = 256
"""How many calls may wait for one store."""

T = TypeVar("T")


class Member(msgspec.Struct, frozen=True):
    """A store that takes part in decisions, with its node and incarnation."""

    store: Store
    node: str
    incarnation: str


class OneStore:
    """Journals on one store. Methods as those of `SeveralStores`."""

    certain = True
    """Whether every listed object can be read. Of several stores only a few may have it, which is no fault."""
    generation = 1
    majority = 1
    patience_ms = PATIENCE_MS

    def __init__(self, store: Store, environment: Environment) -> None:
        self.stores = (store,)
        self.url = store.url
        self.environment = environment

    def ask(
        self,
        act: Callable[[Store], object],
        *,
        patience_ms: int | None = None,
        enough: Callable[[Sequence[Answer]], bool] | None = None,
        settled: Callable[[Sequence[Answer]], bool] | None = None,
    ) -> list[Answer]:
        try:
            return [Answer(0, None, act(self.stores[0]), None)]
        except LogError as error:
            return [Answer(0, None, None, error)]

    def is_majority(self, answers: Sequence[Answer]) -> bool:
        return answers[0].error is None

    def require_majority(self, answers: Sequence[Answer], what: str) -> None:
        if answers[0].error is not None:
            raise answers[0].error

    def failure(self, what: str, answers: Sequence[Answer], must: int | None = None) -> Exception:
        assert answers[0].error is not None
        return answers[0].error


class SeveralStores:
    """Journals on several stores, any minority of which may be lost, and the threads of these. Used by one thread."""

    certain = False

    def __init__(
        self, members: Sequence[Member], environment: Environment, generation: int = 1, patience_ms: int = PATIENCE_MS
    ) -> None:
        self.members = tuple(members)
        self.stores = tuple(each.store for each in members)
        self.generation = generation
        """The number of the list of stores, from 1. Each migration of the journals begins the next one."""
        self.environment = environment
        self.patience_ms = patience_ms
        """How long to wait for a majority that does not answer."""
        self._threads = environment.store_threads("journal store")
        self._verified: set[int] = set()
        """The stores whose last marker was the expected one."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def majority(self) -> int:
        return paxos.majority(len(self.members))

    @property
    def url(self) -> str:
        return ", ".join(each.store.url for each in self.members)

    def start(self, asker: bytes, store: int, call: object, act: Callable[[Store], object]) -> bool:
        """Start `act` at a store; return False if too many calls are waiting there already."""
        if self._threads.pending(store) >= BACKLOG_MAX:
            return False
        self._threads.start(store, partial(self._visit, store, act), (asker, call))
        return True

    def next(self, seconds: float) -> Answer | None:
        """Return the next answer to any call, or None if none arrives within `seconds`.

        Raises an error that is not a `LogError`.
        """
        answer = self._threads.next(seconds)
        if answer is not None and answer.error is not None and not isinstance(answer.error, LogError):
            raise answer.error
        return answer

    def ask(
        self,
        act: Callable[[Store], object],
        *,
        patience_ms: int | None = None,
        enough: Callable[[Sequence[Answer]], bool] | None = None,
        settled: Callable[[Sequence[Answer]], bool] | None = None,
    ) -> list[Answer]:
        """Call `act` at all stores at once, and return the answers when they are `enough` (None: all of them).

        Wait `patience_ms` (None: that of the place) for stores that do not answer, but only a second once the answers
        of the others are `settled`. The calls that were not answered may still be executed.
        """
        asker = self.environment.nonce().encode()
        patience_ms = self.patience_ms if patience_ms is None else patience_ms
        deadline = self.environment.monotonic() + patience_ms / 1000
        answers = [
            Answer(store, (asker, None), None, self.unavailable(store, f"{BACKLOG_MAX} calls wait for its answer"))
            for store in range(len(self))
            if not self.start(asker, store, None, act)
        ]
        while len(answers) < len(self) and not (enough is not None and enough(answers)):
            answer = self.next(ANSWER_SECONDS)
            if answer is None:
                if self.environment.monotonic() >= deadline or (settled is not None and settled(answers)):
                    break
                self.environment.sleep(ANSWER_SECONDS / 10)
            elif answer.tag == (asker, None):
                answers.append(answer)
        return answers

    def is_majority(self, answers: Sequence[Answer]) -> bool:
        return sum(each.error is None for each in answers) >= self.majority

    def require_majority(self, answers: Sequence[Answer], what: str) -> None:
        if not self.is_majority(answers):
            raise self.failure(what, answers)

    def unavailable(self, store: int, reason: str) -> StoreUnavailable:
        """Return the error for a store that does not answer."""
        return StoreUnavailable(self.members[store].store.url, "", reason)

    def describe(self, errors: Mapping[int, Exception]) -> str:
        """Return the errors by store, for an error message."""
        return "; ".join(
            f"node {self.members[store].node!r} at {self.members[store].store.url}: {error}"
            for store, error in sorted(errors.items())
        )

    def failure(self, what: str, answers: Sequence[Answer], must: int | None = None) -> StoreError:
        """Return the error if too few stores succeeded: `StoreRefused` if a retry cannot help, else `StoreUnavailable`.

        `must` is how many have to succeed, if not a majority.
        """
        must = must or self.majority
        errors = {each.store: each.error for each in answers if isinstance(each.error, LogError)}
        lasting = sum(not error.retriable for error in errors.values())
        for store in set(range(len(self))) - {each.store for each in answers}:
            errors[store] = self.unavailable(store, f"no answer within {ANSWER_SECONDS:g} s")
        facts = f"{len(errors)} of {len(self)} stores failed, and {must} must answer: {self.describe(errors)}; {what}"
        urls = ", ".join(self.members[store].store.url for store in sorted(errors))
        if lasting > len(self) - must:
            return StoreRefused(urls, "", f"{facts}. Repair a store")
        return StoreUnavailable(urls, "", f"{facts}. Try again")

    def _visit(self, number: int, act: Callable[[Store], T]) -> T:
        """Return the result of `act` at a store that is in the expected incarnation before and after."""
        member = self.members[number]
        if number not in self._verified:
            # Before the call, too: a write below a mount point would count if the disk were mounted right after it.
            require_marker(member.store, member.node, member.incarnation)
            self._verified.add(number)
        try:
            result = act(member.store)
        except ObjectMissing:
            self._verify_again(number)  # an unmounted disk lacks every object
            raise
        self._verify_again(number)
        return result

    def _verify_again(self, number: int) -> None:
        member = self.members[number]
        try:
            require_marker(member.store, member.node, member.incarnation)
        except LogError:
            self._verified.discard(number)
            raise


JournalPlace: TypeAlias = OneStore | SeveralStores
