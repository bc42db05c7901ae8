"""Failover: what cannot be read of one node is read of the next one that has it, in the middle of a task.

A node that failed comes last for the rest of the task, so that not every chunk tries it again, or waits for it; one
that did not answer, or refused, for some time in all of the process. An object that is damaged or missing says nothing
of the node's others to the next task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log.client.read.timed_reads import TimedReads, lane_of
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_storage.store import Readable, Store

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a read may take where another node has the same."""
LAST_ANSWER_SECONDS = 60.0
"""How long a read may take where all other nodes have failed."""

_logger = logging.getLogger("pyspark_log")


class ReadReplica(msgspec.Struct, frozen=True, array_like=True):
    """A node to read from, and its address as the cluster knows it."""

    node: NodeId
    url: str


class Failover:
    """Reads pieces of a partition, each from the first of its nodes that can be read. For one task."""

    def __init__(self, store_at: Callable[[str], Store], topic: str, partition: int) -> None:
        """`store_at` opens the store at an address as the cluster knows it."""
        self._store_at = store_at
        self.name = f"topic {topic!r}, partition {partition}"
        self._failed: set[str] = set()

    def read(self, nodes: Sequence[ReadReplica], offset: int, call: Callable[[Readable], T]) -> T:
        """Return what `call` returns for the store of the first of the nodes, nearest first, for which it does.

        It reads the rows from `offset` on, or where these lie. Where there is one node, that is asked as if there were
        no failover: without a thread, and without a limit of time. Raises what the nearest node raised, where all did.
        """
        if len(nodes) == 1:
            return call(self._store_at(nodes[0].url))
        try:
            return self._first_answer(nodes, offset, call)
        except _AllFailedError as failed:
            raise failed.nearest from None

    def look_up(
        self,
        nodes: Sequence[ReadReplica],
        offset: int,
        indexed: Callable[[Readable], T],
        scanned: Callable[[Readable], T],
    ) -> T:
        """Return what `indexed` returns for the first node for which it does; where no index is whole, `scanned`."""
        if len(nodes) == 1:
            store = self._store_at(nodes[0].url)
            try:
                return indexed(store)
            except (CorruptObject, ObjectMissing):
                return scanned(store)
        try:
            return self._first_answer(nodes, offset, indexed)
        except _AllFailedError as failed:
            if not any(isinstance(error, (CorruptObject, ObjectMissing)) for error in failed.errors):
                raise failed.nearest from None
        return self.read(nodes, offset, scanned)

    def _first_answer(self, nodes: Sequence[ReadReplica], offset: int, call: Callable[[Readable], T]) -> T:
        errors: dict[ReadReplica, CorruptObject | StoreError] = {}
        for node in sorted(nodes, key=self._is_avoided):  # stable: of the others the nearest comes first
            store = self._store_at(node.url)
            seconds = ANSWER_SECONDS if len(errors) + 1 < len(nodes) else LAST_ANSWER_SECONDS
            try:
                result = call(TimedReads(store, lane_of(store), seconds))
            except (CorruptObject, StoreError) as error:
                errors[node] = error
                self._failed.add(node.url)
                if isinstance(error, StoreError) and not isinstance(error, ObjectMissing):
                    lane_of(store).avoid()
            else:
                for failed, reason in errors.items():
                    _logger.warning(
                        "%s, offset %d cannot be read from node %r: %s. It was read from node %r",
                        *(self.name, offset, failed.node, reason, node.node),
                    )
                return result
        raise _AllFailedError([errors[node] for node in nodes], self._nowhere(offset))

    def _is_avoided(self, node: ReadReplica) -> bool:
        return node.url in self._failed or lane_of(self._store_at(node.url)).avoided

    def _nowhere(self, offset: int) -> StoreUnavailable:
        message = (
            "each node that held it was wiped since, or is none of the cluster's any more; bring its old disk back"
        )
        return StoreUnavailable("", "", f"{self.name}, offset {offset}: {message}")


class _AllFailedError(Exception):
    """No node could be read."""

    def __init__(self, errors: Sequence[CorruptObject | StoreError], nowhere: StoreUnavailable) -> None:
        """`errors` are those of the nodes, the nearest first; `nowhere` is for where there is no node."""
        super().__init__()
        self.errors = errors
        self.nearest: CorruptObject | StoreError = errors[0] if errors else nowhere
