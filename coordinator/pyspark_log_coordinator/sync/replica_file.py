"""The files of a replica: those that a node lacks or holds, and how one is checked and copied, and how fast.

Catch-up and the walk over damaged copies (`faults`) use these. An election asks only for the files that it depends on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, SegmentRef, named
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.file_holders import held_alone, newest_held
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    is_node_failure,
)
from pyspark_log_storage.files.row_files import SegmentFile, StagedChunk
from pyspark_log_storage.segments import transfer
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.replication.file_holders import SegmentId
    from pyspark_log_storage.stores.store import Store


class ReplicaFile(msgspec.Struct, frozen=True):
    """An append file or a segment."""

    key: str
    """The key of the file; of a segment as `layout.segment_name` ends it."""
    number: int
    """The file's number in the topic; of a segment its partition."""
    holders: tuple[Holder, ...]
    bytes: int
    """The size; approximate for a file of which only a part is still needed."""
    places: tuple[StagedChunk, ...] = ()
    """The chunks of the file that the journal names."""
    segment: SegmentRef | None = None

    @property
    def stored_key(self) -> str:
        """The key of the object that has the rows."""
        return self.key if self.segment is None else layout.segment_file(self.key)

    @property
    def expected(self) -> SegmentFile | tuple[StagedChunk, ...]:
        """What the journal says of the contents."""
        return self.places if self.segment is None else self.segment

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions of which the journal names rows in the file."""
        return frozenset(each.partition for each in self.places) if self.segment is None else frozenset({self.number})


def missing(state: Topic, node_id: NodeId) -> list[ReplicaFile]:
    """Return the files that a node lacks of its partitions.

    The oldest rows of each partition come first, segments that only replace what the node has last.
    """
    return _files(state, lambda holders: not replicas.is_held(holders, node_id), node_id)


def absent(handle: TopicHandle, node_id: NodeId, *, is_held: bool = True) -> list[ReplicaFile]:
    """Return the files that a node's store does not have, of those that the node holds by the known state, or lacks."""
    files = _files(handle.journal.state, lambda holders: replicas.is_held(holders, node_id) is is_held, node_id)
    if not files:
        return []
    stored = set(handle.log.node_store(node_id).list(layout.topic_folder(handle.name, handle.topic_id)))
    return [file for file in files if file.stored_key not in stored]


def ids(files: Collection[ReplicaFile]) -> tuple[tuple[int, ...], tuple[SegmentId, ...]]:
    """Return files as commands and events name them: append files by number, segments by partition and name."""
    append_files = tuple(each.number for each in files if each.segment is None)
    return append_files, tuple((each.number, each.segment.name) for each in files if each.segment is not None)


def sources(handle: TopicHandle, holders: tuple[Holder, ...], node_id: NodeId) -> list[NodeId]:
    """Return the holders to copy from to a node, nearest first, without those that are missing."""
    log = handle.log
    nodes = log.nearest_first(rack=log.node(node_id).rack)
    return [each for each in log.reachable_holders(handle.journal.state, nodes, holders) if each != node_id]


def files_of(state: Topic) -> list[ReplicaFile]:
    """Return the files that have the rows of a topic: its segments, and its append files with unrolled chunks."""
    return _files(state, lambda _: True)


def _files(
    state: Topic, is_wanted: Callable[[Collection[Holder]], bool], node_id: NodeId | None = None
) -> list[ReplicaFile]:
    """Return the wanted files of all partitions, or of those of a node: the segments, then the append files."""
    listed = [(n, each) for n, each in enumerate(state.partitions) if node_id is None or node_id in each.replicas]
    segments = [of_segment(state, n, one) for n, each in listed for one in each.segments if is_wanted(one.holders)]
    named = {n: state.file(n) for n in sorted({chunk.file for _, each in listed for chunk in each.chunks})}
    files = {number: file for number, file in named.items() if is_wanted(file.holders)}
    places = _places(state, files)
    append_files = [
        ReplicaFile(
            key=layout.append_file(state.name, state.topic_id, file.name),
            number=number,
            holders=file.holders,
            bytes=max(each.position + each.length for each in places[number]),
            places=tuple(places[number]),
        )
        for number, file in files.items()
    ]
    return [*segments, *append_files]


class Throttle:
    """Limits the rate of checks and copies, as their `moved`: waits, so that at most `bytes_per_second` are read."""

    def __init__(self, environment: Environment, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self._environment = environment
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, count: int) -> None:
        """Wait for as long as `count` bytes take at this rate."""
        now = self._environment.monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        self._environment.sleep(self._free_at - now)


