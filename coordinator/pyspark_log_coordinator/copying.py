"""Copying: a node gets the files that it misses, and the topic's journal is told.

    missing     which files and segments a node lacks, the oldest rows first
    catch_up    copies them from the nearest holder, checks the node's marker, and says in one entry that it holds them
    absent      what a node is said to hold and has not: its disk was restored from a backup, with the right marker

Whoever needs a copy makes it: a follower, or a commit that waits for one. Two that copy one file at once do no harm:
one gets the name, the other finds it there. An object is either on a node, whole, or not, so after an interruption
copying goes on with the next object; what was copied and not told yet is read once more, and told.

A node that is out of an ISR gets back what is absent before it is in again, else it would count for rows that it lacks.
A source that is found damaged, where another is whole, is reported (`bad_copies`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator import bad_copies, holding, replicas
from pyspark_log_coordinator.assignment import by_number, named
from pyspark_log_coordinator.holding import HoldFiles
from pyspark_log_coordinator.membership import introduce
from pyspark_log_coordinator.observer import has_what_counts
from pyspark_log_coordinator.partition import Holder, SegmentRef
from pyspark_log_storage import layout, transfer
from pyspark_log_storage import node as node_marker
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.segment import SegmentFile
from pyspark_log_storage.staged_chunk import StagedChunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.partition import NodeId
    from pyspark_log_coordinator.topic_state import Topic
    from pyspark_log_storage.store import Store

TELL_OBJECTS = 256
TELL_BYTES = 256 * 1024 * 1024
TELL_SECONDS = 2.0
"""After so many objects, so many bytes or so long the journal is told what the node holds by now."""


class Piece(msgspec.Struct, frozen=True):
    """An append file or a segment that a node lacks."""

    key: str
    """Of the file; of the segment without ending."""
    number: int
    """The file's among the topic's files; of a segment its partition."""
    holders: tuple[Holder, ...]
    bytes: int
    """How much there is to copy; of a file of which only a part is needed any more, about."""
    places: tuple[StagedChunk, ...] = ()
    """The chunks of the file that the journal names."""
    segment: SegmentRef | None = None

    @property
    def stored_key(self) -> str:
        """The key of the object that has its rows."""
        return self.key if self.segment is None else f"{self.key}.log"


class Copied(msgspec.Struct, frozen=True):
    """What came of catching up."""

    objects: int
    bytes: int
    failures: tuple[LogError, ...]
    """What could not be copied, from anywhere."""


class Throttle:
    """Waits after each range of bytes, so that on the average no more than so many pass in a second."""

    def __init__(self, environment: Environment, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self._environment = environment
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, count: int) -> None:
        """Wait for as long as `count` bytes take."""
        now = self._environment.monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        self._environment.sleep(self._free_at - now)


def missing(handle: TopicHandle, node_id: NodeId) -> list[Piece]:
    """Return what a node lacks of the partitions of which it is a replica, by the state that is known.

    Of each partition the oldest rows come first; segments that only stand in for what the node has come last.
    """
    return _pieces(handle, holding.missing(handle.journal.state, node_id))


def held(handle: TopicHandle, node_id: NodeId) -> list[Piece]:
    """Return what a node is said to hold of the partitions of which it is a replica, by the state that is known."""
    return _pieces(handle, holding.held(handle.journal.state, node_id))


def absent(handle: TopicHandle, node_id: NodeId) -> list[Piece]:
    """Return what a node is said to hold, by the state that is known, and that is not in its store."""
    pieces = held(handle, node_id)
    if not pieces:
        return []
    there = set(handle.log.node_store(node_id).list(layout.topic_folder(handle.name, handle.topic_id)))
    return [piece for piece in pieces if piece.stored_key not in there]


def _pieces(handle: TopicHandle, found: holding.Pieces) -> list[Piece]:
    state = handle.journal.state
    places = _places(state, {number for number, _ in found.files})
    files = [
        Piece(
            key=handle.append_file(file.name),
            number=number,
            holders=file.holders,
            bytes=max(each.position + each.length for each in places[number]),
            places=tuple(places[number]),
        )
        for number, file in found.files
    ]
    rolled, staged = ([_segment(handle, *each) for each in some] for some in (found.segments, found.staged))
    return [*rolled, *files, *staged]


def catch_up(
    log: Log,
    handle: TopicHandle,
    node_id: NodeId,
    *,
    moved: Callable[[int], object] = bool,
    failed: Callable[[LogError], object] = bool,
    until: float | None = None,
) -> Copied:
    """Copy what a node lacks of a topic until it lacks nothing, and tell the journal in passing.

    The handle is refreshed. `moved` is told how many bytes have passed since it was told last, and may wait
    (`Throttle`). `failed` is told of an object that cannot be copied from anywhere: the others go on. `until` is a time
    of the environment's monotonic clock: past it no further object is begun. Raises `NodeMissing` where the node's
    store is not the one that the cluster knows, and `StoreError` where it cannot be written.
    """
    member = log.cluster.state.nodes[node_id]
    target = log.node_store(node_id)
    # Else what is written below a mount point could be taken for the node's, once the disk is mounted.
    node_marker.require_marker(target, node_id, member.incarnation)
    introduce(log, handle, node_id)
    copier = _Copier(log, node_id, moved, until)
    told: dict[str, LogError] = {}
    state = handle.refresh()
    returns = _is_out_of_an_isr(state, node_id) and (missing(handle, node_id) or _has_news(handle, node_id))
    put_back = copier.put_back(handle) if returns else Copied(0, 0, ())
    objects, size = put_back.objects, put_back.bytes
    if put_back.failures or copier.is_late():
        for error in put_back.failures:
            failed(error)
        return put_back
    announced = False
    while True:
        state = handle.refresh()
        wanted = missing(handle, node_id)
        for piece in wanted:
            # Only now is it certain that it was not rolled or expired meanwhile.
            if piece.key in copier.tried and piece.key not in told:
                told[piece.key] = copier.tried[piece.key]
                failed(told[piece.key])
        todo = [] if copier.is_late() else [piece for piece in wanted if piece.key not in copier.tried]
        done = copier.copy_some(state, todo)
        if done:
            node_marker.require_marker(target, node_id, member.incarnation)
            # What was copied while the disk was not mounted lies below the mount point.
            done = [piece for piece in done if _is_there(target, piece)]
        elif todo:
            continue  # none of them could be copied
        elif announced or not _has_news(handle, node_id):
            return Copied(objects, size, tuple(told.values()))
        _tell(handle, node_id, member.incarnation, done)
        while copier.bad:
            bad_copies.report(handle, *copier.bad.pop())
        announced = not done
        objects += len(done)
        size += sum(piece.bytes for piece in done)


def copy_again(log: Log, state: Topic, node_id: NodeId, piece: Piece) -> None:
    """Put a whole copy of a file in the place of one that is damaged or gone, and that goes on being counted.

    Raises `CorruptObject`, `StoreError` where no whole one can be read, or the node not be written; then what is there
    stays.
    """
    _Copier(log, node_id, bool, None).copy(state, piece)


class _Copier:
    """Copies pieces of a topic to a node, and remembers which it could not."""

    def __init__(self, log: Log, node_id: NodeId, moved: Callable[[int], object], until: float | None) -> None:
        self._log = log
        self._node_id = node_id
        self._target = log.node_store(node_id)
        self._moved = moved
        self._until = until
        self.bad: list[tuple[NodeId, Piece]] = []
        """Copies of others that could not be read whole, of what was then copied from another node."""
        self.tried: dict[str, LogError] = {}
        """Why a piece could not be copied, by its key: it is not tried again."""

    def is_late(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._until is not None and self._log.environment.monotonic() >= self._until

    def put_back(self, handle: TopicHandle) -> Copied:
        """Copy what is absent from the node; return what came of it."""
        objects = size = 0
        while todo := [piece for piece in absent(handle, self._node_id) if piece.key not in self.tried]:
            done = self.copy_some(handle.journal.state, todo)
            objects += len(done)
            size += sum(piece.bytes for piece in done)
            if self.is_late():
                break
            handle.refresh()
        left = absent(handle, self._node_id) if self.tried else []
        return Copied(objects, size, tuple(self.tried[each.key] for each in left if each.key in self.tried))

    def copy_some(self, state: Topic, todo: list[Piece]) -> list[Piece]:
        """Copy as many of the pieces as the journal is told of at once; return them."""
        clock = self._log.environment.monotonic
        stop = clock() + TELL_SECONDS
        done: list[Piece] = []
        size = 0
        for piece in todo:
            if self.is_late() or len(done) >= TELL_OBJECTS or size >= TELL_BYTES or clock() >= stop:
                break
            try:
                self.copy(state, piece)
            except (CorruptObject, StoreError) as error:
                if self._is_ours(error):
                    raise
                self.tried[piece.key] = error
            else:
                done.append(piece)
                size += piece.bytes
        return done

    def copy(self, state: Topic, piece: Piece) -> None:
        """Copy a piece from the nearest holder that has it whole. Raises what the last one raised.

        A damaged copy that the node has of it is replaced in one step: of two that do so nobody takes the other's away.
        """
        error: LogError | None = None
        is_damaged = False
        if _is_there(self._target, piece):
            try:
                check(self._target, piece, self._moved)
            except CorruptObject as raised:
                error, is_damaged = raised, True
            else:
                return
        bad: list[tuple[NodeId, Piece]] = []
        for source in sources(self._log, state, piece.holders, self._node_id):
            try:
                _transfer(self._log.node_store(source), self._target, piece, self._moved, replace=is_damaged)
            except (CorruptObject, StoreError) as raised:
                if self._is_ours(raised):
                    if is_damaged:
                        raise
                    if not _is_there(self._target, piece):
                        if _is_taken(raised):
                            raise ObjectMissing(self._target.url, piece.key) from raised  # it has expired since
                        raise
                    # Another was quicker.
                    check(self._target, piece, self._moved)
                    return
                error = raised
                if isinstance(raised, (CorruptObject, ObjectMissing)):
                    bad.append((source, piece))
            else:
                self.bad += bad
                return
        if error is not None:
            raise error
        names = named({holder.node for holder in piece.holders})
        message = f"it cannot be copied to node {self._node_id!r}: of its holders ({names}) none is there"
        raise StoreUnavailable("", piece.key, f"{piece.key}: {message}; bring one back")

    def _is_ours(self, error: LogError) -> bool:
        """Return whether an error is of the node's own store, and no object that was removed meanwhile."""
        return isinstance(error, StoreError) and not isinstance(error, ObjectMissing) and error.url == self._target.url


