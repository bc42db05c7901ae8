"""Connections that the stores of a process share.

A forked process makes its own: sockets and threads of its parent are of no use to it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Connections by what they are for. Used by any number of threads; lives as long as the process."""

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}
        self._former: list[dict[Hashable, T]] = []
        """Those of the parent process. They are kept, because to collect them would end its connections."""
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._start_afresh)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the connection for a key, which is made if there is none."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def _start_afresh(self) -> None:
        self._former.append(self._made)
        self._made, self._lock = {}, threading.Lock()