def check(
    store: Store, file: ReplicaFile, moved: Callable[[int], object] = lambda _: None, *, dry_run: bool = False
) -> bool:
    """Read a node's copy of a file. Rebuild a segment's index if that is missing or damaged; return whether it was.

    A `dry_run` leaves the index as it is. Raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """
    return transfer.check(store, file.key, file.expected, moved, dry_run=dry_run)


def copy_from_first(
    sources: Sequence[Store],
    target: Store,
    file: ReplicaFile,
    moved: Callable[[int], object] = lambda _: None,
    *,
    replace: bool = False,
) -> list[Store]:
    """Copy a file from the first store that has it whole; return those before it whose copies are damaged or lost.

    Raises the error of the target, or if no source has the file whole, that of the first one; `StoreUnavailable` if
    there is no source.
    """
    damaged: list[Store] = []

    def note(source: Store, error: CorruptObject | StoreError) -> None:
        if is_of_store(error, target):
            raise error
        if isinstance(error, (CorruptObject, ObjectMissing)):
            damaged.append(source)

    try:
        first_readable(
            sources, lambda source: transfer.copy(source, target, file.key, file.expected, moved, replace=replace), note
        )
    except AllCopiesFailed as failed:
        names = named({each.node for each in file.holders})
        message = f"{file.key} cannot be copied: none of its holders ({names}) is reachable; bring one back"
        raise failed.first_or(StoreUnavailable("", file.key, message)) from None
    return damaged


def is_of_store(error: LogError, store: Store) -> bool:
    """Return whether a store failed itself, rather than a source or a deleted object."""
    return isinstance(error, StoreError) and not isinstance(error, ObjectMissing) and error.url == store.url


def is_stored(store: Store, file: ReplicaFile) -> bool:
    """Return whether a store has a copy of a file, whole or damaged."""
    return store.exists(file.stored_key)


def of_segment(state: Topic, partition: int, ref: SegmentRef) -> ReplicaFile:
    """Return a segment as a file."""
    key = f"{layout.topic_folder(state.name, state.topic_id)}{partition}/{ref.name}"
    return ReplicaFile(key, partition, ref.holders, ref.log_bytes, segment=ref)


def _places(state: Topic, files: Collection[int]) -> dict[int, list[StagedChunk]]:
    """Return the chunks of all partitions that the journal names in each of these files."""
    places: dict[int, list[StagedChunk]] = defaultdict(list)
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks:
            if chunk.file in files:
                places[chunk.file].append(chunk.place(number))
    return places


def live(handle: TopicHandle) -> tuple[Holder, ...]:
    """Return the nodes that may be elected: this process reaches them, and they have their required files."""
    state, members = handle.journal.state, handle.log.cluster.state.nodes
    found = (Holder(node, incarnation) for node, incarnation in state.incarnations.items() if node in members)
    return tuple(each for each in found if is_complete(handle, each.node))


def is_complete(handle: TopicHandle, node: NodeId) -> bool | None:
    """Return whether a node answers and has its required files; None if this process may not use it.

    By the last probe of the nodes and the known state of the topic.
    """
    error = handle.log.missing_nodes.get(node)
    if error is not None:
        return False if is_node_failure(error) else None
    try:
        return has_required_files(handle, node)
    except StoreRefused:
        return None


def has_required_files(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node's store has the newest file that the node holds, and every file that only it holds.

    A leader without them would hold up its followers, and so the HW, forever. Raises what `has_newest` raises.
    """
    return has_newest(handle, node) and all(
        _is_there(handle, node, key) for key in held_alone(handle.journal.state, node)
    )


def is_set_back(log: Log, node_id: NodeId) -> bool:
    """Return whether a node's store, which answers, lacks files that the node needs: its disk was set back or emptied.

    Such a node is suspected like one that does not answer, until its files are copied again or it is renewed.
    """
    return not all(has_required_files(each, node_id) for each in log.topics_on(node_id, failed=lambda *_: None))


def has_newest(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node's store has the newest file that the node holds; False if it does not answer.

    A disk restored from a backup has the right marker, but not this file. Raises `StoreRefused` if this process may not
    use the store, which may be well.
    """
    key = newest_held(handle.journal.state, node)
    return key is None or _is_there(handle, node, key)


def _is_there(handle: TopicHandle, node: NodeId, key: str) -> bool:
    try:
        return handle.log.node_store(node).exists(f"{layout.topic_folder(handle.name, handle.topic_id)}{key}")
    except LogError as error:
        if isinstance(error, StoreError) and not is_node_failure(error):
            raise
        return False