def sources(log: Log, state: Topic, holders: tuple[Holder, ...], node_id: NodeId) -> list[NodeId]:
    """Return the holders to copy from to a node: those of its rack first, fenced ones last, missing ones not at all."""
    nodes = log.cluster.state.nodes
    rack = nodes[node_id].rack
    there = [
        holder.node
        for holder in replicas.present(state, holders)
        if holder.node != node_id
        and holder.node not in log.missing_nodes
        and holder.node in nodes
        and nodes[holder.node].incarnation == holder.incarnation
    ]
    return sorted(there, key=lambda each: (nodes[each].fenced, rack == "" or nodes[each].rack != rack, by_number(each)))


def _is_out_of_an_isr(state: Topic, node_id: NodeId) -> bool:
    return any(node_id in each.replicas and node_id not in each.isr for each in state.partitions)


def _has_news(handle: TopicHandle, node_id: NodeId) -> bool:
    """Return whether the journal is to hear of a node that lacks nothing: it is suspected, or may join an ISR.

    Who is suspected because its disk is an older one stays so.
    """
    state = handle.journal.state
    if node_id in state.suspects and has_what_counts(handle, node_id):
        return True
    return node_id not in state.fenced and any(replicas.may_join(each, node_id) for each in state.partitions)


def _tell(handle: TopicHandle, node_id: NodeId, incarnation: str, done: list[Piece]) -> None:
    """Tell the journal that the node holds the pieces too."""
    files = tuple(piece.number for piece in done if piece.segment is None)
    segments = tuple((piece.number, piece.segment.name) for piece in done if piece.segment is not None)
    handle.submit(HoldFiles(node_id, incarnation, files, segments))


