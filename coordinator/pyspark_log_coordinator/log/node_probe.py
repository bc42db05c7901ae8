"""Probes nodes: finds out which stores answer as the node, and in the incarnation, that the cluster knows.

All are asked at once. A store that hangs, as a network file system does without its server, is given up after some
seconds and not asked again until it answers, so it costs one thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, StoreUnavailable
from pyspark_log_storage.layout import KEY
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.store import Store

ANSWER_SECONDS = 5.0
"""How long a store may take to return its marker."""


def check_node(node: Node, store: Store) -> LogError | None:
    """Return why a node cannot be used: it is unreachable, wiped, another node, or damaged. None if it can."""
    try:
        require_marker(store, node.node_id, node.incarnation)
    except (StoreError, CorruptObject) as error:
        return error
    return None


class NodeProbe:
    """Reads markers in threads. Used by one thread."""

    def __init__(self, environment: Environment, seconds: float = ANSWER_SECONDS) -> None:
        """`seconds` is how long a store may take."""
        self._environment = environment
        self._seconds = seconds
        self._hanging: dict[str, _MarkerRead] = {}
        """The reads that did not end in time, by the address of the store."""

    def missing(self, members: Sequence[tuple[Node, Store]]) -> dict[NodeId, LogError]:
        """Return why nodes cannot be used, without those that can."""
        found: dict[NodeId, LogError] = {}
        reads = []
        for node, store in members:
            earlier = self._hanging.pop(store.url, None)
            if earlier is not None and earlier.is_alive():
                self._hanging[store.url] = earlier
                found[node.node_id] = _unreachable(node, store)
            else:
                reads.append(_MarkerRead(node, store))
                reads[-1].start()
        deadline = self._environment.monotonic() + self._seconds
        for read in reads:
            read.join(max(0.0, deadline - self._environment.monotonic()))
            if read.is_alive():
                self._hanging[read.store.url] = read
                found[read.node.node_id] = _unreachable(read.node, read.store)
            elif read.raised is not None:
                raise read.raised
            elif read.error is not None:
                found[read.node.node_id] = read.error
        return found


class _MarkerRead(threading.Thread):
    """Reads one marker."""

    def __init__(self, node: Node, store: Store) -> None:
        # A daemon: a store that hangs must not keep the process from ending.
        super().__init__(name=f"marker of node {node.node_id}", daemon=True)
        self.node = node
        self.store = store
        self.error: LogError | None = None
        self.raised: Exception | None = None

    def run(self) -> None:
        try:
            self.error = check_node(self.node, self.store)
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            self.raised = error


def _unreachable(node: Node, store: Store) -> StoreUnavailable:
    message = f"node {node.node_id!r} at {store.url} does not answer; check its disk, mount or network"
    return StoreUnavailable(store.url, KEY, message)
