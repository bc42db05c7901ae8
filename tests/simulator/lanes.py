"""What the product does in threads, done by the one thread that runs: writes, reads and calls at several stores.

Between any two operations others run all the same, for each operation on a store hands the baton on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark_log_coordinator.journal.store_threads import Answer
from pyspark_log_coordinator.log.node_probe import check_node
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.store import ObjectWriter, Store

T = TypeVar("T")


class InlineLane:
    """One store's share of a fan-out, written by whoever hands it over."""

    def __init__(self, store: Store, key: str, *, durable: bool) -> None:
        self.error: Exception | None = None
        self.ended = False
        self._writer: ObjectWriter | None = None
        self._try(lambda: self._open(store, key, durable=durable))

    def put(self, pieces: tuple[bytes, ...], late: float) -> None:
        self._try(lambda: self._writer and self._writer.write(*pieces))

    def close(self, late: float) -> None:
        self._try(lambda: self._writer and self._writer.close())
        self.ended = True

    def wait(self, seconds: float | None) -> None:
        raise AssertionError("what is done at once is not waited for")

    def give_up(self) -> None:
        raise AssertionError("what is done at once is never late")

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.discard()

    def _open(self, store: Store, key: str, *, durable: bool) -> None:
        self._writer = store.open_write(key, durable=durable)

    def _try(self, act: Callable[[], object]) -> None:
        if self.error is not None:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 -- as the thread does
            self.error, self.ended = error, True


class InlineReads:
    """Reads a store at once; it is avoided for a while after it failed."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now = now
        self._seconds = seconds
        self._avoided_until = -1.0

    @property
    def avoided(self) -> bool:
        return self._now() < self._avoided_until

    def avoid(self) -> None:
        self._avoided_until = self._now() + self._seconds

    def call(self, function: Callable[[], T], seconds: float) -> T:
        return function()


class ChanceCalls:
    """Makes the calls at several stores one at a time, whichever chance says, when somebody waits for an answer.

    So a call for whose answer nobody waits any more is made late, or never.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: list[Callable[[], Answer]] = []

    def start(self, store: int, call: Callable[[], Answer]) -> bool:
        self._waiting.append(call)
        return True

    def next(self, seconds: float) -> Answer | None:
        if not self._waiting:
            return None
        return self._waiting.pop(self._chance.randrange(len(self._waiting)))()


def probe(members: Sequence[tuple[object, Store]]) -> dict[str, LogError]:
    """Ask for the markers, one after another."""
    asked = [(node.node_id, check_node(node, store)) for node, store in members]  # type: ignore[attr-defined, arg-type]
    return {name: error for name, error in asked if error is not None}
