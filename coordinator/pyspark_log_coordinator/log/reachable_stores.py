"""The stores that answer, which get the same calls one after another.

What is deleted is deleted on every node. A missing node is left out, and one that fails is left out from then on, so
that it does not keep the others from being cleaned up; what stays on it becomes an orphan. Fenced nodes are left out
too, because it is not known whether they answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_log_coordinator.cluster.nodes import live
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, is_node_failure
from pyspark_log_storage.objects.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")


class ReachableStores:
    """The stores that can be used now, by name. The errors of a single store are raised: there is no other."""

    def __init__(self, stores: dict[str, Store], *, is_single: bool) -> None:
        self.stores = stores
        """The stores that are left."""
        self.failures: dict[str, LogError] = {}
        """Why stores were left out since."""
        self._is_single = is_single

    @property
    def others_are_unusable(self) -> bool:
        """Whether every store left out since is missing or broken, so that no other process can use it either."""
        return all(is_node_failure(error) for error in self.failures.values())

    def each(self, act: Callable[[str, Store], T]) -> dict[str, T]:
        """Call `act` for every store that is left; return the results. `act` uses nothing but the store."""
        results = {}
        for name, store in tuple(self.stores.items()):
            try:
                results[name] = act(name, store)
            except (StoreError, CorruptObject) as error:
                if self._is_single:
                    raise
                self.failures[name] = error
                del self.stores[name]
        return results


def reachable_nodes(log: Log) -> ReachableStores:
    """Return the stores of the nodes of an opened log, by node id. If there are several, read their markers."""
    members = live(log.cluster.state.nodes)
    is_single = len(log.cluster.state.nodes) == 1
    stores = {name: log.node_store(name) for name in members if name not in log.missing_nodes}
    nodes = ReachableStores(stores, is_single=is_single)
    if not is_single:
        # The folder below an unused mount point could be taken for the node's store.
        nodes.each(lambda name, store: require_marker(store, name, members[name].incarnation))
        nodes.failures = {name: error for name, error in nodes.failures.items() if not is_node_failure(error)}
    return nodes


def reachable_stores(log: Log) -> ReachableStores:
    """Return the stores of the journals and the nodes of an opened log, by address."""
    every_store = log.stores()
    fenced = {log.node_store(name).url for name, node in log.cluster.state.nodes.items() if node.fenced}
    # The root is used even if its node is fenced: the journals are on it.
    stores = {store.url: store for store in every_store if store.url not in fenced or store is log.store}
    return ReachableStores(stores, is_single=len(every_store) == 1 and not log.missing_nodes)


def delete_all(store: Store, keys: Iterable[str]) -> None:
    for key in keys:
        store.delete(key)
