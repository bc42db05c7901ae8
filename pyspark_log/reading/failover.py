"""Failover between the nodes that hold a chunk, in the middle of a task, and the time limit of each read.

A node that failed comes last for the rest of the task, so not every chunk waits for it. A node that did not answer, or
refused, comes last for `AVOID_SECONDS` in the whole process. A damaged or missing file does not affect other tasks.

A network file system whose server is gone hangs instead of failing. So each store is read by a thread of its own, and
the caller stops waiting after some seconds. A store that hangs is not read again until it has answered: it costs one
thread, and calls in the meantime fail at once.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage import logs
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.files import index
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable
from pyspark_log_storage.stores.store import is_object_store
from pyspark_log_storage.stores.store_threads import StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_storage.stores.store import Readable, Store

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""How long a read may take if another node has the same file."""
LAST_ANSWER_SECONDS = 60.0
"""How long a read may take if all other nodes have failed."""
AVOID_SECONDS = 30.0
"""How long a process prefers other nodes after a node did not answer or refused."""
_STORE = "store"


class Lane:
    """The thread that reads from a store, and whether the store failed lately. For one calling thread."""

    def __init__(self) -> None:
        self._threads = StoreThreads("reads of a")
        self._avoided_until = -float("inf")
        self.failures = logs.Failures()
        """Whether the store fails now, and that was logged."""

    @property
    def avoided(self) -> bool:
        """Whether the store failed within the last `AVOID_SECONDS`."""
        return time.monotonic() < self._avoided_until

    def avoid(self) -> None:
        self._avoided_until = time.monotonic() + AVOID_SECONDS

    @property
    def hangs(self) -> bool:
        """Whether a call took too long and has not ended yet."""
        return self._threads.pending(_STORE) > 0 and self._threads.next(0) is None

    def call(self, function: Callable[[], T], seconds: float) -> T:
        """Call the function in the store's thread. Raises what it raises, or `TimeoutError` if it takes too long."""
        if self.hangs:
            raise TimeoutError
        self._threads.start(_STORE, function)
        answer = self._threads.next(seconds)
        if answer is None:
            raise TimeoutError
        if answer.error is not None:
            raise answer.error
        result: T = answer.result
        return result


class TimedReads:
    """A store's reads, each of which fails if it takes longer than `seconds`."""

    def __init__(self, store: Readable, lane: Lane, seconds: float) -> None:
        self.url = store.url
        self.is_object_store = is_object_store(store)
        self._store = store
        self._lane = lane
        self._seconds = seconds

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._ask(key, lambda: self._store.read(key, start, length))

    def size(self, key: str) -> int:
        return self._ask(key, lambda: self._store.size(key))

    def _ask(self, key: str, function: Callable[[], T]) -> T:
        try:
            return self._lane.call(function, self._seconds)
        except TimeoutError:
            message = f"{self.url} does not answer when {key} is read; check its disk, mount or network"
            raise StoreUnavailable(self.url, key, message) from None


_lanes: weakref.WeakKeyDictionary[Store, Lane] = weakref.WeakKeyDictionary()


def lane_of(store: Store) -> Lane:
    """Return the lane of a store. There is one in each process."""
    found = _lanes.get(store)
    if found is None:
        found = _lanes[store] = Lane()
    return found


class ReadReplica(msgspec.Struct, frozen=True, array_like=True):
    """A node to read from, and its address as the cluster knows it."""

    node: NodeId
    url: str


def _is_of_store(error: CorruptObject | StoreError) -> bool:
    """Return whether an error is of a store, and not of a file."""
    return isinstance(error, StoreError) and not isinstance(error, ObjectMissing)


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
        key: str,
        find: Callable[[index.Table], T],
    ) -> T:
        """Return what `find` finds in the index of a segment, of the first node with a whole one, else in the segment.

        Raises as `read`.
        """

        def indexed(store: Readable) -> T:
            return find(index.table(store, key))

        def scanned(store: Readable) -> T:
            return find(index.table_of(segment.scan(store, key)))

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
            lane_of(store).failures.end(_STORE, "node %(node)r can be read again", node=node.node)
            for failed, reason in errors.items():
                # That a store does not answer is one failure, that a file is damaged is one of each.
                lane = lane_of(self._store_at(failed.url))
                failures = lane.failures if _is_of_store(reason) else logs.Failures()
                failures.note(
                    _STORE,
                    reason,
                    "topic %(topic)r, partition %(partition)d, offset %(offset)d cannot be read from node %(node)r: "
                    "%(error)s. It was read from node %(reader)r",
                    topic=self._topic,
                    partition=self._partition,
                    offset=offset,
                    node=failed.node,
                    reader=node.node,
                )
            return result

        def note(node: ReadReplica, error: CorruptObject | StoreError) -> None:
            errors[node] = error
            self._failed.add(node.url)
            if _is_of_store(error):
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
