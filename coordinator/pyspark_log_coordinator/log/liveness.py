"""The roll call: which nodes' stores answer, as the node and in the incarnation that the cluster knows.

All are asked at once. One that hangs, as a network file system does whose server is gone, is given up after some
seconds; until it answers it is not asked again, so that it costs one thread.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, StoreUnavailable
from pyspark_log_storage.layout import KEY
from pyspark_log_storage.node import require_marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.store import Store

ANSWER_SECONDS = 5.0
"""How long a store may take to show its marker."""


def check_node(node: Node, store: Store) -> LogError | None:
    """Return what keeps a node from being used: it is away, wiped, another one, or damaged."""
    try:
        require_marker(store, node.node_id, node.incarnation)
    except (StoreError, CorruptObject) as error:
        return error
    return None


class NodeProbe:
    """Asks stores in threads. Used by one thread."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        """`seconds` are how long a store may take."""
        self._seconds = seconds
        self._hanging: dict[str, _Question] = {}
        """The questions that were not answered in time, by the address of the store."""

    def missing(self, members: Sequence[tuple[Node, Store]]) -> dict[NodeId, LogError]:
        """Return what keeps members from being used, of those that something does."""
        found: dict[NodeId, LogError] = {}
        questions = []
        for node, store in members:
            earlier = self._hanging.pop(store.url, None)
            if earlier is not None and earlier.is_alive():
                self._hanging[store.url] = earlier
                found[node.node_id] = _silent(node, store)
            else:
                questions.append(_Question(node, store))
                questions[-1].start()
        end = time.monotonic() + self._seconds
        for question in questions:
            question.join(max(0.0, end - time.monotonic()))
            node, store = question.node, question.store
            if question.is_alive():
                self._hanging[store.url] = question
                found[node.node_id] = _silent(node, store)
            elif question.raised is not None:
                raise question.raised
            elif question.answer is not None:
                found[node.node_id] = question.answer
        return found


class _Question(threading.Thread):
    """Reads one marker."""

    def __init__(self, node: Node, store: Store) -> None:
        # A daemon: a store that hangs must not keep the process from ending.
        super().__init__(name=f"marker of node {node.node_id}", daemon=True)
        self.node = node
        self.store = store
        self.answer: LogError | None = None
        self.raised: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = check_node(self.node, self.store)
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            self.raised = error


def _silent(node: Node, store: Store) -> StoreUnavailable:
    message = f"node {node.node_id!r} at {store.url} does not answer; check its disk, mount or network"
    return StoreUnavailable(store.url, KEY, message)
