"""Deliveries: the futures of rows, each of which costs almost nothing until it is used.

A future of the standard library has a lock and a condition of its own, which take longer to make than a row takes to be
written. So a delivery is only a batch and the number of a row in it, and becomes a real future on first use.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_log.clients.records import RecordMetadata

if TYPE_CHECKING:
    import threading

_FUTURES_OWN = frozenset(vars(Future()))


class Watched(Protocol):
    """What settles deliveries: a batch of rows."""

    lock: threading.RLock

    def watch(self, delivery: Delivery, row: int) -> None:
        """Settle the future of a row, or do so when the batch is settled. The caller holds the lock."""


class Delivery(Future[RecordMetadata]):
    """The future of one row."""

    def __init__(self, batch: Watched, row: int) -> None:
        # Future.__init__ is called on first use.
        self._batch = batch
        self._row = row

    def __getattr__(self, name: str) -> Any:
        """Become a real future. Called for an attribute that is missing."""
        if name not in _FUTURES_OWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._batch.lock:
            if "_condition" not in self.__dict__:
                made = vars(Future())
                condition = made.pop("_condition")
                self.__dict__.update(made)
                # Other threads wait at the condition as soon as they see it, until the batch knows the future.
                with condition:
                    self._condition = condition
                    self._batch.watch(self, self._row)
        return getattr(self, name)

    def cancel(self) -> bool:
        """Return false: a row that was sent is on its way."""
        return False
