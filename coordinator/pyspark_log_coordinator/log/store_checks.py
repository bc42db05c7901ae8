"""Whether the object stores with the journals still create an object only once, as they did when they joined.

Somebody may have switched on the versioning of a bucket since, and there are servers that then ignore the condition of
`create`: two writers would get the same offsets. So a process that writes tries it before its first rows, and then once
a day. Folders are not tried again: what a file system can do does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import StoreUnfit
from pyspark_log_storage.stores.self_test import check_condition
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_storage.stores.store import Store

CHECK_EVERY_SECONDS = 24 * 60 * 60.0
PATIENCE_MS = 2000
"""How long to wait for the answers of several stores."""


class StoreChecks:
    """Checks the stores of one log for one process. Used by one thread."""

    def __init__(self, environment: Environment, place: Callable[[], JournalPlace]) -> None:
        """`place` returns where the journals are. Asks no store yet."""
        self._environment = environment
        self._place = place
        self._due = -float("inf")
        """When to check next, by the monotonic clock."""

    def check(self) -> None:
        """Check the stores if that is due. Raises `StoreUnfit`.

        A store that does not answer is left to the next check, and so is one that this process may not write to.
        """
        place, now = self._place(), self._environment.monotonic()
        if now < self._due or not any(map(is_object_store, place.stores)):
            return
        nonce = self._environment.nonce()

        def try_one(store: Store) -> None:
            if is_object_store(store):
                check_condition(store, nonce)

        for answer in place.ask(try_one, self._environment, PATIENCE_MS, settled=place.is_majority):
            if isinstance(answer.error, StoreUnfit):
                raise answer.error
        self._due = now + CHECK_EVERY_SECONDS
