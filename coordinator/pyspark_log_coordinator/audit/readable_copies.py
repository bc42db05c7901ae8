"""Copies: which nodes have a file, as the journal says, and which of those can be read now.

What both the audit and the repair of a topic look at. Fenced nodes are read too, where they answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.log.liveness import NodeProbe
from pyspark_log_coordinator.replication import replicas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import Holder, NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.store import Store


class ReadableCopies:
    """The nodes of a cluster, of which one may be looked at alone."""

    def __init__(self, log: Log, only: NodeId | None = None) -> None:
        """Take an opened log. Raises `InvalidOption` where there is no node `only`."""
        members = log.cluster.state.nodes
        if only is not None:
            node_of(members, only)
        self.is_single = len(members) == 1
        """Whether the cluster has no other node."""
        self.is_of_one_node = only is not None
        fenced = [each for each in members.values() if each.fenced and not self.is_single]
        silent = NodeProbe().missing([(each, log.node_store(each.node_id)) for each in fenced]) if fenced else {}
        self.away: dict[NodeId, LogError] = {
            name: error for name, error in {**log.missing_nodes, **silent}.items() if name in members
        }
        """Why nodes cannot be read."""
        self._unexpected = set(silent) - {only}
        self._all = {name: log.node_store(name) for name in members if name not in self.away}
        self.stores: dict[NodeId, Store] = {name: each for name, each in self._all.items() if only in (None, name)}
        """The stores to look at."""
        self._only = only

    def of(self, state: Topic, holders: Iterable[Holder]) -> dict[NodeId, Store]:
        """Return the stores to look at that must have a file of these holders."""
        return {name: self.stores[name] for name in _present(state, holders) if name in self.stores}

    def away_of(self, state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
        """Return which of these holders cannot be read, though they are to be looked at."""
        return [name for name in _present(state, holders) if name in self.away and self._only in (None, name)]

    def is_expected(self, node: NodeId) -> bool:
        """Return whether it is a fault that a node cannot be read. Of a fenced one it is where that was asked for."""
        return node not in self._unexpected

    def to_copy_from(self, state: Topic, holders: Iterable[Holder], node: NodeId) -> dict[NodeId, Store]:
        """Return the stores, of all nodes, from which a node's copy can be made again."""
        return {name: self._all[name] for name in _present(state, holders) if name in self._all and name != node}


def _present(state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
    return [each.node for each in replicas.of_current_incarnations(state, holders)]