def _transfer(source: Store, target: Store, piece: Piece, moved: Callable[[int], object], *, replace: bool) -> None:
    if piece.segment is None:
        transfer.copy_append_file(source, target, piece.key, piece.places, moved, replace=replace)
    else:
        transfer.copy_segment(source, target, piece.key, _as_stored(piece.segment), moved, replace=replace)


def check(store: Store, piece: Piece, moved: Callable[[int], object]) -> None:
    """Read a node's copy of a piece. Raises `CorruptObject`, `NewerFormat`, `StoreError`; makes a bad index again."""
    if piece.segment is None:
        transfer.check_append_file(store, piece.key, piece.places, moved)
    else:
        transfer.check_segment(store, piece.key, _as_stored(piece.segment), moved)


def _is_taken(error: LogError) -> bool:
    """Return whether a writer's end was refused because there was an object already."""
    return type(error) is StoreError


def _is_there(store: Store, piece: Piece) -> bool:
    return transfer.is_there(store, piece.stored_key)


def _as_stored(ref: SegmentRef) -> SegmentFile:
    return SegmentFile(
        ref.name, ref.base_offset, ref.end_offset, ref.chunks, ref.log_bytes, ref.min_timestamp, ref.max_timestamp
    )


def _segment(handle: TopicHandle, partition: int, ref: SegmentRef) -> Piece:
    key = handle.segment(partition, ref.name)
    return Piece(key, partition, ref.holders, ref.log_bytes, segment=ref)


def _places(state: Topic, files: set[int]) -> dict[int, list[StagedChunk]]:
    """Return the chunks that the journal names in each of these files, of all partitions."""
    places: dict[int, list[StagedChunk]] = defaultdict(list)
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks:
            if chunk.file in files:
                places[chunk.file].append(chunk.place(number))
    return places
