"""Stores in memory that end their process, or fail, at one of their calls: the n-th that changes something."""

from __future__ import annotations

from tests.support.faulty_store import Fault, FaultyStore
from tests.support.memory_store import MemoryStore

CHANGES = frozenset({"create", "create_unflushed", "put", "close", "delete"})
"""The calls that change a store."""
DURABLE = CHANGES - {"create_unflushed"}
"""Those on which anything depends."""


class Countdown:
    """Counts the durable changes of some stores. From one of them on each fails: that process is gone."""

    def __init__(self, fault: Fault = Fault.KILL_BEFORE) -> None:
        self.made = 0
        self.left: int | None = None
        """How many more changes are made; None for any number."""
        self._fault = fault

    def store(self, url: str = "the url") -> FaultyStore:
        """Return an empty store."""
        return FaultyStore(MemoryStore(url), self._at)

    def _at(self, call: str, _key: str) -> Fault | None:
        if call not in DURABLE:
            return None
        self.made += 1
        if self.left is None:
            return None
        if self.left == 0:
            return self._fault
        self.left -= 1
        return None
