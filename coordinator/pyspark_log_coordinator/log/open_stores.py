"""The stores that a process has opened, by their addresses, so that each is opened once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_storage.stores.store import Store


class OpenStores:
    """Opens each store once."""

    def __init__(self, roots: Sequence[Store], open_store: Callable[[str], Store]) -> None:
        self.roots = tuple(roots)
        """The stores that the user named."""
        self._open_store = open_store
        self._opened = {store.url: store for store in roots}

    def at(self, url: str) -> Store:
        """Return the store at an address. Reads nothing.

        Raises `InvalidOption`, and `CorruptObject` for a node at the root of a cluster that has journal nodes instead.
        """
        if url == AT_THE_ROOT:
            raise CorruptObject(f"the cluster at {self.roots[0].url}", f"a node's address is {url!r}")
        if url not in self._opened:
            self._opened[url] = self._open_store(url)
        return self._opened[url]

    def all(self) -> tuple[Store, ...]:
        """Return every store opened so far."""
        return tuple(self._opened.values())
