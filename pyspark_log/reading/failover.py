"""Failover between the nodes that hold a chunk, in the middle of a task.

A node that failed comes last for the rest of the task, so not every chunk waits for it. A node that did not answer, or
refused, comes last for `AVOID_SECONDS` in the whole process. A damaged or missing file does not affect other tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log.reading.timed_reads import TimedReads, lane_of
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage import logs
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_storage.stores.store import Readable, Store

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a read may take if another node has the same file."""
LAST_ANSWER_SECONDS = 60.0
"""How long a read may take if all other nodes have failed."""


class ReadReplica(msgspec.Struct, frozen=True, array_like=True):
    """A node to read from, and its address as the cluster knows it."""

    node: NodeId
    url: str


class Failover:
    """Reads chunks of a partition, each from the first of its nodes that can be read. For one task."""

    def __init__(self, store_at: Callable[[str], Store], topic: str, partition: int) -> None:
        """`store_at` opens the store at an address as the cluster knows it."""
        self._store_at = store_at
        self._topic, self._partition = topic, partition
        self.name = f"topic {topic!r}, partition {partition}"
        self._failed: set[str] = set()

    def read(self, nodes: Sequence[ReadReplica], offset: int, call: Callable[[Readable], T]) -> T:
        """Return the result of `call` for the store of the first of the nodes, nearest first, that can be read.

        `offset` is the first row's, for messages. A single node is read without a thread and without a time limit.
        Raises the error of the nearest node if all fail.
        """
        if len(nodes) == 1:
            return call(self._store_at(nodes[0].url))
        try:
            return self._first_answer(nodes, offset, call)
        except AllCopiesFailed as failed:
            raise self._nearest(nodes, offset, failed) from None

    def look_up(
        self,
        nodes: Sequence[ReadReplica],
        offset: int,
        indexed: Callable[[Readable], T],
        scanned: Callable[[Readable], T],
    ) -> T:
        """Return the result of `indexed` for the first node with a whole index, or of `scanned` if none has one."""
        if len(nodes) == 1:
            store = self._store_at(nodes[0].url)
            try:
                return indexed(store)
            except (CorruptObject, ObjectMissing):
                return scanned(store)
        try:
            return self._first_answer(nodes, offset, indexed)
        except AllCopiesFailed as failed:
            if not any(isinstance(error, (CorruptObject, ObjectMissing)) for error in failed.errors.values()):
                raise self._nearest(nodes, offset, failed) from None
        return self.read(nodes, offset, scanned)

    def _first_answer(self, nodes: Sequence[ReadReplica], offset: int, call: Callable[[Readable], T]) -> T:
        errors: dict[ReadReplica, CorruptObject | StoreError] = {}

        def ask(node: ReadReplica) -> T:
            store = self._store_at(node.url)
            seconds = ANSWER_SECONDS if len(errors) + 1 < len(nodes) else LAST_ANSWER_SECONDS
            result = call(TimedReads(store, lane_of(store), seconds))
            for failed, reason in errors.items():
                logs.warning(
                    "topic %(topic)r, partition %(partition)d, offset %(offset)d cannot be read from node %(node)r: "
                    "%(error)s. It was read from node %(reader)r",
                    topic=self._topic,
                    partition=self._partition,
                    offset=offset,
                    node=failed.node,
                    error=reason,
                    reader=node.node,
                )
            return result

        def note(node: ReadReplica, error: CorruptObject | StoreError) -> None:
            errors[node] = error
            self._failed.add(node.url)
            if isinstance(error, StoreError) and not isinstance(error, ObjectMissing):
                lane_of(self._store_at(node.url)).avoid()

        return first_readable(sorted(nodes, key=self._is_avoided), ask, note)  # a stable sort: nearest first

    def _is_avoided(self, node: ReadReplica) -> bool:
        return node.url in self._failed or lane_of(self._store_at(node.url)).avoided

    def _nearest(
        self, nodes: Sequence[ReadReplica], offset: int, failed: AllCopiesFailed[ReadReplica]
    ) -> CorruptObject | StoreError:
        if nodes:
            return failed.errors[nodes[0]]
        message = "each node that held it was wiped since, or has left the cluster; bring its old disk back"
        return StoreUnavailable("", "", f"{self.name}, offset {offset}: {message}")
