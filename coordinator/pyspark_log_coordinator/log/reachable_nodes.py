"""Reachable nodes: those that get the same calls one after another, of which any may fail.

What is deleted is deleted on every node. A missing node is left out, and one that fails is left out from then on, so
that it does not keep the others from being cleaned up; what stays on it becomes an orphan. Fenced nodes are left out
too, because it is not known whether they answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import live
from pyspark_log_storage.errors import CorruptObject, StoreError
from pyspark_log_storage.fan_out import is_node_failure
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.store import Store


class ReachableNodes:
    """The nodes that can be used now. The errors of a single node are raised: there is no other to go on with."""

    def __init__(self, log: Log) -> None:
        """Take an opened log. With several nodes, read their markers."""
        members = live(log.cluster.state.nodes)
        self._is_single = len(log.cluster.state.nodes) == 1
        self.stores: dict[NodeId, Store] = {
            name: log.node_store(name) for name in members if name not in log.missing_nodes
        }
        """The stores of the nodes that are left."""
        self.failures: dict[NodeId, LogError] = {}
        """Why nodes were left out since."""
        if self._is_single:
            return
        # The folder below an unused mount point could be taken for the node's store.
        self.each(lambda name, store: require_marker(store, name, members[name].incarnation))
        self.failures = {name: error for name, error in self.failures.items() if not is_node_failure(error)}

    @property
    def others_are_unusable(self) -> bool:
        """Whether every node left out since is missing or broken, so that no other process can use it either."""
        return all(is_node_failure(error) for error in self.failures.values())

    def each(self, act: Callable[[NodeId, Store], object]) -> None:
        """Call `act` for every node that is left. `act` uses nothing but the store."""
        for name, store in tuple(self.stores.items()):
            try:
                act(name, store)
            except (StoreError, CorruptObject) as error:
                if self._is_single:
                    raise
                self.failures[name] = error
                del self.stores[name]
