"""The copies of a topic's files that `verify` and `repair` read: on every node that answers, fenced ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import Holder, NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.stores.store import Store


class ReadableCopies:
    """The stores of a cluster's nodes, or of one node if only its copies are checked."""

    def __init__(self, log: Log, only: NodeId | None = None) -> None:
        """`log` is open. Raises `InvalidOption` if there is no node `only`."""
        members = log.cluster.state.nodes
        if only is not None:
            node_of(members, only)
        self.is_single = len(members) == 1
        """Whether the cluster has one node."""
        self.is_of_one_node = only is not None
        fenced = [each for each in members.values() if each.fenced and not self.is_single]
        silent = log.probe([(each, log.node_store(each.node_id)) for each in fenced]) if fenced else {}
        self.missing: dict[NodeId, LogError] = {
            name: error for name, error in {**log.missing_nodes, **silent}.items() if name in members
        }
        """The errors of the nodes that cannot be read."""
        self._unexpected = set(silent) - {only}
        self._all = {name: log.node_store(name) for name in members if name not in self.missing}
        self.stores: dict[NodeId, Store] = {name: each for name, each in self._all.items() if only in (None, name)}
        """The stores to check."""
        self._only = only

    def of(self, state: Topic, holders: Iterable[Holder]) -> dict[NodeId, Store]:
        """Return the stores to check that must have a file of these holders."""
        return {name: self.stores[name] for name in _current(state, holders) if name in self.stores}

    def missing_of(self, state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
        """Return the holders that should be checked, but cannot be read."""
        return [name for name in _current(state, holders) if name in self.missing and self._only in (None, name)]

    def is_expected(self, node: NodeId) -> bool:
        """Return whether a node should be readable. A fenced one should be only if it was asked for."""
        return node not in self._unexpected

    def to_copy_from(self, state: Topic, holders: Iterable[Holder], node: NodeId) -> dict[NodeId, Store]:
        """Return the other nodes' stores from which a node's copy can be repaired."""
        return {name: self._all[name] for name in _current(state, holders) if name in self._all and name != node}


def _current(state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
    return [each.node for each in replicas.of_current_incarnations(state, holders)]
