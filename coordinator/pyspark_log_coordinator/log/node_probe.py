"""Which nodes answer: their markers are read, from all of them at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, StoreUnavailable
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.objects.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store

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
    """Finds out which stores answer as the node, and in the incarnation, that the cluster knows. Used by one thread.

    All are asked at once. A store that hangs, as a network file system does without its server, is given up after some
    seconds and not asked again until it answers, so it costs one thread.
    """

    def __init__(self, environment: Environment, seconds: float = ANSWER_SECONDS) -> None:
        """`seconds` is how long a store may take."""
        self._environment = environment
        self._seconds = seconds
        self._threads = environment.store_threads("marker of")

    def missing(self, members: Sequence[tuple[Node, Store]]) -> dict[NodeId, LogError]:
        """Return why nodes cannot be used, without those that can."""
        while self._threads.next(0) is not None:
            pass  # answers that came too late
        waiting = set()
        for node, store in members:
            name = f"node {node.node_id} at {store.url}"
            if not self._threads.pending(name):
                self._threads.start(name, partial(check_node, node, store), node.node_id)
                waiting.add(node.node_id)
        errors: dict[NodeId, LogError | None] = {}
        for node, store in members:
            silent = f"node {node.node_id!r} at {store.url} does not answer; check its disk, mount or network"
            errors[node.node_id] = StoreUnavailable(store.url, MARKER, silent)
        deadline = self._environment.monotonic() + self._seconds
        while waiting:
            answer = self._threads.next(max(0.0, deadline - self._environment.monotonic()))
            if answer is None:
                break
            if answer.error is not None:
                raise answer.error
            if answer.tag in waiting:
                waiting.remove(answer.tag)
                errors[answer.tag] = answer.result
        return {name: error for name, error in errors.items() if error is not None}
