"""The stores that a process has opened, by their addresses, so that each is opened once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.stores.copied import ORIGINALS, OriginalsStore, ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_storage.stores.store import Store


class OpenStores:
    """Opens each store once."""

    def __init__(self, roots: Sequence[Store], open_store: Callable[[str], Store]) -> None:
        self.roots = tuple(roots)
        """The stores that the user named."""
        self._open_store = open_store
        self._opened = {each.url: each for each in roots}
        self.refusal = ""
        """Why nothing is written if the log is a copy; empty if it is not."""
        self._copies: dict[str, Store] = {}
        """The stores of a copy, by the addresses of its original that its records name."""

    def at(self, url: str) -> Store:
        """Return the store at an address. Reads nothing.

        Raises `InvalidOption`, and `CorruptObject` for a node at the root of a cluster that has journal nodes instead.
        """
        if url == AT_THE_ROOT:
            raise CorruptObject(f"the cluster at {self.roots[0].url}", f"a node's address is {url!r}")
        if url in self._copies:
            return self._copies[url]
        if self.refusal:
            return next((each for each in self.roots if each.url == url), OriginalsStore(url))
        if url not in self._opened:
            self._opened[url] = self._open_store(url)
        return self._opened[url]

    def become_copy(self, refusal: str) -> None:
        """From now on use only the roots, and only read them. `refusal` is the message of whatever would write."""
        self.refusal = refusal
        self.roots = tuple(ReadOnlyStore(each, refusal) for each in self.roots)
        self._opened = {each.url: each for each in self.roots}

    def redirect(self, url: str, root: int) -> None:
        """Use one of the roots, by its position, for an address that the records name, instead of the store there."""
        self._copies[url] = self.roots[root]

    def address_in_copy(self, node: Node) -> str:
        """Return where tasks find a node of the log: in a copy its copy, or an address at which nothing can be done."""
        if not self.refusal or node.url == AT_THE_ROOT:
            return node.url
        found = self._copies.get(node.url)
        return f"{ORIGINALS}{node.url}" if found is None else found.url

    def all(self) -> tuple[Store, ...]:
        """Return every store opened so far."""
        return tuple(self._opened.values())
