"""Available nodes: those that are asked to do the same, one after another, of which any may fail.

What is removed is removed on every node. One that is missing is left out, and one that fails meanwhile is left out from
then on, so that it keeps nobody else's store from being kept clean: what stays on it is found later, as an orphan.
Fenced nodes are left out too, for nobody knows whether they answer.
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


class AvailableNodes:
    """The nodes that are there now. With a single one its errors are raised: there is no other to go on with."""

    def __init__(self, log: Log) -> None:
        """Take an opened log, and look at the markers where there are several nodes."""
        members = live(log.cluster.state.nodes)
        self._is_single = len(log.cluster.state.nodes) == 1
        self.stores: dict[NodeId, Store] = {
            name: log.node_store(name) for name in members if name not in log.missing_nodes
        }
        """The stores of the nodes that are left."""
        self.failures: dict[NodeId, LogError] = {}
        """Why nodes that were there are left out."""
        if self._is_single:
            return
        # Else what lies below a mount point could be taken for the node's.
        self.each(lambda name, store: require_marker(store, name, members[name].incarnation))
        self.failures = {name: error for name, error in self.failures.items() if not is_node_failure(error)}

    @property
    def others_are_away(self) -> bool:
        """Whether every node that was left out meanwhile is away or broken: none is one that others may use."""
        return all(is_node_failure(error) for error in self.failures.values())

    def each(self, act: Callable[[NodeId, Store], object]) -> None:
        """Do something on every node that is left. `act` touches nothing but the store."""
        for name, store in tuple(self.stores.items()):
            try:
                act(name, store)
            except (StoreError, CorruptObject) as error:
                if self._is_single:
                    raise
                self.failures[name] = error
                del self.stores[name]
