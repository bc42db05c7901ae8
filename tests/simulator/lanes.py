"""What the product does in threads, done by the one thread that runs: writes, reads and calls at several stores.

Between any two operations others run all the same, for each operation on a store hands the baton on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from pyspark_log_coordinator.log.node_probe import check_node
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores.store import Store
from pyspark_log_storage.stores.store_threads import Answer

T = TypeVar("T")


class InlineThreads:
    """Makes each call at once. In place of `StoreThreads`."""

    def __init__(self, purpose: str) -> None:
        self._answers: list[Answer] = []

    def start(self, store: Hashable, function: Callable[[], object], tag: object = None) -> None:
        self._answers.append(Answer.of(store, function, tag))

    def pending(self, store: Hashable) -> int:
        return sum(each.store == store for each in self._answers)

    def next(self, seconds: float | None) -> Answer | None:
        return self._answers.pop(0) if self._answers else None

    def end(self) -> None:
        pass


class InlineReads:
    """Reads a store at once; it is avoided for a while after it failed."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now = now
        self._seconds = seconds
        self._avoided_until = -1.0
        self.failures = logs.Failures()

    @property
    def avoided(self) -> bool:
        return self._now() < self._avoided_until

    def avoid(self) -> None:
        self._avoided_until = self._now() + self._seconds

    def call(self, function: Callable[[], T], seconds: float) -> T:
        return function()


class ChanceThreads:
    """Makes one waiting call, which chance chooses, when somebody waits for an answer. In place of `StoreThreads`.

    So a call for whose answer nobody waits any more is made late, or never.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: list[Callable[[], Answer]] = []

    def start(self, store: Hashable, function: Callable[[], object], tag: object = None) -> None:
        self._waiting.append(lambda: Answer.of(store, function, tag))

    def pending(self, store: Hashable) -> int:
        return 0

    def next(self, seconds: float | None) -> Answer | None:
        if not self._waiting:
            return None
        return self._waiting.pop(self._chance.randrange(len(self._waiting)))()


def threads(purpose: str, chance: random.Random) -> InlineThreads | ChanceThreads:
    """Return what makes a process's calls to several stores. The calls of a fan-out to one store stay in order."""
    return InlineThreads(purpose) if purpose == "write to" else ChanceThreads(chance)


def probe(members: Sequence[tuple[object, Store]]) -> dict[str, LogError]:
    """Ask for the markers, one after another."""
    asked = [(node.node_id, check_node(node, store)) for node, store in members]  # type: ignore[attr-defined, arg-type]
    return {name: error for name, error in asked if error is not None}
